"""What each function of a method must give: type, shape, names and finite numbers.

A rule gets the result and the arguments of a call, and raises a `MistakeError` with the end of a
sentence that begins with the name of the function. It returns the checks of numbers that are made
later, because they would wait for a GPU.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedgrid.engine.hooks.arguments import diverging, largest
from fedgrid.engine.optimisers import STATE
from fedgrid.method import (
    Aggregated,
    Candidates,
    Client,
    Cohort,
    Memory,
    Model,
    Server,
    Start,
    Step,
)
from fedgrid.runtime.names import list_some, shown

PRIVATE = "private"  # where a client's memory holds its private entries
TAKEN = (PRIVATE, STATE)  # names in a memory that the engine uses
NAMED = 5  # entries that a message lists
FIRST = 2  # rounds
CLOSE = 1e-3  # how far the sum of weights may be from 1


class MistakeError(Exception):
    """What is wrong with a result, in words that follow the name of the function."""


class Check(NamedTuple):
    """A check of numbers on a GPU that is made later, when somebody waits for the GPU anyway."""

    wrong: Tensor  # ()
    describe: Callable[[], str]  # what is wrong


def said(value: Any) -> str:
    """Return what a value is, in words."""
    if value is None:
        return "nothing (is a `return` missing?)"
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {str(value.dtype).removeprefix('torch.')}"
        return f"a tensor of shape {tuple(value.shape)}{kind}"
    return f"the {type(value).__name__} {shown(repr(value))}"


# -- on a client ----------------------------------------------------------------------------------


def value(result: Any, step: Step) -> None:
    """Refuse a loss or penalty that is not one number."""
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise MistakeError(
            f"gives {said(result)}, not a tensor with one number"
            + ". A sum over no entries is the number 0: there are none if another method lets "
            "clients keep all parameters for themselves. Leave out that method or this one"
            * (type(result) in (int, float) and not result)
        )
    if result.dim():
        raise MistakeError(
            f"gives {said(result)}, not one number: take the mean over the batch, with `step.mean`"
        )


def gradients(result: Any, step: Step, given: Model) -> None:
    """Refuse a direction that is not like the gradients; frozen parameters may be there, too."""
    dictionary(result, "the gradients")
    frozen = {name: step.params[name] for name in result if name in step.params}
    entries(result, frozen | given, "the gradients")
    for name, one in result.items():
        if one.device != step.valid.device:
            raise MistakeError(
                f"gives `{name}` on the device {one.device}, and the gradients are on "
                f"{step.valid.device}: make it there, for example by `zeros_like`"
            )


def some(result: Any, seen: Client | Server | Aggregated) -> list[Check]:
    """Refuse what is not some entries of a model, with their shapes.

    A function that trains can diverge. So numbers must be finite in the first rounds only, where a
    mistake shows; later they make the run a diverged one.
    """
    like = seen.entries if isinstance(seen, Server) else seen.model
    dictionary(result, "the model")
    entries(result, {name: like[name] for name in result if name in like}, "the model")
    number = seen.cohort.round if isinstance(seen, Aggregated) else seen.round
    return numbers(result, seen) if number < FIRST else []


def rates(result: Any, step: Step) -> None:
    """Refuse what is not a factor of at least 0 for some parameters."""
    named(result)
    for name, one in result.items():
        if name not in step.params:
            raise MistakeError(f"gives `{name}`, which is no parameter of the model")
        if not isinstance(one, Tensor) or one.dim() or not one.is_floating_point():
            raise MistakeError(f"gives {said(one)} as `{name}`, not a tensor with one number")


def chosen(result: Any, candidates: Candidates) -> None:
    """Refuse what is not ids of different clients."""
    population = len(candidates.sizes)
    if not isinstance(result, Tensor) or result.dim() != 1 or result.is_floating_point():
        raise MistakeError(
            f"gives {said(result)}, not a tensor (n,) of ids of clients, whole numbers"
        )
    if not len(result) or len(result.unique()) < len(result):
        raise MistakeError("gives no client, or one of them twice: give ids of different clients")
    if int(result.min()) < 0 or int(result.max()) >= population:
        raise MistakeError(f"gives an id that is not from 0 to {population - 1}")


def keep(result: Any, client: Client) -> list[Check]:
    """Refuse a memory that the engine cannot hold."""
    memory(result)
    return numbers(result, client)


def sent(result: Any, cohort: Cohort) -> list[Check]:
    """Refuse what is not one memory for each client of the round."""
    clients = len(cohort.clients)
    if not isinstance(result, list) or len(result) != clients:
        length = f" of length {len(result)}" if isinstance(result, list) else ""
        raise MistakeError(
            f"gives {said(result) if not length else 'a list'}{length}, not a list with a dict for "
            f"each of the {clients} clients of the round"
        )
    for one in result:
        memory(one)
        alike(one, result[0], "that of another client")
    return numbers(result, cohort)


def first(result: Any, start: Start, client: int | None = None) -> list[Check]:
    """Refuse an initial memory that the engine cannot hold."""
    memory(result)
    return numbers(result, start)


# -- on the server --------------------------------------------------------------------------------


def weights(result: Any, cohort: Cohort, *given: Tensor) -> list[Check]:
    """Refuse weights that are not one finite number for each client of the round."""
    clients, population = len(cohort.clients), cohort.population
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise MistakeError(
            f"gives {said(result)}, not a tensor of {clients} weights of a floating type"
        )
    if tuple(result.shape) != (clients,):
        hint = f", not of all {population}: take those of `cohort.clients`"
        hint = hint if tuple(result.shape) == (population,) else ""
        raise MistakeError(
            f"gives {said(result)}, not ({clients},): a weight for each client of the round{hint}"
        )
    return numbers(result, cohort, *given)


def summing(result: Any, cohort: Cohort, *given: Tensor) -> list[Check]:
    """Refuse weights that are negative, or whose sum is not 1."""
    checks = weights(result, cohort, *given)
    total = result.detach().sum()

    def describe() -> str:
        return (
            f"gives weights with the sum {float(total):.4g}, not 1: divide them by their sum, with "
            "`fedgrid.method.relative`, or set any_sum=True if the method means it"
        )

    def describe_negative() -> str:
        return (
            f"gives the weight {float(result.detach().min()):.4g}, which is negative: give weights "
            "of at least 0, or set any_sum=True if the method means it"
        )

    checks += judge((total - 1).abs() > CLOSE, (cohort, given), describe)
    return checks + judge((result < 0).any(), (cohort, given), describe_negative)


def update(result: Any, cohort: Cohort, given: Tensor) -> list[Check]:
    """Refuse an aggregate that is not like a model's change."""
    entries(result, {name: delta[0] for name, delta in cohort.deltas.items()}, "the deltas")
    return numbers(result, cohort, given)


