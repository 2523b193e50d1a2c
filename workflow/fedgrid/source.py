"""The package's own code, as a dependency of its results. No torch: the Snakefile imports this.

A result depends on the modules that its entry point can reach, read without comments, docstrings
and layout. A module that cannot change a number says `CHANGES_RESULTS = False` and is left out.
"""

import ast
import hashlib
import json
from functools import cache
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from fedgrid.names import UsageError

CHANGES_RESULTS = False
ROOT = Path(__file__).parent


def path(module: str) -> Path:
    """The file of a module or package, `methods.moon` or `models`."""
    file = ROOT / f"{module.replace('.', '/')}.py"
    package = file.with_suffix("") / "__init__.py"
    return package if package.exists() else file


def file(module: str) -> str:
    """How a sentence names the file of a module: `methods/moon.py`."""
    return path(module).relative_to(ROOT).as_posix()


@cache
def tree(module: str) -> ast.Module:
    """The module's syntax tree."""
    return _parsed(module)


def _parsed(module: str) -> ast.Module:
    """A syntax tree that may be changed; UsageError, with the line, for what is not Python."""
    try:
        return ast.parse(decode_source(path(module).read_bytes()))
    except SyntaxError as problem:
        line = f", line {problem.lineno}," * bool(problem.lineno)
        raise UsageError(f"{file(module)}{line} is not Python: {problem.msg}") from None
    except (OSError, ValueError, MemoryError, RecursionError) as problem:
        raise UsageError(f"{file(module)} cannot be read as Python: {problem}") from None


@cache
def reachable(module: str) -> frozenset[str]:
    """`module` and the modules of this package it imports, however indirectly."""
    found, new = set(), {module}
    while new:
        found |= new
        new = {name for one in new for name in _imports(one)} - found
    return frozenset(found)


@cache
def _imports(module: str) -> frozenset[str]:
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{ROOT.name}."):
            inside = node.module.removeprefix(ROOT.name).strip(".")
            names |= {inside, *(f"{inside}.{alias.name}".strip(".") for alias in node.names)}
        elif isinstance(node, ast.Import):
            packages = (alias.name for alias in node.names)
            names |= {n.removeprefix(f"{ROOT.name}.") for n in packages if n.startswith(ROOT.name)}
    return frozenset(name for name in names - {"", ROOT.name} if path(name).exists())


@cache
def code(module: str) -> str:
    """The module's code without comments, docstrings and layout."""
    bare = _parsed(module)
    for node in ast.walk(bare):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(bare)


@cache
def fingerprint(*modules: str) -> str:
    """Changes when, and only when, code that can change a result of `modules` changes."""
    return of(sorted(frozenset().union(*(reachable(module) for module in modules))))


def of(modules: list[str]) -> str:
    """The fingerprint of these modules and no others."""
    counted = (code(m) for m in modules if literal(m, "CHANGES_RESULTS", True))
    return hashlib.sha256("\n".join(counted).encode()).hexdigest()[:12]


@cache
def literal(module: str, name: str, default: Any = None) -> Any:
    """The value of a top-level literal of a module, read without importing it (and torch).

    UsageError for a name whose value the file takes from a sum, another name or an import.
    """
    if (node := definitions(module).get(name)) is None:
        return default
    try:
        return ast.literal_eval(_assigned(node, name))
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"{file(module)}, line {node.lineno}: {name} is no plain value, but is read without "
            f"running the file: write `{name} = ` and the value itself, with no sum, name or import"
        ) from None


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """The last top-level statement of a module that gives each name its value."""
    return {name: node for node in tree(module).body for name in _defined(node)}


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    inside = list(ast.walk(node))
    aliases = {n.asname or n.name.partition(".")[0] for n in inside if isinstance(n, ast.alias)}
    stored = (n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    annotated = isinstance(node, ast.AnnAssign) and node.value is None
    return aliases if annotated else aliases | {n.id for n in stored}


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    """What a plain `name = value`, with an annotation or without, gives the name."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    plain = isinstance(node, ast.Assign | ast.AnnAssign)
    return node.value if plain and name in [getattr(to, "id", None) for to in targets] else None


@cache
def mentions(module: str, name: str) -> bool:
    """Whether a module gives an argument of this name, by keyword or by its text."""
    given = {ast.keyword: "arg", ast.Constant: "value"}
    nodes = (node for node in ast.walk(tree(module)) if type(node) in given)
    return any(getattr(node, given[type(node)]) == name for node in nodes)


@cache
def keywords(module: str, function: str) -> dict[str, Any]:
    """The keyword arguments of a module's function, with their defaults.

    UsageError for an argument that cannot be given by its name, or has no default that is a literal
    which JSON can hold: what it may be is told by its default.
    """
    found = _signature(module, function)
    where = f"{file(module)}: `{function}`"
    if odd := [*found.posonlyargs, *filter(None, (found.vararg, found.kwarg))]:
        problem = f"{where} cannot be given `{odd[0].arg}` by name"
        raise UsageError(f"{problem}: list each hyper-parameter with its default, as in `mu=0.1`")
    early = [None] * (len(found.args) - len(found.defaults))
    defaults = [*early, *found.defaults, *found.kw_defaults]
    names = arguments(module, function)
    return {name: _default(where, name, node) for name, node in zip(names, defaults, strict=True)}


def _default(where: str, name: str, node: ast.expr | None) -> Any:
    if node is None:
        raise UsageError(f"{where} has no default for `{name}`: give it one, as in `{name}=0.1`")
    try:
        value = ast.literal_eval(node)
        return json.loads(json.dumps(value))  # as a job is given it
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"{where}: the default of `{name}`, {ast.unparse(node)}, is no number, text, true or "
            f"false, or list of these: write its value itself, as in `{name}=0.1`"
        ) from None


@cache
def arguments(module: str, function: str) -> list[str]:
    """The names of the arguments of a module's function."""
    found = _signature(module, function)
    return [argument.arg for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs)]


def accepts(module: str, function: str, argument: str) -> bool:
    """Whether a module's function can be given the argument by its name."""
    return bool(_signature(module, function).kwarg) or argument in arguments(module, function)


@cache
def _signature(module: str, function: str) -> ast.arguments:
    node = definitions(module).get(function)
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"{file(module)} has no function `{function}`: write `def {function}`")
    return node.args


@cache
def summary(module: str) -> str:
    """The first paragraph of a module's docstring, on one line."""
    return " ".join((ast.get_docstring(tree(module)) or "").partition("\n\n")[0].split())
