"""A partition: which client has which samples; and its file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedgrid.runtime import files


@dataclass(frozen=True)
class Partition:
    """The samples of every client."""

    members: list[np.ndarray]  # sample ids of each client, ascending
    counts: np.ndarray  # (N, K) number of samples by client and class


def of_members(members: list[np.ndarray], labels: np.ndarray, classes: int) -> Partition:
    """Return the partition that gives every client these samples."""
    counts = np.stack([np.bincount(labels[ids], minlength=classes) for ids in members])
    return Partition([np.sort(ids) for ids in members], counts)


def fits(made: Partition, labels: np.ndarray, classes: int) -> bool:
    """Whether every sample has exactly one client, and the counts fit the members."""
    dealt, right = np.concatenate([*made.members, []]), (len(made.members), classes)
    if made.counts.shape != right or not np.array_equal(np.sort(dealt), np.arange(len(labels))):
        return False
    pairs = zip(made.members, made.counts, strict=True)
    return all(np.array_equal(np.bincount(labels[m], minlength=classes), n) for m, n in pairs)


def write_partition(made: Partition, path: Path) -> None:
    """Write an .npz: client k has indices[offsets[k]:offsets[k + 1]]; counts is (N, K)."""
    offsets = np.cumsum([0, *map(len, made.members)])
    with files.replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, indices=np.concatenate(made.members), offsets=offsets, counts=made.counts)


def read_partition(path: Path) -> Partition:
    """Return the partition in a file of `write_partition`; UsageError if it is damaged."""
    with files.whole(str(path)):
        names = ("indices", "offsets", "counts")
        indices, offsets, counts = files.read_arrays(path, *names).values()
        found = [(str(array.dtype), array.ndim) for array in (indices, offsets, counts)]
        if found != [("int64", 1), ("int64", 1), ("int64", 2)]:
            raise ValueError(f"{', '.join(names)} are {found}")
        members = np.split(indices, offsets[1:-1])
        if [0, *np.cumsum([*map(len, members)])] != offsets.tolist():
            raise ValueError("the offsets are not in order")
        return Partition(members, counts)
