"""What a method's functions and its network keep in Python between two rounds.

It is lost when a run is resumed. So a run compares the data of the functions with those at its
beginning: after its first round, before each checkpoint and at its end. A function's data are its
closure, its defaults and attributes, the object that it is bound to, and the global names of its
file that it reads, also through other functions of the methods' files. And the network must give
for a batch what a new one gives, and hold what that holds after it.
"""

import copy
import pickle
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from fedgrid.engine.hooks.arguments import same
from fedgrid.engine.hooks.calling import (
    OTHERS,
    file_and_line,
    functions,
    hooks,
    untouched_generators,
)
from fedgrid.engine.state import reseed, state_of
from fedgrid.method import Joined, Method, Model
from fedgrid.runtime.names import UsageError

TRIED = 2  # samples
METHODS = "fedgrid.methods."
CACHED: Any = type(cache(lambda: None))
CALLED = (types.FunctionType, types.MethodType, partial, Joined, CACHED)
SKIPPED = (types.ModuleType, types.BuiltinFunctionType)
PLAIN = (bool, int, float, str)
OF_MODULES = vars(nn.Module())  # attributes that every network has

Found = list[tuple[str, str]]  # name and hash of each datum, in a fixed order


def difference(before: Found, after: Found) -> str:
    """Return the name of the first datum that has changed, or is new; empty if none has."""
    names = {name for name, _ in before}
    for one, other in zip(before, after, strict=False):
        if one != other:
            return one[0] if other[0] in names else other[0]
    longer = max(before, after, key=len)
    return longer[min(len(before), len(after))][0] if len(before) != len(after) else ""


def between(one: Method, other: Method) -> str:
    """Return the name of a datum in which the functions of two methods differ; empty if in none."""
    pairs = zip(functions(one).values(), functions(other).values(), strict=False)
    found = (difference(*(Reader(one).fingerprint() for one in pair)) for pair in pairs)
    return next(filter(None, found), "")


class Reader:
    """Reads the data of a function, also of those of methods' files that it calls.

    `caches` are those of them that have a cache of `functools`.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function, self.module = function, getattr(function, "__module__", "")
        self.seen: set[int] = set()
        self.caches: list[Any] = []

    def fingerprint(self) -> Found:
        """Return the names and hashes of all data that the function reads beside its arguments."""
        return [(name, digest(value)) for name, value in self.of(self.function)]

    def of(self, function: Any) -> Iterator[tuple[str, Any]]:
        """Yield name and value of what a function reads beside its arguments."""
        if not isinstance(function, CALLED):
            yield from self.value(type(function).__name__, function)  # an object with __call__
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
        elif self.is_own(function.__module__):  # what it has computed can be computed again
            self.caches.append(function)
            yield from self.of(function.__wrapped__)

    def of_function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield the closure, defaults, attributes and global names of a function of Python."""
        code, there = function.__code__, function.__globals__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        yield from self.all((name, contents(cell)) for name, cell in cells)
        yield from self.all(enumerate(function.__defaults__ or ()))
        yield from self.all((function.__kwdefaults__ or {}).items())
        yield from self.all(vars(function).items())
        names = sorted(names_in(code))
        read = {name: there[name] for name in names if name in there}
        for place, module in [*read.items()]:
            if isinstance(module, types.ModuleType):
                own = vars(module)
                read |= {f"{place}.{name}": own[name] for name in names if name in own}
        yield from self.all(pair for pair in read.items() if self.reads(pair[1]))

    def reads(self, value: Any) -> bool:
        """Whether a global value is data, or a function or class of a method's file."""
        functions = types.FunctionType | CACHED | type
        return not isinstance(value, functions) or self.is_own(value.__module__)

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
        elif isinstance(value, Mapping):
            yield from self.all((f"{name}[{key!r}]", part) for key, part in value.items())
        elif isinstance(value, nn.Module):
            yield from self.all((f"{name}.{k}", v) for k, v in value.state_dict().items())
            plain = attributes(value).items()
            yield from self.all((f"{name}.{k}", v) for k, v in plain if is_plain(v))
        elif isinstance(value, Method) or self.is_own(getattr(of_class(value), "__module__", "")):
            if id(value) not in self.seen:
                self.seen.add(id(value))
                own = vars(value).items() if hasattr(value, "__dict__") else ()
                yield from self.all((f"{name}.{key}", v) for key, v in own if key[:2] != "__")
        elif not isinstance(value, (*SKIPPED, type)):
            yield name, value


