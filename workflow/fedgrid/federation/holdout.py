"""Keep samples out of training: for every client's own test, and for validation.

A protocol's `client_test` is the share of each client's samples that becomes the client's own test
set. `validation` is the share of the validation set: of each client's remaining samples with
`validation_from: clients`, or of the dataset's test set with `validation_from: test`. These samples
are drawn once, with the partition. A sample is in one set only, because each set is a part of the
same random order. Shares are rounded to whole samples.
"""

import math
from dataclasses import replace

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members
from fedgrid.runtime.names import UsageError


def hold_out(made: Partition, labels: np.ndarray, tests: int, protocol: dict, *names) -> Partition:
    """Return the partition with the protocol's samples kept out; `names` seed the draws.

    `tests` is the size of the dataset's test set. UsageError if a set would be empty.
    """
    share, of = protocol["validation"], protocol["validation_from"]
    from_clients = share if of == "clients" else 0.0
    if protocol["client_test"] or from_clients:
        made = split_clients(made, labels, protocol["client_test"], from_clients, *names)
    if share and of == "test":
        made = replace(made, central=draw_central(tests, share, *names))
    return made


def split_clients(
    made: Partition, labels: np.ndarray, test: float, validation: float, *names
) -> Partition:
    """Return the partition with a part of each client's samples kept out."""
    parts = [split_client(ids, test, validation, *names, k) for k, ids in enumerate(made.members)]
    tests, checks, members = map(list, zip(*parts, strict=True))
    asked = {"client_test": (test, tests), "validation": (validation, checks)}
    for field, (share, lists) in asked.items():
        if share and not any(map(len, lists)):
            raise UsageError(f"{field} {share:g} leaves no client a sample for it: raise the share")
    if not any(map(len, members)):
        raise UsageError(
            f"client_test {test:g} and validation {validation:g} leave no client a sample to train "
            "on: lower these shares"
        )
    dealt = of_members(members, labels, made.counts.shape[1])
    return replace(dealt, tests=tests if test else [], validation=checks if validation else [])


def split_client(ids: np.ndarray, test: float, validation: float, *names) -> tuple:
    """Return a client's samples for test, validation and training, each ascending."""
    order = seeds.generator("held out", *names).permutation(ids)
    first = rounded(test * len(ids))
    second = first + rounded(validation * (len(ids) - first))
    return tuple(map(np.sort, np.split(order, [first, second])))


def draw_central(tests: int, share: float, *names) -> np.ndarray:
    """Return the ids of test samples that become the validation set, ascending."""
    size = rounded(share * tests)
    if not 0 < size < tests:
        left = "validation" if size == 0 else "testing"
        raise UsageError(f"validation {share:g} of {tests} test samples leaves none for {left}")
    return np.sort(seeds.generator("validation", *names).permutation(tests)[:size])


def rounded(value: float) -> int:
    """Return the nearest whole number; a half is rounded up."""
    return math.floor(value + 0.5)
