"""A partition: which client has which samples; and its file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.federation import array_files
from fedgrid.runtime import files


@dataclass(frozen=True)
class Partition:
    """The samples of every client, and those that no client trains on (`holdout.py`)."""

    members: list[np.ndarray]  # training samples of each client, ids, ascending
    counts: np.ndarray  # (N, K) number of training samples by client and class
    tests: list[np.ndarray] = field(default_factory=list)  # each client's own test samples, or none
    validation: list[np.ndarray] = field(default_factory=list)  # each client's, or none
    # samples of the dataset's test set that are the validation set, ids
    central: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    tests_from_test_set: bool = False  # `tests` are ids of the dataset's test set, not of training
    # training samples that the server has, and no client, ids, ascending
    server: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def of_members(members: list[np.ndarray], labels: np.ndarray, classes: int) -> Partition:
    """Return the partition that gives every client these samples."""
    return Partition([np.sort(ids) for ids in members], count_classes(members, labels, classes))


def of_owners(owners: np.ndarray, clients: int) -> list[np.ndarray]:
    """Return the samples of each client, ids, ascending; `owners` (n,) has each sample's client."""
    ends = np.bincount(owners, minlength=clients).cumsum()[:-1]
    return np.split(np.argsort(owners, kind="stable"), ends)


def count_classes(members: list[np.ndarray], labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the number of samples by client and class, (N, K), in one pass over all samples."""
    owners = np.repeat(np.arange(len(members)), [*map(len, members)])
    cells = owners * classes + labels[np.concatenate(members)]
    return np.bincount(cells, minlength=len(members) * classes).reshape(-1, classes)


def fits(made: Partition, labels: np.ndarray, classes: int, tests: int = 0) -> bool:
    """Whether every sample is in one place of one client, and the counts fit the members.

    `tests` is the size of the dataset's test set, of which each sample is one client's own test
    sample with `tests_from_test_set`; then none is left for validation.
    """
    own = [] if made.tests_from_test_set else made.tests
    if not are_all([*made.members, *own, *made.validation, made.server], len(labels)):
        return False
    if made.tests_from_test_set and (len(made.central) or not are_all(made.tests, tests)):
        return False
    return np.array_equal(made.counts, count_classes(made.members, labels, classes))


def are_all(lists: list[np.ndarray], count: int) -> bool:
    """Whether the lists hold each id below `count` once."""
    ids = np.concatenate([np.zeros(0, np.int64), *lists])
    return np.array_equal(np.sort(ids), np.arange(count))


def write_partition(made: Partition, path: Path) -> None:
    """Write an .npz: client k has indices[offsets[k]:offsets[k + 1]]; counts is (N, K).

    Samples that are kept out of training are in arrays of their own: `test_indices` and
    `test_offsets`, `validation_indices` and `validation_offsets`, `central` and `server`. With an
    array `tests_from_test_set`, the test indices are ids of the dataset's test set.
    """
    arrays: dict[str, Any] = joined("", made.members) | {"counts": made.counts}
    for prefix, lists in (("test_", made.tests), ("validation_", made.validation)):
        arrays |= joined(prefix, lists) if lists else {}
    for name in ("central", "server"):
        arrays |= {name: ids} if len(ids := getattr(made, name)) else {}
    arrays |= {"tests_from_test_set": np.ones(1, np.int64)} if made.tests_from_test_set else {}
    with files.replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def joined(prefix: str, lists: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays that hold one list of ids per client."""
    offsets = np.cumsum([0, *map(len, lists)])
    return {f"{prefix}indices": np.concatenate(lists), f"{prefix}offsets": offsets}


def read_partition(path: Path) -> Partition:
    """Return the partition in a file of `write_partition`; UsageError if it is damaged."""
    with files.whole(str(path)):
        names = array_files.array_names(path)
        found = array_files.read_arrays(path, *names)
        members, counts = taken_apart("", found), whole_numbers("counts", found, 2)
        tests, validation = (
            taken_apart(prefix, found) if f"{prefix}indices" in names else []
            for prefix in ("test_", "validation_")
        )
        central, server = (
            whole_numbers(name, found, 1) if name in names else np.zeros(0, np.int64)
            for name in ("central", "server")
        )
        if any(lists and len(lists) != len(members) for lists in (tests, validation)):
            raise ValueError("its lists are over different numbers of clients")
        marked = "tests_from_test_set" in names
        return Partition(members, counts, tests, validation, central, marked, server)


def taken_apart(prefix: str, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the lists of `joined`; ValueError if the offsets are not in order."""
    indices, offsets = (
        whole_numbers(f"{prefix}{name}", arrays, 1) for name in ("indices", "offsets")
    )
    lists = np.split(indices, offsets[1:-1])
    if [0, *np.cumsum([*map(len, lists)])] != offsets.tolist():
        raise ValueError("the offsets are not in order")
    return lists


def whole_numbers(name: str, arrays: dict[str, np.ndarray], axes: int) -> np.ndarray:
    """Return one of the arrays; ValueError unless it has int64 and this number of axes."""
    array = arrays[name]
    if (str(array.dtype), array.ndim) != ("int64", axes):
        raise ValueError(f"{name} is {array.dtype} with {array.ndim} axes")
    return array
