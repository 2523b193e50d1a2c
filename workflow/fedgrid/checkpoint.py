"""The state of a run between two rounds, in one file that is replaced atomically.

Tensors and everything else (round, history, the key of the run) travel in one safetensors file, so
that no kill can leave the model of one round with the counter of another.
"""

import json
import logging
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedgrid import files
from fedgrid.engine import Progress

CHANGES_RESULTS = False
VERSION = "1"

log = logging.getLogger(__name__)


def save(path: Path, key: str, run: Progress, history: list[dict]) -> None:
    """Write the run as it is; `key` says which run it is, down to its code."""
    tree = {"server": run.server, "shared": run.shared, "memory": run.memory, "sums": run.sums}
    about = {"key": key, "round": str(run.round), "history": json.dumps(history)}
    tensors = {name: tensor.contiguous() for name, tensor in flatten(tree).items()}
    with files.replacing(path) as temporary:
        save_file(unshared(tensors), temporary, {"version": VERSION} | about)


def load(path: Path, key: str, device) -> tuple[Progress, list[dict]] | None:
    """The run saved under `path`, if there is one, it is whole and it is this one."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            about = file.metadata() or {}
            if about.get("version") != VERSION or about.get("key") != key:
                log.info("%s is of another run or version: starting from round 0", path)
                return None
            tree = unflatten({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        log.warning("%s is damaged (%s): starting from round 0", path, problem)
        return None
    memory = {int(client): kept for client, kept in tree.get("memory", {}).items()}
    shared, sums = tree.get("shared", {}), tree.get("sums", {})
    run = Progress(tree["server"], shared, memory, sums, int(about["round"]))
    return run, json.loads(about["history"])


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
