"""Code without the texts that no result depends on.

These are comments, layout and docstrings, and the texts of errors, warnings and log messages. So
are the RANGES of a method's file: they refuse values, and change nothing for the others.
"""

import ast
from typing import Any

LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
# Functions that only say a text.
SAYING = {"log": LEVELS, "logging": LEVELS, "cli": ("warn", "fail"), "warnings": ("warn",)}
RANGES = "RANGES"  # of hyper-parameters


def bare(tree: ast.Module) -> ast.Module:
    """Return a syntax tree without these texts; it is changed in place."""
    _Bare().visit(tree)
    if not is_read(tree, RANGES):
        tree.body = [one for one in tree.body if not assigns(one, RANGES)]
    return tree


class _Bare(ast.NodeTransformer):
    """Removes the texts."""

    def visit(self, node: Any) -> Any:
        """Remove the texts in a node."""
        node = self.generic_visit(node)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        called = {ast.Raise: "exc", ast.Expr: "value"}.get(type(node))
        call = getattr(node, called) if called else None
        if isinstance(call, ast.Call) and (isinstance(node, ast.Raise) or says(call)):
            call.args, call.keywords = [], []
        return node


def is_read(tree: ast.Module, name: str) -> bool:
    """Whether a module uses the value of a variable."""
    read = (one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == name)
    return any(isinstance(one.ctx, ast.Load) for one in read)


def assigns(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a value to this variable, and to no other."""
    return isinstance(node, ast.Assign) and all(
        isinstance(to, ast.Name) and to.id == name for to in node.targets
    )


def says(call: ast.Call) -> bool:
    """Whether a call is one such as log.info(...) or cli.warn(...)."""
    owner = getattr(getattr(call.func, "value", None), "id", "")
    return isinstance(call.func, ast.Attribute) and call.func.attr in SAYING.get(owner, ())
