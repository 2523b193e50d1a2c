"""Call a method's functions, and name the function and its file where one of them goes wrong.

Every call is checked by its rule (`rules.py`), and for changes in place of what the function was
given. The first call of a function, and the first one in the last round of a run, is a trial: it is
made twice, because a method's results may depend on its arguments only, and it draws from no
generator of the process: random numbers come from `cohort.noise`. Functions of a local step are
called too often for that, and inside of vmap; `trial.py` does it for them.
"""

import inspect
import pickle
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.engine.hooks.arguments import changed, same, sums, versions
from fedgrid.engine.hooks.hints import hint
from fedgrid.engine.hooks.reads import noted
from fedgrid.engine.hooks.rules import RULES, Check, MistakeError, Rule, summing, weights
from fedgrid.method import Joined, Method
from fedgrid.runtime.names import UsageError, shown, shown_error
from fedgrid.runtime.places import PACKAGE

IN_STEP = ("loss", "penalty", "correct", "rate")
MAKERS = ("architecture", "served")  # they change the network that they are given
LEFT = (*IN_STEP, *MAKERS, "evaluate", "evaluate_server")  # what these give is left as it is
NAMED = 3  # names of a dict's entries in a description


class Hook:
    """One function of a method, with the checks of its field; `often` leaves those of each call."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        rule: Rule,
        device: torch.device,
        often: bool = False,
    ):
        self.name, self.function, self.rule, self.device = name, function, rule, device
        self.often, self.tried = often, False
        self.trials, self.idle = 0, True  # how many were made; whether none of them saw an effect
        self.caches: list[Any] = []  # of functions that it calls; they must not matter
        self.read: dict[str, set[str]] = {}  # names that it reads of memories, by field
        self.gave = ""  # what it gave when it was tried, in words
        self.later: list[Check] = []  # of numbers on a GPU

    def __call__(self, *arguments: Any) -> Any:
        """Return what the function gives; UsageError if it goes wrong or gives what it must not."""
        if self.name in MAKERS:
            with self.named(), no_draws(OTHERS):
                return self.call(*arguments)
        if self.often:
            return self.call(*arguments)
        if not self.tried:
            return self.trial(arguments, lambda: arguments)
        before = versions(arguments)
        result = self.call(*arguments)
        self.unchanged(before, versions(arguments))
        return result

    def trial(self, seen: tuple[Any, ...], given: Callable[[], tuple[Any, ...]]) -> Any:
        """Return what a call gives of a function that changes nothing of what is `seen`.

        It draws no random numbers and, called again with what is `given`, gives the same.
        """
        self.tried, self.trials = True, self.trials + 1
        before, numbers = versions(seen), sums(seen)
        with self.named(), no_draws(GENERATORS):
            result = self.call(*given())
        self.unchanged(before, versions(seen))
        self.unchanged(numbers, sums(seen))
        self.repeat(result, *given())
        return result

    def call(self, *arguments: Any) -> Any:
        """Return what the function gives, checked by the rule of its field."""
        with self.named(*arguments):
            result = self.function(*arguments)
            self.later += self.rule(result, *arguments) or []
        return self.settled(result)

    def settled(self, result: Any) -> Any:
        """Return what the function gave on the device, without the graphs of its gradients."""

        def one(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return leaf.detach().to(self.device, non_blocking=True)

        return result if self.name in LEFT else tree_map(one, result)

    def settle(self) -> None:
        """Make the checks that were left for later; UsageError if one of them fails."""
        checks, self.later = self.later, []
        if checks and torch.stack([check.wrong for check in checks]).any():
            with self.named():
                raise MistakeError(next(check for check in checks if check.wrong).describe())

    def repeat(self, result: Any, *arguments: Any) -> None:
        """Refuse a function whose second call gives another result; note what it reads."""
        self.gave = describe(result)
        with self.named():
            keep_defaults(self.function, len(arguments))
        arguments = tuple(noted(argument, self.read) for argument in arguments)
        for cached in self.caches:
            cached.cache_clear()
        with self.named(*arguments), untouched_generators():
            if not same(result, self.settled(self.function(*arguments)), 0.0):
                raise MistakeError(
                    "gives another result if it is called again with the same arguments: draw "
                    "random numbers from a generator that `cohort.noise` seeds, and keep numbers "
                    "in `memory` or `shared`"
                )

    def unchanged(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Refuse a function that has changed its arguments in place."""
        if place := changed(before, after):
            with self.named():
                raise MistakeError(
                    f"changes its argument {of_argument(place)} in place: copy it first"
                )

    @contextmanager
    def named(self, *arguments: Any) -> Iterator[None]:
        """Turn an error into a UsageError with the function's name, file and line.

        `arguments` are what the function was called with, if it was.
        """
        try:
            yield
        except (UsageError, MemoryError, torch.OutOfMemoryError):
            raise
        except MistakeError as mistake:
            raise UsageError(f"{file_and_line(self.function)}: `{self.name}` {mistake}") from None
        except Exception as problem:
            where = f"{file_and_line(self.function, problem)}: `{self.name}`"
            text = f"{shown_error(problem)}{hint(problem, arguments)}"
            raise UsageError(f"{where} fails with {text}") from problem


