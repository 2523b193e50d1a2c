"""Code without what no result depends on.

These are comments, layout and docstrings, and the texts of errors, warnings and log messages; the
RANGES of a method's file and the checks that only raise a UsageError, which refuse values, and
change nothing for the others; its NAME; the folders of a package; and imports from rooms that never
count.
"""

import ast
from collections.abc import Collection
from typing import Any

from fedgrid.runtime.places import PACKAGE

LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
# Functions that only say a text.
SAYING = {"log": LEVELS, "logging": LEVELS, "cli": ("warn", "fail"), "warnings": ("warn",)}
STATED = ("RANGES", "NAME", "__path__")  # constants of a file, unless it reads them itself
REFUSAL = "UsageError"  # other errors may be caught, and then they change what is computed


def bare(tree: ast.Module, rooms: Collection[str] = ()) -> ast.Module:
    """Return a syntax tree without these, where `rooms` never count; it is changed in place."""
    _Bare(rooms).visit(tree)
    _Unchecked(tree).visit(tree)
    for name in (name for name in STATED if not count_reads(tree, name)):
        tree.body = [one for one in tree.body if not assigns(one, name)] or [ast.Pass()]
    return tree


class _Bare(ast.NodeTransformer):
    """Removes the texts, and imports from these rooms."""

    def __init__(self, rooms: Collection[str]):
        self.rooms = rooms

    def visit(self, node: Any) -> Any:
        node = self.generic_visit(node)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        called = {ast.Raise: "exc", ast.Expr: "value"}.get(type(node))
        call = getattr(node, called) if called else None
        if isinstance(call, ast.Call) and (isinstance(node, ast.Raise) or says(call)):
            call.args, call.keywords = [], []
        return None if is_from(node, self.rooms) else node


class _Unchecked(ast.NodeTransformer):
    """Removes the checks that only refuse, from a tree without texts."""

    def __init__(self, tree: ast.Module):
        self.tree = tree

    def visit_If(self, node: ast.If) -> ast.If | None:
        """Return None for a check, unless what it assigns is read elsewhere."""
        self.generic_visit(node)
        named = (one for one in ast.walk(node.test) if isinstance(one, ast.NamedExpr))
        names = [one.target.id for one in named]
        elsewhere = (count_reads(self.tree, name) > count_reads(node, name) for name in names)
        return None if refuses(node) and not any(elsewhere) else node


def is_from(node: ast.AST, rooms: Collection[str]) -> bool:
    """Whether a statement is an import such as `from fedgrid.<room>.names import UsageError`."""
    package, _, inside = (getattr(node, "module", None) or "").partition(".")
    imports = isinstance(node, ast.ImportFrom) and not node.level and package == PACKAGE.name
    return imports and inside.partition(".")[0] in rooms


def refuses(node: ast.If) -> bool:
    """Whether a statement raises a UsageError on a condition, and does nothing else."""
    raised = getattr(node.body[0], "exc", None)
    alone = len(node.body) == 1 and not node.orelse
    return alone and getattr(getattr(raised, "func", None), "id", "") == REFUSAL


def count_reads(tree: ast.AST, name: str) -> int:
    """Return how often a module or statement uses the value of a variable."""
    read = (one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == name)
    return sum(isinstance(one.ctx, ast.Load) for one in read)


def assigns(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a value to this variable, and to no other."""
    return isinstance(node, ast.Assign) and all(
        isinstance(to, ast.Name) and to.id == name for to in node.targets
    )


def says(call: ast.Call) -> bool:
    """Whether a call is one such as log.info(...) or cli.warn(...)."""
    owner = getattr(getattr(call.func, "value", None), "id", "")
    return isinstance(call.func, ast.Attribute) and call.func.attr in SAYING.get(owner, ())
