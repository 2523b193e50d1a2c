"""Arrays that are written some rows at a time, so that they need not fit into memory.

A row is what an array has at one place of its first axis: an image, a sequence, a label.
"""

from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

AT_ONCE = 2**23  # bytes of the rows that are made at once


class Stream(NamedTuple):
    """An array that is not made yet: its shape and type, and its parts, which are made in order."""

    shape: tuple[int, ...]
    dtype: np.dtype
    parts: Iterable[np.ndarray]


def at_once(shape: tuple[int, ...], itemsize: int) -> int:
    """Return how many rows of an array of this shape are made at once: at least one."""
    return max(1, AT_ONCE // max(1, itemsize * prod(shape[1:])))


def parts_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of an array in parts."""
    step = at_once(array.shape, array.itemsize)
    return (array[start : start + step] for start in range(0, len(array), step))


def save(array: np.ndarray | Stream, path: Path) -> np.memmap:
    """Write an array as `np.save` does, in C order, and return the file as a memory map.

    OSError if the disk is full. The rows go through `write`, because a write to a memory map of a
    full disk ends the process.
    """
    about = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, about | {"shape": array.shape})
        for part in array.parts if isinstance(array, Stream) else parts_of(array):
            file.write(np.ascontiguousarray(part).data)
    return np.load(path, mmap_mode="r")
