"""The state of a run between two rounds, in one file that is replaced atomically.

Tensors and everything else (round, history, the key of the run) travel in one safetensors file, so
that no kill can leave the model of one round with the counter of another. A checksum over all of it
tells a file whose bits have changed, which the format does not notice; the checkpoint before the
last one is kept for that case.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedgrid import files
from fedgrid.engine import Progress

CHANGES_RESULTS = False
VERSION = "2"

log = logging.getLogger(__name__)


def save(path: Path, key: str, run: Progress, history: list[dict]) -> None:
    """Write the run as it is; `key` says which run it is, down to its code."""
    tree = {"server": run.server, "shared": run.shared, "memory": run.memory, "sums": run.sums}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in flatten(tree).items()}
    about = {"version": VERSION, "key": key, "round": str(run.round)}
    about["history"] = json.dumps(history)
    with files.replacing(path, result=False) as temporary:
        files.save_tensors(
            unshared(tensors), temporary, about | {"checksum": checksum(tensors, about)}
        )
        if path.exists():
            path.replace(before(path))


def load(path: Path, key: str, device) -> tuple[Progress, list[dict]] | None:
    """The run saved last under `path` that is whole and is this one, if there is any."""
    for file in (path, before(path)):
        if not file.exists():
            continue
        try:
            return read(file, key, device)
        except UnusableError as problem:
            log.warning("%s %s: it is not used", file, problem)
    return None


def discard(path: Path) -> None:
    """Nothing is to go on from here any more."""
    for file in (path, before(path)):
        file.unlink(missing_ok=True)


def before(path: Path) -> Path:
    """Where the checkpoint before the last one is."""
    return path.with_name(f"{path.name}.before")


class UnusableError(Exception):
    """A checkpoint that is damaged, or another run's."""


def read(path: Path, key: str, device) -> tuple[Progress, list[dict]]:
    """The run in the file; UnusableError if it is damaged or another one."""
    try:
        with safe_open(path, "pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        raise UnusableError(f"is damaged ({problem})") from problem
    if about.get("version") != VERSION:
        raise UnusableError("is no checkpoint of this version of fedgrid")
    if about.pop("checksum", None) != checksum(tensors, about):
        raise UnusableError("is damaged (its checksum is another)")
    if about["key"] != key:
        raise UnusableError("is of another run, or of other code")
    tree = unflatten({name: tensor.to(device) for name, tensor in tensors.items()})
    memory = {int(client): kept for client, kept in tree.get("memory", {}).items()}
    shared, sums = tree.get("shared", {}), tree.get("sums", {})
    run = Progress(tree["server"], shared, memory, sums, int(about["round"]))
    return run, json.loads(about["history"])


def checksum(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """Of the names, shapes and bits of tensors, and of what is said about them."""
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def flatten(tree: dict, prefix: str = "") -> dict[str, Tensor]:
    """Nested dicts of tensors as one dict, names joined by `/`."""
    flat = {}
    for name, value in tree.items():
        whole = f"{prefix}{name}"
        flat |= flatten(value, f"{whole}/") if isinstance(value, dict) else {whole: value}
    return flat


def unflatten(flat: dict[str, Tensor]) -> dict[str, Any]:
    """The inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for whole, tensor in flat.items():
        *parents, name = whole.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = tensor
    return tree


def unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of those that are part of a larger piece of memory, or share it with another name.

    The format has no way to say so.
    """
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        alone = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        result[name] = tensor if alone else tensor.clone()
    return result