def of_class(value: Any) -> type:
    """Return a class itself, and the class of another value."""
    return value if isinstance(value, type) else type(value)


def attributes(network: nn.Module) -> dict[str, Any]:
    """Return what a network holds by name, and no model has: attributes and passing buffers."""
    found: dict[str, Any] = {}
    for place, module in network.named_modules():
        passing = {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        own = {k: v for k, v in vars(module).items() if k not in OF_MODULES}
        found |= {f"{place}.{name}".lstrip("."): value for name, value in (own | passing).items()}
    return found


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, or nested lists and dicts of such."""
    return all(isinstance(leaf, PLAIN) for leaf in tree_leaves(value))


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
    """Return the bytes of a value; of a generator, those of its state."""
    if isinstance(value, torch.Generator):
        value = value.get_state()
    if isinstance(value, types.GeneratorType):
        value = value.gi_frame and (value.gi_frame.f_lasti, str(value.gi_frame.f_locals))
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
    """Compares what an engine's method and network keep in Python with a run's beginning."""

    def __init__(self, engine: Any):
        self.network, data = engine.architecture, engine.federation
        self.x = engine.samples.normalise(data.images[:TRIED])
        self.watched = []
        for hook in hooks(engine.method):
            reader = Reader(hook.function)
            self.watched.append((hook, reader.fingerprint()))
            hook.caches = reader.caches
        with untouched_generators():
            self.initial = [*map(digest, self.network.draw(0).values())]

    def check(self) -> None:
        """Raise a UsageError if what they keep has changed since the beginning."""
        for hook, before in self.watched:
            if name := difference(before, Reader(hook.function).fingerprint()):
                raise UsageError(
                    f"{file_and_line(hook.function)}: `{name}`, which `{hook.name}` reads, changes "
                    "while the method works, and would be lost when a run is resumed: count rounds "
                    "by `round` of what the function is given, and keep values in `memory` (of a "
                    "client) or `shared` (of the server)"
                )
        with untouched_generators():
            self.check_network()

    def check_network(self) -> None:
        """Refuse a network that is not the same whenever it is made, or called."""
        new = self.network.build(0).train()
        entries = state_of(new)
        if [*map(digest, entries.values())] != self.initial:
            raise UsageError(
                f"{of_network(new)} has other initial weights each time that it is made: draw them "
                "from PyTorch's own generator, which the run seeds"
            )
        pairs = (new, self.network.live), (copy.deepcopy(new).eval(), self.network.empty)
        for fresh, used in pairs:
            if name := self.differ(fresh, used, entries):
                raise UsageError(
                    f"{of_network(used)} is not as it was made: {name} changes while it is called, "
                    "and would be lost when a run is resumed: keep values in a buffer "
                    "(`register_buffer`), which is a part of the model, and draw random numbers "
                    "from PyTorch's own generator"
                )

    def differ(self, fresh: nn.Module, used: nn.Module, entries: Model) -> str:
        """Return what differs after a call of a new network and of one that was called before."""
        try:
            expected = self.left_by(fresh, entries)
        except Exception:  # it cannot be called with so few samples
            return ""
        try:
            found = self.left_by(used, entries)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:  # it holds what a recorded step has left
            return "what it holds"
        names = [name for name in expected if not same(expected[name], found.get(name), 0.0)]
        return names[0] if names else ""

    @torch.no_grad()
    def left_by(self, module: nn.Module, entries: Model) -> dict[str, Any]:
        """Return what a network gives for a batch, and what it then holds, by name."""
        reseed(self.network.device, 0)
        with self.network.precision():
            given = functional_call(module, tree_map(torch.clone, entries), (self.x,))
        found = {f"`{k}`": tree_map(comparable, v) for k, v in attributes(module).items()}
        return found | {"what it gives": given} | {k: state() for k, state in OTHERS.items()}


def comparable(value: Any) -> Any:
    """Return a value, or a text, that two networks alike have alike; None for other values.

    Those are modules, parameters, and all that is written with its place in memory.
    """
    if isinstance(value, torch.Generator | np.ndarray | np.random.Generator):
        return digest(value)
    if isinstance(value, nn.Module | nn.Parameter):
        return None
    if isinstance(value, Tensor):
        return value
    return None if " at 0x" in (said := repr(value)) else said


def of_network(network: nn.Module) -> str:
    """Return file, line and name of a network's class, in words."""
    kind = type(network)
    return f"{file_and_line(kind.forward)}: the network `{kind.__name__}`"
