"""What to do about an error of a method's function: the end of a sentence that names the error."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from fedgrid.method import Aggregated, Cohort, Server, ServerData, Step
from fedgrid.runtime.names import in_words, list_some, nearest, shown

# Words of errors of vmap and of a recording, and of tensors on a GPU and on the CPU.
MAPPED = ("vmap", "tracing tensor", "functorch", "does not require grad")
TWO_DEVICES = ("same device", "to numpy", "device type for generator")
ELSEWHERE = (
    ". Make a tensor where the others are: `torch.ones(3, device=cohort.sizes.device)` or "
    "`cohort.sizes.new_ones(3)`, for example"
)
NO_WEIGHTS = (
    ". The network has no weights of its own: call it by `torch.func.functional_call(network, "
    "model, (x,))`, or `step.forward(model, x)`, with a model that has all entries, such as "
    "`client.model` or `step.server | step.params`"
)
IN_STACK = (
    ". The backend stacked maps the function over clients, so it must not read a tensor's "
    "value in Python (write `torch.where` instead of `if`), nor call `backward` or "
    "`torch.autograd.grad` (`correct` may call `step.gradient`); or choose the backend loop"
)
NO_DATA = (
    ". The server has no samples: write SERVER_DATA = True in the method's file, and set "
    "`server_data` in the protocol, for example to 0.1"
)
NOTHING_SENT = (
    ". The clients keep all parameters for themselves, so `deltas` has none: leave out the method "
    "with these private entries, or this one"
)
OF_SERVER = {one.name for one in fields(ServerData)}
IN_CIRCLES = (
    ". `step.gradient` calls `loss` and `penalty` of the method, so neither of them can call it: "
    "call it in `correct`"
)


def hint(problem: Exception, arguments: tuple[Any, ...]) -> str:
    """Return what to do about an error of a function that was called with these arguments."""
    if isinstance(problem, AttributeError) and is_dataclass(problem.obj):
        return hint_field(problem.name or "", problem.obj)
    if isinstance(problem, AttributeError) and problem.obj is None and problem.name in OF_SERVER:
        return NO_DATA if any(map(lacks_data, arguments)) else ""
    if isinstance(problem, RecursionError) and any(isinstance(one, Step) for one in arguments):
        return IN_CIRCLES
    if isinstance(problem, KeyError) and isinstance(key := next(iter(problem.args), None), str):
        return hint_entry(key, dict(mappings(arguments)))
    if any(isinstance(one, Cohort) and one.deltas == {} for one in arguments):
        return NOTHING_SENT
    if any(word in str(problem) for word in TWO_DEVICES):
        return ELSEWHERE
    if "device meta" in str(problem):
        return NO_WEIGHTS
    return IN_STACK if any(word in str(problem) for word in MAPPED) else ""


def lacks_data(argument: Any) -> bool:
    """Whether an argument of a function would have the server's samples, and has none."""
    return isinstance(argument, Aggregated | Server) and argument.data is None


def hint_field(name: str, record: Any) -> str:
    """Return the fields of a record, such as a `Step`, that a wrong name may stand for."""
    there = sorted(one for one in dir(record) if not one.startswith("_"))
    return f": {suggest(name, there) or f'its fields are {list_some(there)}'}"


def hint_entry(key: str, there: dict[str, list[dict[str, Any]]]) -> str:
    """Return which of the mappings `there` have an entry, or the entries that are like it."""
    if having := [place for place, of in there.items() if any(key in one for one in of)]:
        some = [f"`{place}`" + some_only(key, there[place]) for place in having]
        return f": `{shown(key)}` is in {in_words(some)}"
    names = {name for of in there.values() for one in of for name in one if isinstance(name, str)}
    said = suggest(shown(key), sorted(names))
    return f": {said or f'the entries are {list_some(sorted(names))}'}" if names else ""


def some_only(key: str, of: list[dict[str, Any]]) -> str:
    """Return words for a list of mappings, one for each client, of which some lack an entry."""
    return "" if all(key in one for one in of) else " of some clients only"


def suggest(name: str, there: list[str]) -> str:
    """Return a question with the nearest of these names; empty if none is near."""
    near = nearest(name, there)
    return f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""


def mappings(arguments: tuple[Any, ...]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the mappings in arguments by the name of their field, or the number of the argument.

    A list of mappings has one for each client.
    """
    for number, given in enumerate(arguments, 1):
        is_record = is_dataclass(given)
        named = [(one.name, getattr(given, one.name)) for one in fields(given)] if is_record else []
        for place, value in named or [(f"argument {number}", given)]:
            parts = value if isinstance(value, list) else [value]
            if parts and all(isinstance(part, dict) for part in parts):
                yield place, parts
