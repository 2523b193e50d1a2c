"""What a method's functions keep in Python between two calls: it is lost when a run is resumed.

A function's data are its closure, its defaults and attributes, the object that it is bound to, and
the global names of its file that it reads, also through other functions of the methods' files.
"""

import pickle
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from fedgrid.engine.hooks.calling import file_and_line, functions, hooks
from fedgrid.method import Joined, Method
from fedgrid.runtime.names import UsageError

METHODS = "fedgrid.methods."
CALLED = (types.FunctionType, types.MethodType, partial, Joined)
SKIPPED = (types.ModuleType, types.BuiltinFunctionType)

Found = list[tuple[str, str]]  # name and hash of each datum, in a fixed order


def fingerprint(function: Callable[..., Any]) -> Found:
    """Return the names and hashes of all data that a function reads beside its arguments."""
    return [
        (name, digest(value))
        for name, value in Reader(getattr(function, "__module__", "")).of(function)
    ]


def difference(before: Found, after: Found) -> str:
    """Return the name of the first datum that has changed; empty if none has."""
    for one, other in zip(before, after, strict=False):
        if one != other:
            return one[0]
    longer = max(before, after, key=len)
    return longer[min(len(before), len(after))][0] if len(before) != len(after) else ""


def between(one: Method, other: Method) -> str:
    """Return the name of a datum in which the functions of two methods differ; empty if in none."""
    pairs = zip(functions(one).values(), functions(other).values(), strict=False)
    return next(filter(None, (difference(*map(fingerprint, pair)) for pair in pairs)), "")


class Reader:
    """Reads the data of functions of one file."""

    def __init__(self, module: str):
        self.module = module
        self.seen: set[int] = set()

    def of(self, function: Any) -> Iterator[tuple[str, Any]]:
        """Yield name and value of what a function reads beside its arguments."""
        if not isinstance(function, CALLED):  # an object with __call__
            yield from self.value(type(function).__name__, function)
        elif id(function) not in self.seen:
            self.seen.add(id(function))
            yield from self.of_new(function)

    def of_new(self, function: Any) -> Iterator[tuple[str, Any]]:
        """Yield the data of a function that was not met before."""
        if isinstance(function, partial):
            yield from self.of(function.func)
            yield from self.all(enumerate((*function.args, *function.keywords.values())))
        elif isinstance(function, types.MethodType):
            yield from self.of(function.__func__)
            yield from self.value("self", function.__self__)
        elif isinstance(function, types.FunctionType):
            yield from self.of_function(function)
        elif isinstance(function, Joined):
            yield from self.all([("ours", function.ours), ("theirs", function.theirs)])

    def of_function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield the closure, defaults, attributes and global names of a function of Python."""
        code, there = function.__code__, function.__globals__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        yield from self.all((name, contents(cell)) for name, cell in cells)
        yield from self.all(enumerate(function.__defaults__ or ()))
        yield from self.all((function.__kwdefaults__ or {}).items())
        yield from self.all(vars(function).items())
        names = sorted(name for name in names_in(code) if name in there)
        yield from self.all((name, there[name]) for name in names if self.reads(there[name]))

    def reads(self, value: Any) -> bool:
        """Whether a global value is data, or a function or class of a method's file."""
        return not isinstance(value, types.FunctionType | type) or self.is_own(value.__module__)

    def is_own(self, module: str) -> bool:
        """Whether a module is the function's own, or a file of methods."""
        return module == self.module or module.startswith(METHODS)

    def all(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the data in pairs of names and values."""
        for name, value in [*pairs]:
            yield from self.value(str(name), value)

    def value(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield a datum, or the data of a function, a container or an object of the file."""
        if isinstance(value, CALLED):
            yield from self.of(value)
        elif isinstance(value, list | tuple):
            yield from self.all((f"{name}[{i}]", part) for i, part in enumerate(value))
        elif isinstance(value, dict):
            yield from self.all((f"{name}[{key!r}]", part) for key, part in value.items())
        elif isinstance(value, nn.Module):
            yield from self.all((f"{name}.{k}", v) for k, v in value.state_dict().items())
        elif self.is_own(getattr(of_class(value), "__module__", "")):
            if id(value) not in self.seen:
                self.seen.add(id(value))
                own = vars(value).items() if hasattr(value, "__dict__") else ()
                yield from self.all((f"{name}.{key}", v) for key, v in own if key[:2] != "__")
        elif not isinstance(value, (*SKIPPED, type)):
            yield name, value


def of_class(value: Any) -> type:
    """Return a class itself, and the class of another value."""
    return value if isinstance(value, type) else type(value)


def names_in(code: types.CodeType) -> set[str]:
    """Return the global names in a function's code, and in that of functions inside of it."""
    inside = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return {*code.co_names}.union(*map(names_in, inside))


def contents(cell: Any) -> Any:
    """Return what a cell of a closure holds; None before it is filled."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def digest(value: Any) -> str:
    """Return a hash of a value: of its bytes, or of its identity if it has none."""
    return sha256(to_bytes(value)).hexdigest()


def to_bytes(value: Any) -> bytes:
    """Return the bytes of a value, with the state of a generator of random numbers."""
    if isinstance(value, torch.Generator):
        value = value.get_state()
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().flatten()
        return b"" if value.is_meta else flat.view(torch.uint8).numpy().tobytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pickle.dumps(value)
    except Exception:  # each kind of object that cannot be pickled has an error of its own
        return str(id(value)).encode()


class Watch:
    """Compares what a method's functions keep in Python before and after the first round."""

    def __init__(self, method: Method):
        self.watched = [(hook, fingerprint(hook.function)) for hook in hooks(method)]

    def check(self) -> None:
        """Raise a UsageError if a function's data have changed; later calls do nothing."""
        for hook, before in self.watched:
            if name := difference(before, fingerprint(hook.function)):
                raise UsageError(
                    f"{file_and_line(hook.function)}: `{name}`, which `{hook.name}` reads, changes "
                    "while the method works, and would be lost when a run is resumed: count rounds "
                    "by `round` of what the function is given, and keep values in `memory` (of a "
                    "client) or `shared` (of the server)"
                )
        self.watched = []
