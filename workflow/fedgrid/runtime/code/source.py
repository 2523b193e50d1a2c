"""The package's code as a dependency of its results. The Snakefile imports this: no torch here.

A result depends on the modules that its entry point can reach, such as `stages/train.py`. Modules
of the rooms in PLANNING never count: they say which work is done, and a job gets all that a number
depends on as values, which are compared themselves. What counts is read without the texts that no
result depends on (`bare.py`).
"""

import ast
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from fedgrid.runtime import notes, places
from fedgrid.runtime.code import own_data
from fedgrid.runtime.code.bare import bare
from fedgrid.runtime.hashes import hash_facts, hash_text
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.places import OWN, relative, roots

# Rooms in which nothing changes a number.
PLANNING = ("commands", "notebook", "page", "plan", "runtime", "store", "study")


def path(module: str) -> Path:
    """Return the file of a module or package, such as `methods.moon` or `models`."""
    inside = module.replace(".", "/")
    every = [root / f"{inside}{end}" for root in roots(inside) for end in ("/__init__.py", ".py")]
    return next((file for file in every if file.exists()), every[1])


def file(module: str) -> str:
    """Return the name of a module's file for a message: `methods/moon.py`."""
    if is_own(module):
        return module  # datasets.<name>: the entry of a configuration
    return (relative(path(module)) or path(module)).as_posix()


def exists(module: str) -> bool:
    return path(module).exists() or is_own(module)


def is_own(module: str) -> bool:
    """Whether a module stands for data of one's own (`own_data.py`), and has no file."""
    kind, _, name = module.partition(".")
    return kind == "datasets" and name in own_data.entries()


def data_of(dataset: str) -> dict[str, str]:
    """Return a hash of data of one's own as `data`: options and content; nothing of others."""
    module = f"datasets.{dataset}"
    return {"data": hash_text(code(module))} if is_own(module) else {}


def text(module: str) -> str:
    if is_own(module):
        return own_data.find_code(module.partition(".")[2])
    return decode_source(path(module).read_bytes())


def forget() -> None:
    """Forget what was read of modules: data of one's own have changed in this process."""
    for function in [one for one in globals().values() if hasattr(one, "cache_clear")]:
        function.cache_clear()


@cache
def tree(module: str) -> ast.Module:
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
    except ValueError as problem:  # a byte that no text has; a later Python says it as above
        raise UsageError(f"{file(module)} is not Python: {problem}") from None
    except (OSError, MemoryError, RecursionError) as problem:
        raise UsageError(f"{file(module)} cannot be read as Python: {problem}") from None


@cache
def _import_nodes(module: str) -> list[ast.Import | ast.ImportFrom]:
    """Return all imports of a module, also those inside functions."""
    walked = _statements_in(tree(module))
    return [node for node in walked if isinstance(node, ast.Import | ast.ImportFrom)]


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a module or a statement, with the clauses that hold them."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from _statements_in(inner)


def _inside(name: str) -> str:
    """Return a module's name without the package's; "." for the package, "" for another one."""
    package, _, inside = name.partition(".")
    return inside or "." if package == places.PACKAGE.name else ""


def origin(module: str, node: ast.ImportFrom) -> str:
    """Return the absolute name of what an import is from: in methods.x, `._a` is methods._a."""
    if not node.level:
        return node.module or ""
    inside = [places.PACKAGE.name, *module.split(".")]
    above = node.level - (path(module).name == "__init__.py")
    return ".".join([*inside[: len(inside) - above], *filter(None, [node.module])])


@cache
def reachable(module: str) -> frozenset[str]:
    """Return `module` and all modules of this package that it imports, directly or indirectly.

    It is noted, because all of these are parsed for it.
    """

    def find() -> str:
        return " ".join(sorted(_follow(module, lambda name: True)))

    return frozenset(find_once("reach", [module], r"[\w. ]+", find).split())


def _follow(module: str, is_followed: Callable[[str], bool]) -> frozenset[str]:
    """Return `module`, and all that it imports directly or through modules that are followed."""
    found, new = set(), {module}
    while new:
        found |= new
        new = {name for one in new for name in _imports(one) if is_followed(name)} - found
    return frozenset(found)


