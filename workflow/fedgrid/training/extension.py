"""Go on with a finished run when only its rounds or its schedule of evaluations have changed.

The last state of a finished run stays beside its checkpoint, in `<checkpoint>.ended`. A run that
differs in LENGTH only begins with this state, and ends with the bytes of an
uninterrupted run. For this, every evaluation has the values that were logged in each round before
it, so that their means over other intervals can be computed again. A state cannot be used if the
new schedule evaluates a round that the old one did not evaluate: that model is gone.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open

from fedgrid.engine.state import RunState
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Protocol, Run
from fedgrid.training import checkpoint
from fedgrid.training.history import History
from fedgrid.training.memories import Memories
from fedgrid.training.rounds import evaluates_clients, is_evaluated, means
from fedgrid.training.sealed import UnusableError

# Fields that a state between two rounds does not depend on.
LENGTH = ("rounds", "evaluate_every", "evaluate_last")

log = logging.getLogger(__name__)


class Ended:
    """The last states of finished runs: this run's own, and those of the same run of other names.

    `key` identifies all that a state depends on. A state larger than `limit` bytes is not kept.
    """

    def __init__(self, own: Path, key: str, others: Iterable[Path], limit: float):
        self.own, self.key, self.others, self.limit = own, key, others, limit

    def keep(self, state: RunState, history: History) -> None:
        """Keep the last state of this run, unless it is too large or cannot be written.

        The run is finished and its results are written, so no failure is an error here.
        """
        checkpoint.discard(self.own)
        if checkpoint.size(state) > self.limit:
            return
        try:
            checkpoint.save(self.own, self.key, state, history)
        except Exception as problem:
            checkpoint.discard(self.own)
            log.warning("the last state is not kept: %s", problem)

    def load(self, path: Path, device, protocol: Protocol) -> tuple[RunState, History] | None:
        """Return the state to begin with, and its evaluations, or None if there is none.

        They write to the files of the checkpoint `path`. UsageError if this run was finished after
        more rounds than the protocol has now.
        """
        done = {path: rounds_of(path, self.key) for path in (self.own, *self.others)}
        if done[self.own] > protocol["rounds"]:
            raise UsageError(
                f"this run was trained for {done[self.own]} rounds before, and `rounds` is "
                f"{protocol['rounds']} now: raise `rounds`, give the shorter protocol a name of "
                f"its own, or delete {self.own} to train from the start"
            )
        usable = [path for path in done if 0 < done[path] <= protocol["rounds"]]
        for other in sorted(usable, key=done.__getitem__, reverse=True):
            if found := self.adapted(other, path, device, protocol):
                log.info("going on after round %d of %s", found[0].round, other)
                return found
        return None

    def adapted(
        self, other: Path, path: Path, device, protocol: Protocol
    ) -> tuple[RunState, History] | None:
        """Return the state in `other` and its evaluations by the protocol, or None.

        They are copied to the files of the checkpoint `path`: another process may delete `other`.
        """
        try:
            if not (found := adapt(*checkpoint.read(other, self.key, device), protocol)):
                return None
            memory = cast(Memories, found[0].memory).moved(checkpoint.memories_of(path))
            history = History.copied(checkpoint.history_of(path), found[1])
            return replace(found[0], memory=memory), history
        except (UnusableError, FileNotFoundError) as problem:
            log.warning("%s %s: it is not used", other, problem)
            return None


def rounds_of(path: Path, key: str) -> int:
    """Return the rounds behind a state; 0 if the file is missing, damaged, or of another run."""
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
    except (SafetensorError, OSError):
        return 0
    return int(about["round"]) if about.get("key") == key else 0


def adapt(
    state: RunState, history: list[dict], protocol: Protocol
) -> tuple[RunState, list[dict]] | None:
    """Return the state and those evaluations that the protocol has so far; None if one is missing.

    The means of logged values are over the rounds since the evaluation before.
    """
    rows: list[dict[str, Any]] = []
    logged: dict[str, list[float]] = {}
    for row in history:
        logged = {n: [*logged.get(n, ()), *values] for n, values in row["logged"].items()} or logged
        if is_due(protocol, row["round"]):
            if ("clients" in row) != wants_clients(protocol, row["round"]):
                return None
            rows.append(row | {"logged": logged} | means(logged))
            logged = {}
    if {row["round"] for row in rows} != due_rounds(protocol, state.round):
        return None
    waiting = {name: torch.tensor(values, dtype=torch.double) for name, values in logged.items()}
    device = next(iter(state.server.values())).device
    return replace(state, logged={n: tensor.to(device) for n, tensor in waiting.items()}), rows


def is_due(protocol: Protocol, number: int) -> bool:
    """Whether the protocol evaluates this round, or the model before the first round."""
    return number == 0 or is_evaluated(protocol, number)


def due_rounds(protocol: Protocol, last: int) -> set[int]:
    """Return the rounds up to the last one that the protocol evaluates."""
    return {number for number in range(last + 1) if is_due(protocol, number)}


def wants_clients(protocol: Protocol, number: int) -> bool:
    """Whether the protocol evaluates clients after this round."""
    if number == 0 and protocol["evaluate_clients"] == "cohort":
        return False
    return evaluates_clients(protocol, number)


def without_length(run: Run) -> Run:
    """Return a run without the fields that its state between two rounds does not depend on.

    A method that reads the number of rounds says so by `ROUNDS = True` in its file.
    """
    reads = any(source.literal(f"methods.{part}", "ROUNDS", False) for part in run["method"])
    free = [field for field in LENGTH if not (reads and field == "rounds")]
    kept: Any = {field: v for field, v in run["protocol"].items() if field not in free}
    return {**run, "protocol": kept}
