"""Run the rounds of a run to its end."""

import math
from collections.abc import Iterator

from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState


def rounds(engine: Engine, state: RunState, history: list[dict]) -> Iterator[RunState]:
    """Yield the state of the run after every round; evaluations are appended to `history`.

    A run stops when its loss is not finite (`diverged`).
    """
    protocol = engine.protocol
    if not history:
        history.append({"round": 0} | engine.evaluate(state.server))
    while state.round < protocol["rounds"] and diverged(history) is None:
        state = engine.round(state)
        if state.round % protocol["evaluate_every"] == 0 or state.round == protocol["rounds"]:
            history.append({"round": state.round} | engine.evaluate(state.server) | means(state))
            state.sums = {}
        yield state


MEANS = ("train_loss", "effective_clients")


def means(state: RunState) -> dict[str, float]:
    """Means of the logged values since the last evaluation; empty if no client trained."""
    return {name: float(state.sums[name] / state.sums["rounds"]) for name in MEANS if state.sums}


def diverged(history: list[dict]) -> int | None:
    """Return the round at which a loss was not finite, or None."""
    for row in history:
        if not all(math.isfinite(value) for value in row.values() if isinstance(value, float)):
            return row["round"]
    return None
