"""Code without the texts that no result depends on.

These are comments, layout and docstrings; the texts of errors, warnings and log messages; the help
of options; and what a function puts into a variable only for such a text. The RANGES of a method's
file are such a text, too: they refuse values, and change nothing for the others.
"""

import ast
from collections.abc import Iterable
from typing import Any

LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
# Functions that only say a text.
SAYING = {"log": LEVELS, "logging": LEVELS, "cli": ("warn", "fail"), "parser": ("error",)}
SAYING |= {"warnings": ("warn",)}
# Functions that make a parser or a part of it, and their arguments that are only shown.
PARSERS = ("add_argument", "add_argument_group", "add_parser", "add_subparsers", "ArgumentParser")
SHOWN = ("help", "description", "epilog", "metavar", "title", "prog", "usage")
RANGES = "RANGES"  # of hyper-parameters
EMPTY = ast.Constant("")


def bare(tree: ast.Module) -> ast.Module:
    """Return a syntax tree without these texts; it is changed in place."""
    _Bare().visit(tree)
    if RANGES not in loaded_in(tree):
        tree.body = [one for one in tree.body if not assigns(one, RANGES)]
    return tree


def assigns(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a value to this variable, and to no other."""
    return isinstance(node, ast.Assign) and all(is_named(to, {name}) for to in node.targets)


class _Bare(ast.NodeTransformer):
    """Removes the texts; `spoken` are the names of variables in the texts that were removed."""

    def __init__(self) -> None:
        self.spoken: set[str] = set()

    def visit(self, node: Any) -> Any:
        """Remove the texts in a node."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node = self.visit_whole(node)
        else:
            node = self.generic_visit(node)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            self.empty(node.exc)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and says(node.value):
            self.empty(node.value)
        if isinstance(node, ast.Call) and name_of(node.func) in PARSERS:
            shown = [one for one in node.keywords if one.arg in SHOWN]
            self.spoken |= names_in(shown)
            node.keywords = [one for one in node.keywords if one not in shown]
        return node

    def empty(self, call: ast.Call) -> None:
        """Remove the arguments of a call."""
        self.spoken |= names_in([*call.args, *call.keywords])
        call.args, call.keywords = [], []

    def visit_whole(self, node: Any) -> Any:
        """Remove the texts in a function, and those in variables that only such texts use."""
        outside, self.spoken = self.spoken, set()
        node = self.generic_visit(node)
        while self.spoken and (only := self.spoken - loaded_in(node)):
            self.spoken = set()
            for one in ast.walk(node):
                if isinstance(one, ast.Assign) and all(is_named(to, only) for to in one.targets):
                    self.spoken |= names_in([one.value])
                    one.value = without_text(one.value)
            self.spoken -= only
        self.spoken |= outside
        return node


def without_text(value: ast.expr) -> ast.expr:
    """Return the value of a variable without its texts; calls other than of a text stay."""
    if isinstance(value, ast.JoinedStr) or is_text(value) or is_text(owner_of(value)):
        return EMPTY
    if isinstance(value, ast.IfExp):
        value.body, value.orelse = without_text(value.body), without_text(value.orelse)
    if isinstance(value, ast.BinOp):
        value.left, value.right = without_text(value.left), without_text(value.right)
    return value


def owner_of(value: ast.expr) -> ast.expr | None:
    """Return what a method is called of: the text in `", ".join(names)`; None if there is none."""
    called = value.func if isinstance(value, ast.Call) else None
    return called.value if isinstance(called, ast.Attribute) else None


def is_text(node: ast.expr | None) -> bool:
    """Whether an expression is a text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_named(node: ast.expr, names: set[str]) -> bool:
    """Whether a node is a variable with one of the names."""
    return isinstance(node, ast.Name) and node.id in names


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of variables in some nodes."""
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def loaded_in(node: ast.AST) -> set[str]:
    """Return the names of variables whose value a node uses, or that are not its own."""
    walked = [*ast.walk(node)]
    outer = (one.names for one in walked if isinstance(one, ast.Global | ast.Nonlocal))
    read = (one for one in walked if isinstance(one, ast.Name))
    return {one.id for one in read if isinstance(one.ctx, ast.Load)} | {
        n for of in outer for n in of
    }


def name_of(node: ast.AST) -> str | None:
    """Return the name of a variable, or the last part of a dotted name."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def says(node: ast.expr) -> bool:
    """Whether an expression is a call such as log.info(...) or cli.warn(...)."""
    called = getattr(node, "func", None)
    owner = getattr(getattr(called, "value", None), "id", "")
    return isinstance(called, ast.Attribute) and called.attr in SAYING.get(owner, ())
