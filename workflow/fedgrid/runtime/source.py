"""The package's code as a dependency of its results. The Snakefile imports this: no torch here.

A result depends on the modules that its entry point can reach. The folders `runtime/` and `study/`
are left out, with the modules that only they import, because they cannot change a number. The rest
is read without comments, docstrings and layout, and without the texts of errors and of log
messages.
"""

import ast
import hashlib
import json
from collections.abc import Callable
from functools import cache
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from fedgrid.runtime import own_data
from fedgrid.runtime.names import PACKAGE, UsageError

ROOT = PACKAGE
LEFT_OUT = ("runtime", "study")  # folders that cannot change a result
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
# Functions that only say a text.
SAYING = {"log": LEVELS, "logging": LEVELS, "cli": ("warn", "fail")}


def path(module: str) -> Path:
    """Return the file of a module or package, such as `methods.moon` or `models`."""
    file = ROOT / f"{module.replace('.', '/')}.py"
    package = file.with_suffix("") / "__init__.py"
    return package if package.exists() else file


def file(module: str) -> str:
    """Return the name of a module's file for a message: `methods/moon.py`."""
    if is_own(module):
        return module  # datasets.<name>: the entry of a configuration
    return path(module).relative_to(ROOT).as_posix()


def exists(module: str) -> bool:
    """Whether a module has a file, or is data of one's own."""
    return path(module).exists() or is_own(module)


def is_own(module: str) -> bool:
    """Whether a module stands for data of one's own (`own_data.py`), and has no file."""
    kind, _, name = module.partition(".")
    return kind == "datasets" and name in own_data.entries()


def text(module: str) -> str:
    """Return the text of a module."""
    if is_own(module):
        return own_data.text(module.partition(".")[2])
    return decode_source(path(module).read_bytes())


def forget() -> None:
    """Forget what was read of modules: data of one's own have changed in this process."""
    for function in [one for one in globals().values() if hasattr(one, "cache_clear")]:
        function.cache_clear()


@cache
def tree(module: str) -> ast.Module:
    """Return the module's syntax tree."""
    return _parsed(module)


def _parsed(module: str) -> ast.Module:
    """Return a new syntax tree; UsageError, with the line, for a file that is not Python."""
    try:
        return ast.parse(text(module))
    except SyntaxError as problem:
        line = f", line {problem.lineno}," * bool(problem.lineno)
        raise UsageError(f"{file(module)}{line} is not Python: {problem.msg}") from None
    except UsageError:
        raise
    except (OSError, ValueError, MemoryError, RecursionError) as problem:
        raise UsageError(f"{file(module)} cannot be read as Python: {problem}") from None


@cache
def reachable(module: str) -> frozenset[str]:
    """Return `module` and all modules of this package that it imports, directly or indirectly."""
    return _reached(module, lambda name: True)


@cache
def counted(module: str) -> frozenset[str]:
    """Return the modules that can change a result of `module`."""
    return _reached(module, counts)


def _reached(module: str, through: Callable[[str], bool]) -> frozenset[str]:
    """Return a module, and those that it imports through modules of a kind."""
    found, new = set(), {module}
    while new:
        found |= new
        new = {name for one in new for name in _imports(one) if through(name)} - found
    return frozenset(found)


def counts(module: str) -> bool:
    """Whether a module can change a result."""
    return module.partition(".")[0] not in LEFT_OUT


@cache
def _imports(module: str) -> frozenset[str]:
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom):
            where = origin(module, node)
            if f"{where}.".startswith(f"{ROOT.name}."):
                inside = where.removeprefix(ROOT.name).strip(".")
                names |= {inside, *(f"{inside}.{alias.name}".strip(".") for alias in node.names)}
        elif isinstance(node, ast.Import):
            packages = (alias.name for alias in node.names)
            names |= {n.removeprefix(f"{ROOT.name}.") for n in packages if n.startswith(ROOT.name)}
    return frozenset(name for name in names - {"", ROOT.name} if path(name).exists())


def origin(module: str, node: ast.ImportFrom) -> str:
    """Return the absolute name of what an import is from: in methods.x, `._a` is methods._a."""
    if not node.level:
        return node.module or ""
    inside = [ROOT.name, *module.split(".")]
    above = node.level - (path(module).name == "__init__.py")
    return ".".join([*inside[: len(inside) - above], *filter(None, [node.module])])


@cache
def code(module: str) -> str:
    """Return the code without comments, docstrings, layout, and texts of errors and logs."""
    found = ast.unparse(_Bare().visit(_parsed(module)))
    before = earlier(module, found)
    return found if before is None else before


