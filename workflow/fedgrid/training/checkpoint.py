"""The state of a run between two rounds, in one file that is replaced atomically.

Tensors, round, history and the key of the run are in one safetensors file, so a kill cannot leave
the model of one round with the counter of another. A checksum detects changed bits, which the
format does not notice. The checkpoint before the last one is kept for that case.
"""

import hashlib
import json
import logging
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedgrid.engine.state import RunState
from fedgrid.runtime import files

VERSION = "3"

log = logging.getLogger(__name__)


class Saved:
    """The checkpoints of one run: read at its start, written every `save_every` seconds.

    `ended` has the last states of finished runs that this one can go on from (`extension.py`).
    """

    def __init__(self, path: Path, key: str, save_every: float, ended: Any):
        self.path, self.key, self.save_every, self.ended = path, key, save_every, ended
        self.last = time.monotonic()

    def load(self, device, protocol: dict) -> tuple[RunState, list[dict]] | None:
        """Return the state and the evaluations to go on from, or None."""
        found = load(self.path, self.key, device) or self.ended.load(device, protocol)
        self.last = time.monotonic()
        return found

    def end(self, state: RunState, history: list[dict]) -> None:
        """Keep the state after the last round."""
        self.ended.keep(state, history)

    def keep(self, state: RunState, history: list[dict], now: bool) -> None:
        """Write a checkpoint if `save_every` seconds have passed, or if `now`."""
        if now or time.monotonic() - self.last >= self.save_every:
            save(self.path, self.key, state, history)
            self.last = time.monotonic()


def save(path: Path, key: str, state: RunState, history: list[dict]) -> None:
    """Write the state of the run; `key` identifies the run, including its code."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors_of(state).items()}
    about = {"version": VERSION, "key": key, "round": str(state.round)}
    about["history"] = json.dumps(history)
    with files.replacing(path) as temporary:
        files.save_tensors(
            unshared(tensors), temporary, about | {"checksum": checksum(tensors, about)}
        )
        if path.exists():
            path.replace(before(path))


def tensors_of(state: RunState) -> dict[str, Tensor]:
    """Return all tensors of a state by name."""
    parts = ("server", "shared", "memory", "logged")
    return flatten({part: getattr(state, part) for part in parts})


def size(state: RunState) -> int:
    """Return the bytes of a state."""
    return sum(tensor.nbytes for tensor in tensors_of(state).values())


def load(path: Path, key: str, device) -> tuple[RunState, list[dict]] | None:
    """Return the last undamaged state of this run saved under `path`, or None."""
    for file in (path, before(path)):
        if not file.exists():
            continue
        try:
            return read(file, key, device)
        except UnusableError as problem:
            log.warning("%s %s: it is not used", file, problem)
    return None


def discard(path: Path) -> None:
    """Delete the checkpoints: the run has finished."""
    for file in (path, before(path)):
        file.unlink(missing_ok=True)


def before(path: Path) -> Path:
    """Return the path of the checkpoint before the last one."""
    return path.with_name(f"{path.name}.before")


class UnusableError(Exception):
    """A checkpoint that is damaged, or belongs to another run."""


def read(path: Path, key: str, device) -> tuple[RunState, list[dict]]:
    """Return the state in the file; UnusableError if it is damaged or another run's."""
    try:
        with safe_open(path, "pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        raise UnusableError(f"is damaged ({problem})") from problem
    if about.get("version") != VERSION:
        raise UnusableError("is not a checkpoint of this version of fedgrid")
    if about.pop("checksum", None) != checksum(tensors, about):
        raise UnusableError("is damaged (its checksum differs)")
    if about["key"] != key:
        raise UnusableError("is of another run, or of other code")
    tree = unflatten({name: tensor.to(device) for name, tensor in tensors.items()})
    memory = {int(client): kept for client, kept in tree.get("memory", {}).items()}
    shared, logged = tree.get("shared", {}), tree.get("logged", {})
    state = RunState(tree["server"], shared, memory, logged, int(about["round"]))
    return state, json.loads(about["history"])


def checksum(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """Return a hash of the names, shapes and bits of tensors, and of their description."""
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def flatten(tree: dict, prefix: str = "") -> dict[str, Tensor]:
    """Return nested dicts of tensors as one dict, with names joined by `/`."""
    flat = {}
    for name, value in tree.items():
        whole = f"{prefix}{name}"
        flat |= flatten(value, f"{whole}/") if isinstance(value, dict) else {whole: value}
    return flat


def unflatten(flat: dict[str, Tensor]) -> dict[str, Any]:
    """Return the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for whole, tensor in flat.items():
        *parents, name = whole.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = tensor
    return tree


def unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that are part of a larger storage, or share it with another name.

    The format cannot represent them.
    """
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        alone = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        result[name] = tensor if alone else tensor.clone()
    return result
