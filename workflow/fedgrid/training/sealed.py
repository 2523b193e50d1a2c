"""Files of tensors with a checksum: what is read is to the last bit what was written.

The format, safetensors, notices a truncated file, but no changed bits. Nested dicts of tensors have
their names joined by `/` in such a file.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedgrid.federation import array_files

ESCAPES = (("~", "~0"), ("/", "~1"))  # in a name, as in a JSON pointer (RFC 6901)
EMPTY = "~e"  # no name is escaped to this


class UnusableError(Exception):
    """A file that is missing or damaged, or belongs to another run."""


def write(path: Path, tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """Write tensors and a description to `path`, which need not be safe yet; return the checksum.

    OSError if the disk is full.
    """
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    seal = checksum(tensors, about)
    array_files.save_tensors(unshared(tensors), path, about | {"checksum": seal})
    return seal


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file and its description, with its checksum; or UnusableError."""
    try:
        with safe_open(path, "pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        raise UnusableError(f"is damaged ({problem})") from problem
    said = {name: text for name, text in about.items() if name != "checksum"}
    if "checksum" in about and about["checksum"] != checksum(tensors, said):
        raise UnusableError("is damaged (its checksum differs)")
    return tensors, about


def checksum(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """Return a hash of the names, shapes and bits of tensors, and of their description."""
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def flatten(tree: dict, prefix: str = "") -> dict[str, Tensor]:
    """Return nested dicts of tensors as one dict, with names joined by `/`.

    An empty dict becomes a tensor without numbers, with the name EMPTY in it.
    """
    flat: dict[str, Tensor] = {}
    for name, value in tree.items():
        whole = f"{prefix}{escaped(name)}"
        if not isinstance(value, dict):
            flat[whole] = value
        elif value:
            flat |= flatten(value, f"{whole}/")
        else:
            flat[f"{whole}/{EMPTY}"] = torch.zeros(0)
    return flat


def unflatten(flat: dict[str, Tensor]) -> dict[str, Any]:
    """Return the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for whole, tensor in flat.items():
        *parents, name = whole.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(restored(parent), {})
        if name != EMPTY:
            node[restored(name)] = tensor
    return tree


def escaped(name: str) -> str:
    """Return a name without `/`."""
    for character, code in ESCAPES:
        name = name.replace(character, code)
    return name


def restored(name: str) -> str:
    """Return the inverse of `escaped`."""
    for character, code in reversed(ESCAPES):
        name = name.replace(code, character)
    return name


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
