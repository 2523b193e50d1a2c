"""Run the rounds of a run to its end, and evaluate it when its protocol says so."""

import math
from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

from fedgrid.engine.client_evaluation import ClientEvaluation
from fedgrid.engine.evaluation import join
from fedgrid.engine.hooks.calling import settle
from fedgrid.engine.hooks.state import Watch
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState, add_to_recent
from fedgrid.federation.protocols import has_client_test
from fedgrid.runtime.resolved import Protocol

NOT_COMPLETE = {"accuracy": None, "loss": None}  # of a server without the private parameters


def rounds(
    engine: Engine, state: RunState, history: list[dict], watch: Watch | None = None
) -> Iterator[RunState]:
    """Yield the state of the run after every round; evaluations are appended to `history`.

    A run stops when its loss is not finite (`diverged`). After the first and the last round
    `watch` looks for what a resumed run would lose.
    """
    protocol, first, watch = engine.protocol, state.round + 1, watch or Watch(engine)
    if not history:
        history.append({"round": 0} | assess(engine, state) | {"logged": {}})
    while state.round < protocol["rounds"] and diverged(history[-1:]) is None:
        cohort = protocol["evaluate_clients"] == "cohort"
        evaluates = cohort and evaluates_clients(protocol, state.round + 1)
        seen = engine.evaluation.start_client_evaluation() if evaluates else None
        state, recent = engine.round(state, seen), state.recent
        state.recent = add_to_recent(recent, state.server, protocol["average_last"])
        if is_evaluated(protocol, state.round):
            logged = {name: values.tolist() for name, values in state.logged.items()}
            row = join({"round": state.round} | assess(engine, state, seen), means(logged))
            settle(engine.method)
            history.append(row | {"logged": logged})
            state.logged = {}
        if state.round in (first, protocol["rounds"]):
            watch.check()
        yield state


def is_evaluated(protocol: Protocol, number: int) -> bool:
    """Whether the model after this round is evaluated."""
    return number % protocol["evaluate_every"] == 0 or is_last(protocol, number)


def is_last(protocol: Protocol, number: int) -> bool:
    """Whether a round is one of the last ones, which are evaluated whatever their number is."""
    return number > protocol["rounds"] - max(protocol["evaluate_last"], 1)


def evaluates_clients(protocol: Protocol, number: int) -> bool:
    """Whether clients are evaluated after this round."""
    if not (has_client_test(protocol) and is_evaluated(protocol, number)):
        return False
    every = protocol["evaluate_every"] * protocol["clients_every"]
    return number % every == 0 or is_last(protocol, number)


def assess(engine: Engine, state: RunState, seen: ClientEvaluation | None = None) -> dict[str, Any]:
    """Return all that is measured after a round; `seen` has evaluated the round's clients."""
    complete, evaluation = engine.architecture.complete_server, engine.evaluation
    model = evaluation.deployed(state)
    row = evaluation.evaluate(model) if complete else dict(NOT_COMPLETE)
    row = join(row, evaluation.evaluate_server(state))
    row = join(row, evaluation.evaluate_validation(state))
    row = join(row, evaluation.evaluate_average(state) if complete else {})
    everyone = engine.protocol["evaluate_clients"] == "all"
    if everyone and evaluates_clients(engine.protocol, state.round):
        seen = evaluation.evaluate_all_clients(state)
    return join(row, seen.results(model)) if seen and seen.clients else row


MEANS = ("train_loss", "effective_clients")  # what runs log in each round, if it has a meaning


def means(logged: dict[str, list[float]]) -> dict[str, float]:
    """Return the means of values logged by round; empty if no client trained.

    The values are added one after the other, which gives the same bits in every version of Python.
    The names are in a fixed order, because a checkpoint does not keep theirs.
    """
    names = (*(name for name in MEANS if name in logged), *sorted(logged.keys() - {*MEANS}))
    return {name: reduce(add, logged[name]) / len(logged[name]) for name in names}


def diverged(history: list[dict]) -> int | None:
    """Return the round at which a loss was not finite, or None."""
    for row in history:
        if not all(math.isfinite(value) for value in row.values() if isinstance(value, float)):
            return row["round"]
    return None