def step(result: Any, change: Model, shared: Memory) -> list[Check]:
    """Refuse a server's step that is not like the update."""
    entries(result, change, "the update")
    return numbers(result, change, shared)


def shared(result: Any, cohort: Cohort, change: Model) -> list[Check]:
    """Refuse what cannot join `shared`."""
    memory(result)
    for name in result:
        if name not in cohort.shared:
            raise MistakeError(f"gives `{name}`, which the initial memory (`shared`) lacks: add it")
        alike(result[name], cohort.shared[name], "the earlier one", name)
    return numbers(result, cohort, change)


def logged(result: Any, end: Aggregated) -> list[Check]:
    """Refuse values of a round that are not single finite numbers."""
    named(result)
    for name, one in result.items():
        if not isinstance(one, Tensor) or one.dim():
            raise MistakeError(f"gives {said(one)} as `{name}`, not a tensor with one number")
    return numbers(result, end)


def columns(result: Any, seen: Client | Server) -> None:
    """Refuse values of an evaluation that are not single numbers; NaN leaves a column empty."""
    named(result)
    for name, one in result.items():
        number = isinstance(one, int | float) or (isinstance(one, Tensor) and one.numel() == 1)
        if not number and getattr(one, "shape", None) != ():
            raise MistakeError(f"gives {said(one)} as `{name}`, not one number")


def module(result: Any, given: nn.Module) -> None:
    """Refuse what is not a network."""
    if not isinstance(result, nn.Module):
        raise MistakeError(f"gives {said(result)}, not a network")


# -- parts of rules -------------------------------------------------------------------------------


def entries(result: Any, like: Model, what: str) -> None:
    """Refuse a model without the names and shapes of another one."""
    dictionary(result, what)
    if lacks := [f"`{name}`" for name in like if name not in result]:
        some = list_some(lacks, NAMED)
        raise MistakeError(f"lacks {some}, of the entries of {what}: give every entry")
    for name, one in result.items():
        if name not in like:
            raise MistakeError(f"gives `{name}`, which is no entry of {what}")
        if getattr(one, "shape", None) != like[name].shape:
            shape = tuple(like[name].shape)
            raise MistakeError(f"gives {said(one)} as `{name}`, whose shape in {what} is {shape}")
        same_type(one, like[name], name, what)