def checked(method: Method, device: torch.device) -> Method:
    """Return the method with all its functions checked, and what they give on the device."""

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(function, Joined):
            parts = (wrapped(name, part) for part in (function.ours, function.theirs))
            return Joined(function.join, *parts)
        rule = weights if RULES[name] is summing and method.any_sum else RULES[name]
        return Hook(name, function, rule, device, often=name in (*IN_STEP, *MAKERS))

    made: dict[str, Any] = {name: wrapped(name, f) for name, f in functions(method).items()}
    return replace(method, **made)


def functions(method: Method) -> dict[str, Callable[..., Any]]:
    """Return those fields of a method that are functions."""
    found = {field.name: getattr(method, field.name) for field in fields(method)}
    return {name: found[name] for name in RULES if found[name]}


def hooks(method: Method, *names: str) -> list[Hook]:
    """Return the checked functions of a method by the names of their fields, or all of them."""
    given = functions(method)
    return [hook for name in names or given for hook in parts(given.get(name))]


def parts(function: Any) -> list[Hook]:
    """Return the functions that are joined in a field."""
    if isinstance(function, Joined):
        return [*parts(function.ours), *parts(function.theirs)]
    return [function] if function else []


def settle(method: Method) -> None:
    """Check the numbers on a GPU that a method has given since the last time; this waits for it.

    UsageError if some are not what its functions may give.
    """
    for hook in hooks(method):
        hook.settle()


def try_again(method: Method) -> None:
    """Let the next call of each function of a method be a trial."""
    for hook in hooks(method):
        hook.tried = False


@contextmanager
def unchanged_by_steps(method: Method, given: tuple[Any, ...], tried: bool) -> Iterator[None]:
    """Refuse a method whose functions of a local step change in place what was sent to a client.

    In a round in which functions are `tried`, changes are found that PyTorch does not count.
    """
    used = hooks(method, *IN_STEP)
    before, numbers = versions(given), sums(given) if tried and used else {}
    yield
    place = changed(before, versions(given)) or changed(numbers, sums(given) if numbers else {})
    if used and place:
        where, names = file_and_line(used[0].function), [f"`{hook.name}`" for hook in used]
        raise UsageError(
            f"{where}: {' or '.join(names)} changes {of_argument(place)} of a client in place: "
            "copy it first"
        )


def keep_defaults(function: Callable[..., Any], given: int) -> None:
    """Refuse a function of which a call with `given` arguments replaces a default value.

    None is no such value: a function for several fields gets more arguments for some of them.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions that are not written in Python
        return
    filled = [one for one in parameters if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)]
    for number, one in enumerate(filled[:given], 1):
        if one.default is not one.empty and one.default is not None:
            raise MistakeError(
                f"is called with {given} arguments, and number {number} replaces the default value "
                f"of `{one.name}`: add a parameter before `{one.name}`, or leave out its default"
            )


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in Python that is behind partial objects, bound methods and records."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__func__"):
            function = function.__func__
        else:
            break
    if isinstance(function, type):
        return function.__init__  # type: ignore[misc]
    return function if hasattr(function, "__code__") else type(function).__call__


def file_and_line(function: Callable[..., Any], problem: Exception | None = None) -> str:
    """Return file and line of a function, or of the line in its file where a problem arose."""
    code = getattr(plain(function), "__code__", None)
    if code is None:
        return shown(repr(function))
    line = code.co_firstlineno
    if problem is not None:
        frames = traceback.extract_tb(problem.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
        line = lines[-1] if lines else line
    path = Path(code.co_filename)
    inside = path.is_relative_to(PACKAGE)
    return f"{path.relative_to(PACKAGE).as_posix() if inside else path.name}, line {line}"


def describe(value: Any) -> str:
    """Return in words what a function gave: shapes of tensors, names of entries."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, dict):
        names, more = [*map(str, value)], len(value) - NAMED
        said = ", ".join(names[:NAMED]) or "nothing"
        return f"a dict with {said}" + (f" and {more} more" if more > 0 else "")
    if isinstance(value, list) and value:
        return f"a list of {len(value)}, of which each is {describe(value[0])}"
    return f"a {type(value).__name__}"


def of_argument(place: str) -> str:
    """Return the place of a tensor in the arguments in words: [0].memory['h'] is `memory['h']`."""
    number, _, rest = place.partition("]")
    return f"`{rest.lstrip('.')}`" if rest else f"number {int(number.lstrip('[')) + 1}"


@contextmanager
def no_draws(generators: dict[str, Callable[[], Any]]) -> Iterator[None]:
    """Refuse what draws random numbers from one of these generators."""
    before = {name: state() for name, state in generators.items()}
    yield
    for name, state in generators.items():
        if before[name] != state():
            raise MistakeError(
                f"draws random numbers from {name}, which are others in another run of the same "
                "seed: draw them from a generator of its own that `cohort.noise` seeds, and send "
                "clients theirs by `send`"
            )


def state_of_torch() -> list[bytes]:
    """Return the states of PyTorch's own generators."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [state.numpy().tobytes() for state in (torch.get_rng_state(), *devices)]


# What states of generators say that random numbers were drawn, by the names of the generators.
OTHERS: dict[str, Callable[[], Any]] = {
    "numpy's own generator": lambda: pickle.dumps(np.random.get_state()),
    "Python's own generator": random.getstate,
}
GENERATORS = OTHERS | {"PyTorch's own generator": state_of_torch}


@contextmanager
def untouched_generators() -> Iterator[None]:
    """Leave PyTorch's generators as they are."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        yield
