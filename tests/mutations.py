"""Small changes of a function, and what they change: for `test_mutations.py`.

A mutant replaces the code of a function in this process: another comparison, another number, a
condition turned round, the last item left out, nothing returned.
"""

import ast
import copy
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

from fedgrid.runtime.code import source

OTHER = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE},
    **{ast.LtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add},
    **{ast.Div: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr},
}
Name = tuple[str, str]  # a module, and a function of it: `name`, or `Class.name`


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what can stand in the place of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        yield ast.Compare(node.left, [OTHER[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(OTHER[type(node.op)](), node.values)
        yield node.values[0]
    if isinstance(node, ast.BinOp) and type(node.op) in OTHER:
        yield ast.BinOp(node.left, OTHER[type(node.op)](), node.right)
        yield node.left
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    if isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(None)
        call = f"__import__('mutations').other({ast.unparse(node.value)})"
        yield ast.Return(ast.parse(call, mode="eval").body)
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) > 1:
        context = {} if isinstance(node, ast.Set) else {"ctx": node.ctx}
        if not isinstance(context.get("ctx"), ast.Store):
            yield type(node)(node.elts[:-1], **context)
    if isinstance(node, ast.comprehension) and node.ifs:
        yield ast.comprehension(node.target, node.iter, node.ifs[1:], node.is_async)


def other(value: object) -> object:
    """What a function may give back instead: without the last item, one more, the opposite."""
    if isinstance(value, dict):
        return dict([*value.items()][:-1])
    if isinstance(value, set | frozenset):
        return type(value)(sorted(value, key=repr)[:-1])
    if type(value) in (list, tuple, str):
        return value[:-1]
    if type(value) in (int, float):
        return value + 1
    return not value if isinstance(value, bool) else value


class Place(ast.NodeTransformer):
    """Puts another node in the place of the one with a number, in the order of a walk."""

    def __init__(self, number: int, other: ast.AST):
        self.number, self.other, self.at = number, other, -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.at += 1
        return self.other if self.at == self.number else self.generic_visit(node)


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, in the order of `Place`."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walked(child)


def mutants(function: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the mutants of a function, each with what is changed."""
    for number, node in enumerate(walked(function)):
        for other in changed(node):
            made = Place(number, copy.deepcopy(other)).visit(copy.deepcopy(function))
            line = getattr(node, "lineno", function.lineno)
            yield f"line {line}: {said(node)} is {said(other)}", ast.fix_missing_locations(made)


def said(node: ast.AST) -> str:
    """The first line of a node's code."""
    lines = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).splitlines()
    return next(line for line in lines if line.strip())


# -- functions ------------------------------------------------------------------------------------


def definition(one: Name) -> ast.FunctionDef | None:
    """The code of a function; None if it is none, or is made in another function."""
    where = source.tree(one[0]).body
    for part in one[1].split("."):
        named = [node for node in where if getattr(node, "name", None) == part]
        where = named[-1].body if named else []
    return named[-1] if named and isinstance(named[-1], ast.FunctionDef) else None


def compiled(one: Name, function: ast.FunctionDef) -> CodeType:
    """The code object of a function, which may be in a class."""
    plain = copy.deepcopy(function)
    plain.decorator_list = []
    for part in reversed(one[1].split(".")[:-1]):
        plain = ast.ClassDef(part, [], [], [plain], [])
    whole = compile(ast.fix_missing_locations(ast.Module([plain], [])), "<mutant>", "exec")
    for part in one[1].split("."):
        codes = (code for code in whole.co_consts if isinstance(code, CodeType))
        whole = next(code for code in codes if code.co_name == part)
    return whole


def plain(one: Name) -> FunctionType:
    """The function itself, under its decorators."""
    found = sys.modules[f"fedgrid.{one[0]}"]
    for part in one[1].split("."):
        found = inspect.getattr_static(found, part)
    return inspect.unwrap(getattr(found, "__func__", found))


@contextmanager
def replaced(one: Name, mutant: ast.FunctionDef) -> Iterator[None]:
    """Run the mutant in the place of the function."""
    function, code = plain(one), compiled(one, mutant)
    before, function.__code__ = function.__code__, code
    try:
        yield
    finally:
        function.__code__ = before


def called(work: Callable[[], object], folders: tuple[str, ...]) -> set[Name]:
    """The functions of some folders of the package that are called while `work` runs."""
    found, prefix = set(), tuple(f"fedgrid.{folder}." for folder in folders)

    def note(frame, event, argument) -> None:
        where = frame.f_globals.get("__name__", "")
        if event == "call" and where.startswith(prefix):
            found.add((where.removeprefix("fedgrid."), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return {one for one in found if "<" not in one[1] and definition(one) is not None}