def dictionary(result: Any, what: str) -> None:
    """Refuse what is not a dict."""
    if not isinstance(result, dict):
        raise MistakeError(f"gives {said(result)}, not a dict of tensors like {what}")


def memory(result: Any, place: str = "") -> None:
    """Refuse what is not a dict of tensors, which may be nested."""
    where = f" as `{place}`" if place else ""
    if isinstance(result, Tensor) and place:
        return
    if not isinstance(result, dict):
        of_numbers = isinstance(result, int | float) and bool(place)
        hint = ": write it as a tensor, such as `step.new_tensor(1.0)` of a tensor" * of_numbers
        raise MistakeError(f"gives {said(result)}{where}, not a dict of tensors{hint}")
    for name, part in result.items():
        if not isinstance(name, str):
            raise MistakeError(f"gives {said(name)}{where} as a name, not a text")
        if not place and name in TAKEN:
            raise MistakeError(f"gives `{name}`, a name that the engine uses: choose another one")
        memory(part, f"{place}.{name}" if place else name)


def alike(one: Any, other: Any, what: str, place: str = "") -> None:
    """Refuse a memory without the names and shapes of another one."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() ^ other.keys()):
            full = f"{place}.{name}" if place else name
            has, lacks = ("gives", "lacks") if name in one else ("lacks", "gives")
            raise MistakeError(f"{has} `{full}`, which {what} {lacks}: give the same names")
        for name in one:
            alike(one[name], other[name], what, f"{place}.{name}" if place else name)
    elif getattr(one, "shape", None) != getattr(other, "shape", None):
        raise MistakeError(f"gives {said(one)} as `{place}`, where {what} has {said(other)}")
    elif isinstance(one, Tensor):
        same_type(one, other, place, what)


def same_type(one: Tensor, other: Tensor, name: str, what: str) -> None:
    """Refuse a tensor whose numbers have another type than those of another tensor."""
    if one.dtype != other.dtype:
        ours, theirs = (str(tensor.dtype).partition(".")[2] for tensor in (one, other))
        raise MistakeError(
            f"gives `{name}` as {ours}, and in {what} it is {theirs}: use one type for both, "
            f"for example by `.to({torch.promote_types(one.dtype, other.dtype)})`"
        )


def named(result: Any) -> None:
    """Refuse what is not a dict with texts as names."""
    if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
        raise MistakeError(f"gives {said(result)}, not a dict with a number for each name")


def numbers(result: Any, *arguments: Any) -> list[Check]:
    """Refuse numbers that are not finite, unless the model diverges."""
    places, found = largest(result)
    if found is None:
        return []
    steps = getattr(arguments[0], "steps", None) if arguments else None

    def describe() -> str:
        place = places[found.isfinite().tolist().index(False)]
        return (
            f"gives a number that is not finite{f' in `{place}`' * bool(place)}, from numbers that "
            f"are{describe_idle(steps)}"
        )

    return judge(~found.isfinite().all(), arguments, describe)


def judge(wrong: Tensor, arguments: tuple[Any, ...], describe: Callable[[], str]) -> list[Check]:
    """Refuse a result that is wrong, a tensor (), unless the model diverges.

    Nobody waits for a GPU: a check of its numbers is returned, for later.
    """
    if is_waited_for(wrong):
        return [Check(wrong & ~diverging(arguments), describe)]
    if wrong and not diverging(arguments):
        raise MistakeError(describe())
    return []


def is_waited_for(tensor: Tensor) -> bool:
    """Whether reading a tensor waits for all that is queued on its device."""
    return tensor.is_cuda


def describe_idle(steps: Any) -> str:
    """Say that a client took no step, if one did not: methods may divide by the steps."""
    if steps is None or bool(torch.as_tensor(steps).all()):
        return ""
    return "; `steps` is 0 for a client with too few samples for a batch: do not divide by it"


Rule = Callable[..., list[Check] | None]
RULES: dict[str, Rule] = {
    "architecture": module,
    "served": module,
    "loss": value,
    "penalty": value,
    "correct": gradients,
    "rate": rates,
    "begin": some,
    "personal": some,
    "refine": some,
    "deploy": some,
    "choose": chosen,
    "remember": keep,
    "measure": keep,
    "send": sent,
    "weigh": summing,
    "reweigh": summing,
    "scale": weights,
    "aggregate": update,
    "server": step,
    "share": shared,
    "observe": logged,
    "evaluate": columns,
    "evaluate_server": columns,
    "memory": first,
    "shared": first,
}