@cache
def _imports(module: str) -> frozenset[str]:
    """Return the modules of the package, and of the paper's folder, that a module imports.

    UsageError for another file of the paper's folder, on which no result would depend.
    """
    names = set()
    for node in _import_nodes(module):
        _refuse_beside(module, node)
        if isinstance(node, ast.Import):
            names |= {_inside(alias.name) for alias in node.names}
        elif inside := _inside(origin(module, node)):
            names |= {inside, *(f"{inside}.{alias.name}".strip(".") for alias in node.names)}
    return frozenset(name for name in names - {"", "."} if path(name).exists())


def _refuse_beside(module: str, node: ast.Import | ast.ImportFrom) -> None:
    top = places.paper()
    if top is None or not path(module).is_relative_to(top):
        return
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    else:
        named = [node.module or ""] * (not node.level)
    for first in (name.partition(".")[0] for name in named):
        if (top / f"{first}.py").exists():
            raise UsageError(
                f"{file(module)}, line {node.lineno}, imports {first}.py of this folder, on which "
                f"no result would depend: move it to {module.partition('.')[0]}/_{first}.py, and "
                f"write `from . import _{first}`"
            )


@cache
def counted(module: str) -> frozenset[str]:
    """Return `module`, and all modules that can change its result."""
    return _follow(module, counts)


def counts(module: str) -> bool:
    """Whether a module can change a result that it is not the entry point of."""
    return module.partition(".")[0] not in PLANNING


# -- fingerprints ---------------------------------------------------------------------------------


@cache
def code(module: str) -> str:
    """Return the code of a module without what changes no number (`bare.py`)."""
    return ast.unparse(bare(_parsed(module), PLANNING))


@cache
def fingerprint(*modules: str) -> str:
    """Return a hash of all code that can change a result of `modules`.

    It takes most of a second, so it is noted.
    """

    def find() -> str:
        every = frozenset().union(*(counted(module) for module in modules))
        return hash_text("\n".join(map(code, sorted(every))))

    return find_once("code", modules, "[0-9a-f]{12}", find)


@cache
def fingerprint_of_file(module: str) -> str:
    """Return a hash of a module with what it imports from its own folder, such as methods/.

    Unlike `fingerprint`, it does not change if anything outside of the folder does.
    """
    folder, _, _ = module.partition(".")
    own = sorted(one for one in counted(module) if one.startswith(f"{folder}."))
    return hash_text("\n".join(map(code, own)))


def find_once(what: str, modules: Iterable[str], form: str, find: Callable[[], str]) -> str:
    """Return what is found of modules; it is noted for the next process with the same files."""
    key = hash_facts([what, [(one, text(one) if is_own(one) else "") for one in modules]])
    return notes.find_noted(_note(), key, form, find)


def check_once(facts: Any, check: Callable[[], None]) -> None:
    """Run a check, unless the same facts passed it before with the same files of the package."""

    def passed() -> str:
        check()
        return "passed"

    find_once(f"check {hash_facts(facts)}", (), "passed", passed)


def _content(file: Path) -> bytes:
    """Return the text of a module's file, or its bytes if it is no text."""
    parts = (relative(file) or file).with_suffix("").parts
    try:
        return text(".".join(parts).removesuffix(".__init__")).encode()
    except (SyntaxError, ValueError, OSError):
        return file.read_bytes()


@cache
def _note() -> Path:
    """Return the note with the fingerprints of the package as it is now, by its files' content."""
    digest = hashlib.sha256(sys.version.encode())
    own = [root / kind for kind in OWN for root in roots(kind)[1:]]
    for file in sorted(file for top in (places.PACKAGE, *own) for file in top.rglob("*.py")):
        content = _content(file)
        digest.update(f"\n{relative(file)} {len(content)}\n".encode())
        digest.update(content)
    return notes.place_note(f"code-{digest.hexdigest()[:32]}.txt")


@cache
def literal(module: str, name: str, default: Any = None) -> Any:
    """Return the value of a top-level literal of a module, without importing the module.

    UsageError if the value is an expression, another name or an import.
    """
    try:
        is_mentioned = name in text(module)  # otherwise the file need not be parsed
    except (OSError, SyntaxError, ValueError):
        is_mentioned = True  # who parses it says what is wrong
    if not is_mentioned or (node := definitions(module).get(name)) is None:
        return default
    try:
        value: Any = _assigned(node, name)  # None is refused, too
        return ast.literal_eval(value)
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
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return node.value if name in [getattr(to, "id", None) for to in targets] else None


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
