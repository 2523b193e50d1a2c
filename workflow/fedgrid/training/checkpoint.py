"""The state of a run between two rounds: a file that is replaced atomically, and two that grow.

Model, round and key of the run are in one file, so a kill cannot leave the model of one round with
the counter of another. The file says how much of the run's history (`history.py`) belongs to it,
and which segments of the clients' memories (`memories.py`): a checkpoint writes what is new since
the last one. Checksums detect changed bits. The checkpoint before the last one is kept for that
case.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from fedgrid.engine.state import RunState
from fedgrid.runtime import files
from fedgrid.runtime.resolved import Protocol
from fedgrid.training import sealed
from fedgrid.training.history import History
from fedgrid.training.memories import Memories
from fedgrid.training.sealed import UnusableError, flatten, unflatten

VERSION = "4"
PARTS = ("server", "shared", "logged", "recent")  # of a state, in the file itself

log = logging.getLogger(__name__)


class Saved:
    """The checkpoints of one run: read at its start, written every `save_every` seconds.

    `ended` has the last states of finished runs that this one can go on from (`extension.py`).
    """

    def __init__(self, path: Path, key: str, save_every: float, ended: Any):
        self.path, self.key, self.save_every, self.ended = path, key, save_every, ended
        self.last = time.monotonic()

    def begin(self, start: RunState, device, protocol: Protocol) -> tuple[RunState, History]:
        """Return the state and the evaluations to go on from, or `start` and no evaluations.

        They write to the files of this run from now on.
        """
        found = load(self.path, self.key, device)
        if found is None:
            discard(self.path)
            found = self.ended.load(self.path, device, protocol) or new(start, self.path, device)
        self.last = time.monotonic()
        return found

    @contextmanager
    def safe(self, state: RunState, history: History) -> Iterator[None]:
        """Write a checkpoint if the results of the last round cannot be written."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the disk may be full
                self.keep(state, history, now=True)
            raise

    def end(self, state: RunState, history: History) -> None:
        """Keep the state after the last round; the results are there already."""
        self.ended.keep(state, history)
        history.close()

    def keep(
        self,
        state: RunState,
        history: History,
        now: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a checkpoint after `check`, if `save_every` seconds have passed, or if `now`."""
        if now or time.monotonic() - self.last >= self.save_every:
            check()
            save(self.path, self.key, state, history)
            self.last = time.monotonic()


def new(start: RunState, path: Path, device: Any = "cpu") -> tuple[RunState, History]:
    """Return a run's first state, and no evaluations, which write to the files of a checkpoint."""
    memory = Memories(memories_of(path), device)
    memory.update(start.memory)
    return replace(start, memory=memory), History(history_of(path))


def save(path: Path, key: str, state: RunState, history: History) -> None:
    """Write the state of the run; `key` identifies the run, including its code.

    Its memories and its history are `Memories` and a `History`.
    """
    segments = cast(Memories, state.memory).save(memories_of(path))
    about = {"version": VERSION, "key": key, "round": str(state.round)}
    about |= {"segments": json.dumps(segments)} | history.save(history_of(path))
    about |= {"compiled": "yes"} if state.compiled else {}
    with files.replacing(path) as temporary:
        sealed.write(temporary, tensors_of(state), about)
        if path.exists():
            path.replace(before(path))
    cast(Memories, state.memory).sweep()


def tensors_of(state: RunState) -> dict[str, Tensor]:
    """Return the tensors of a state by name, without those of clients' memories."""
    return flatten({part: getattr(state, part) for part in PARTS if getattr(state, part)})


def size(state: RunState) -> int:
    """Return the bytes of a state."""
    own = sum(tensor.nbytes for tensor in tensors_of(state).values())
    return own + cast(Memories, state.memory).size()


def load(path: Path, key: str, device) -> tuple[RunState, History] | None:
    """Return the last undamaged state of this run saved under `path`, or None."""
    for file in (path, before(path)):
        if not file.exists():
            continue
        try:
            return read(file, key, device, of=path)
        except UnusableError as problem:
            log.warning("%s %s: it is not used", file, problem)
    return None


def discard(path: Path) -> None:
    """Delete the checkpoints and their files: the run has finished."""
    for file in (path, before(path), history_of(path)):
        file.unlink(missing_ok=True)
    shutil.rmtree(memories_of(path), ignore_errors=True)


def before(path: Path) -> Path:
    """Return the path of the checkpoint before the last one."""
    return path.with_name(f"{path.name}.before")


def history_of(path: Path) -> Path:
    """Return the path of the history of a checkpoint and of the one before."""
    return path.with_name(f"{path.name}.history")


def memories_of(path: Path) -> Path:
    """Return the folder of the clients' memories of a checkpoint and of the one before."""
    return path.with_name(f"{path.name}.clients")


def read(path: Path, key: str, device, of: Path | None = None) -> tuple[RunState, History]:
    """Return the state in a file; UnusableError if it is damaged or another run's.

    `of` is the checkpoint whose history and memories belong to the file, if it is not the file.
    """
    tensors, about = sealed.read(path)
    if about.get("version") != VERSION or "checksum" not in about:
        raise UnusableError("is not a checkpoint of this version of fedgrid")
    if about["key"] != key:
        raise UnusableError("is of another run, or of other code")
    history = History.read(history_of(of or path), about)
    segments = json.loads(about["segments"])
    memory = Memories.open(memories_of(of or path), segments, device)
    tree = unflatten({name: tensor.to(device) for name, tensor in tensors.items()})
    parts = {part: tree.get(part, {}) for part in PARTS}
    number, compiled = int(about["round"]), "compiled" in about
    return RunState(**parts, memory=memory, round=number, compiled=compiled), history
