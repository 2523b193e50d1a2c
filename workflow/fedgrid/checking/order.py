"""A method's server functions, called with the clients of a round in the opposite order.

The order of a round's clients means nothing, so a run stays the same. It does not if a function
takes a client's position in the round for its number. A function that draws random numbers is left
as it is, because its numbers belong to positions.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from fedgrid.engine.hooks.arguments import same
from fedgrid.engine.hooks.calling import hooks
from fedgrid.method import Cohort, Method

FOR_CLIENTS = ("send", "weigh", "reweigh", "scale")  # these give something for each client
FOR_ALL = ("aggregate", "share")
FIELDS = ("clients", "sizes", "counts", "steps", "deltas", "before", "memory", "measured")


def turn_order(method: Method) -> None:
    """Let the server functions of a checked method see each round's clients in opposite order."""
    for hook in hooks(method, *FOR_CLIENTS, *FOR_ALL):
        hook.function = partial(call_in_opposite_order, hook.function, hook.name)


def call_in_opposite_order(
    function: Callable[..., Any], name: str, cohort: Cohort, *rest: Any
) -> Any:
    """Return what a function gives for the opposite order, in the order of the cohort."""
    result = function(cohort, *rest)
    if not same(result, function(replace(cohort, noise=cohort.noise + 1), *rest)):
        return result
    turned = replace(cohort, **{field: turn(getattr(cohort, field)) for field in FIELDS})
    result = function(turned, *(rest if name == "share" else map(turn, rest)))
    return turn(result) if name in FOR_CLIENTS else result


def turn(value: Any) -> Any:
    """Return values of clients in the opposite order; a result of later training as it is."""
    if isinstance(value, dict):
        return {name: turn(tensor) for name, tensor in value.items()}
    if isinstance(value, list):
        return value[::-1]
    return value.flip(0) if isinstance(value, Tensor) else value
