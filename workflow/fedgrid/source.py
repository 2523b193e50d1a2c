"""The package's own code, as a dependency of its results. No torch: the Snakefile imports this.

A result depends on the modules that its entry point can reach, read without comments, docstrings
and layout. A module that cannot change a number says `CHANGES_RESULTS = False` and is left out.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

CHANGES_RESULTS = False
ROOT = Path(__file__).parent


def path(module: str) -> Path:
    """The file of a module or package, `methods.moon` or `models`."""
    file = ROOT / f"{module.replace('.', '/')}.py"
    return file if file.exists() else file.with_suffix("") / "__init__.py"


@cache
def tree(module: str) -> ast.Module:
    """The module's syntax tree."""
    return ast.parse(path(module).read_text())


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
    bare = ast.parse(path(module).read_text())
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
    """The value of a top-level literal of a module, read without importing it (and torch)."""
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    return default


@cache
def mentions(module: str, name: str) -> bool:
    """Whether a module gives an argument of this name, by keyword or by its text."""
    given = {ast.keyword: "arg", ast.Constant: "value"}
    nodes = (node for node in ast.walk(tree(module)) if type(node) in given)
    return any(getattr(node, given[type(node)]) == name for node in nodes)


@cache
def keywords(module: str, function: str) -> dict[str, Any]:
    """The keyword arguments of a module's function, with their defaults."""
    defaults = _signature(module, function).defaults
    return dict(zip(arguments(module, function), map(ast.literal_eval, defaults), strict=True))


@cache
def arguments(module: str, function: str) -> list[str]:
    """The names of the arguments of a module's function."""
    return [argument.arg for argument in _signature(module, function).args]


def defines(module: str, name: str) -> bool:
    """Whether a module has a function of this name, its own or another's."""
    own = (node.name for node in tree(module).body if isinstance(node, ast.FunctionDef))
    imports = (node for node in tree(module).body if isinstance(node, ast.ImportFrom))
    others = (alias.asname or alias.name for node in imports for alias in node.names)
    return name in (*own, *others)


@cache
def _signature(module: str, function: str) -> ast.arguments:
    for node in tree(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return node.args
    raise LookupError(f"{path(module)} has no function `{function}`")


@cache
def summary(module: str) -> str:
    """The first paragraph of a module's docstring, on one line."""
    return " ".join((ast.get_docstring(tree(module)) or "").partition("\n\n")[0].split())