def earlier(module: str, found: str) -> str | None:
    """Return the earlier code of a module whose code now gives the same results, or None.

    A file of `earlier/` has the hash of the code now in its first line, and then the earlier code:
    nothing, if there was no such module. On a CPU the two give every run that both can make the
    same bytes, and on a GPU the same up to rounding, so that no result is stale. After the next
    edit the hash differs, and the module's own code counts again.
    """
    kept = ROOT / "runtime/earlier" / f"{module}.txt"
    if not kept.exists():
        return None
    first, _, text_before = kept.read_text().partition("\n")
    same = first == hashlib.sha256(found.encode()).hexdigest()
    return text_before if same else None


class _Bare(ast.NodeTransformer):
    """Remove the texts that no result depends on."""

    def visit(self, node: ast.AST) -> ast.AST:
        """Remove the docstring of a node, and the text of an error or log message."""
        node = self.generic_visit(node)
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        if isinstance(node, ast.Expr) and _logs(node.value):
            node.value.args, node.value.keywords = [], []
        return node


def _logs(node: ast.expr) -> bool:
    """Whether an expression is a call such as log.info(...) or cli.warn(...)."""
    called = getattr(node, "func", None)
    owner = getattr(getattr(called, "value", None), "id", None)
    return isinstance(called, ast.Attribute) and called.attr in SAYING.get(owner, ())


@cache
def fingerprint(*modules: str) -> str:
    """Return a hash of all code that can change a result of `modules`."""
    return of(sorted(frozenset().union(*(counted(module) for module in modules))))


def of(modules: list[str]) -> str:
    """Return the fingerprint of exactly these modules."""
    codes = filter(None, (code(module) for module in modules if counts(module)))
    return hashlib.sha256("\n".join(codes).encode()).hexdigest()[:12]


@cache
def literal(module: str, name: str, default: Any = None) -> Any:
    """Return the value of a top-level literal of a module, without importing the module.

    UsageError if the value is an expression, another name or an import.
    """
    if (node := definitions(module).get(name)) is None:
        return default
    try:
        return ast.literal_eval(_assigned(node, name))
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"{file(module)}, line {node.lineno}: {name} is not a plain value, but is read without "
            f"running the file: write `{name} = ` and the value itself, with no sum, name or import"
        ) from None


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """Return, by name, the last top-level statement of a module that assigns the name."""
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
    """Return the value of a plain `name = value`, with or without an annotation; else None."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    plain = isinstance(node, ast.Assign | ast.AnnAssign)
    return node.value if plain and name in [getattr(to, "id", None) for to in targets] else None


@cache
def keywords(module: str, function: str) -> dict[str, Any]:
    """Return the keyword arguments of a module's function, with their defaults.

    UsageError for an argument that cannot be given by its name, or has no default that is a literal
    which JSON can hold: the default shows the type of the argument.
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
        return json.loads(json.dumps(value))  # as a job receives it
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"{where}: the default of `{name}`, {ast.unparse(node)}, is not a number, text, true, "
            f"false, or a list of these: write its value itself, as in `{name}=0.1`"
        ) from None


@cache
def arguments(module: str, function: str) -> list[str]:
    """Return the names of the arguments of a module's function."""
    found = _signature(module, function)
    return [argument.arg for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs)]


def parameters(module: str, function: str) -> tuple[list[str], list[str] | None]:
    """Return the arguments without a default, and all arguments, or None if it takes any name."""
    found, names = _signature(module, function), arguments(module, function)
    optional = [name for name, d in zip(found.kwonlyargs, found.kw_defaults, strict=True) if d]
    plain = names[: len(names) - len(found.kwonlyargs)]
    needed = plain[: len(plain) - len(found.defaults)]
    needed += [one.arg for one in found.kwonlyargs if one not in optional]
    return needed, None if found.kwarg else names


def accepts(module: str, function: str, argument: str) -> bool:
    """Whether a module's function takes the argument by name."""
    return bool(_signature(module, function).kwarg) or argument in arguments(module, function)


@cache
def _signature(module: str, function: str) -> ast.arguments:
    node = definitions(module).get(function)
    if not isinstance(node, ast.FunctionDef):
        raise UsageError(f"{file(module)} has no function `{function}`: write `def {function}`")
    return node.args


@cache
def summary(module: str) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    return " ".join((ast.get_docstring(tree(module)) or "").partition("\n\n")[0].split())
