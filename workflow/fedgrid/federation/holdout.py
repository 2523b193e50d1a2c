"""Keep samples out of training: for every client's own test, and for validation.

A protocol's `client_test` is the share of each client's samples that becomes the client's own test
set. `validation` is the share of the validation set: of each client's remaining samples with
`validation_from: clients`, or of the dataset's test set with `validation_from: test`. These samples
are drawn once, with the partition. A sample is in one set only, because each set is a part of the
same random order. Shares are rounded to whole samples.

`server_data` is the share of all training samples that the server has, and no client. It is drawn
first, uniformly over clients and classes; methods read these samples without their labels.

With `client_test_from: writers`, no training sample is taken for tests: a client's own test set is
the part of the dataset's test set by the client's writers. So the clients share the whole test set
among them, as those of Li et al. (arXiv 2107.11954) do for Shakespeare and FEMNIST.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members, of_owners
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Protocol


def give_tests(
    made: Partition, train_writers: np.ndarray | None, test_writers: np.ndarray | None
) -> Partition:
    """Return the partition in which a client tests on the test samples of its writers.

    UsageError unless the writers are known, no two clients share one, and each has a client.
    """
    if train_writers is None or test_writers is None:
        raise UsageError(
            "`client_test_from: writers` needs the writers of training and of test samples, and "
            "the dataset has none: add `clients_test` to the .npz of your own data, or choose a "
            "dataset with `TEST_WRITERS = True` in its file"
        )
    writers, clients = writers_of_clients(made, train_writers)
    place = np.searchsorted(writers, test_writers)
    absent = ~np.isin(test_writers, writers)
    if absent.any():
        raise UsageError(
            f"the writer {test_writers[absent][0]} of a test sample has no training sample, and so "
            "no client: `client_test_from: writers` needs a client for every test sample"
        )
    tests = of_owners(clients[place], len(made.members))
    return replace(made, tests=tests, tests_from_test_set=True)


def writers_of_clients(made: Partition, train_writers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all writers, ascending, and the client of each; UsageError for a shared writer."""
    owner = np.repeat(np.arange(len(made.members)), [*map(len, made.members)])
    pairs = np.stack([train_writers[np.concatenate(made.members)], owner], axis=1)
    writers, clients = np.unique(pairs, axis=0).T
    shared = writers[1:][writers[1:] == writers[:-1]]
    if len(shared):
        raise UsageError(
            "`client_test_from: writers` needs clients that share no writer, and several clients "
            f"have samples of the writer {shared[0]}: choose the partition writers"
        )
    return writers, clients


def hold_out(
    made: Partition, labels: np.ndarray, tests: int, protocol: Protocol, *names: Any
) -> Partition:
    """Return the partition with the protocol's samples kept out; `names` seed the draws.

    `tests` is the size of the dataset's test set. UsageError if a set would be empty.
    """
    share, of = protocol["validation"], protocol["validation_from"]
    from_clients = share if of == "clients" else 0.0
    if share_of_server := protocol.get("server_data"):
        made = give_server(made, labels, share_of_server, *names)
    if protocol["client_test"] or from_clients:
        made = split_clients(made, labels, protocol["client_test"], from_clients, *names)
    if share and of == "test":
        made = replace(made, central=draw_central(tests, share, *names))
    return made


def give_server(made: Partition, labels: np.ndarray, share: float, *names: Any) -> Partition:
    """Return the partition in which a share of all clients' samples belongs to the server."""
    ids = np.sort(np.concatenate(made.members))
    size = rounded(share * len(ids))
    if not 0 < size < len(ids):
        left = "the server" if size == 0 else "clients"
        raise UsageError(
            f"server_data {share:g} of {len(ids)} training samples leaves none for {left}: choose "
            "another share"
        )
    server = np.sort(seeds.generator("server", *names).permutation(ids)[:size])
    members = [np.setdiff1d(own, server, assume_unique=True) for own in made.members]
    dealt = of_members(members, labels, made.counts.shape[1])
    return replace(made, members=dealt.members, counts=dealt.counts, server=server)


def split_clients(
    made: Partition, labels: np.ndarray, test: float, validation: float, *names: Any
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
    made = replace(made, members=dealt.members, counts=dealt.counts)
    made = replace(made, tests=tests) if test else made
    return replace(made, validation=checks) if validation else made


def split_client(ids: np.ndarray, test: float, validation: float, *names: Any) -> tuple[Any, ...]:
    """Return a client's samples for test, validation and training, each ascending."""
    order = seeds.generator("held out", *names).permutation(ids)
    first = rounded(test * len(ids))
    second = first + rounded(validation * (len(ids) - first))
    return tuple(map(np.sort, np.split(order, [first, second])))


def draw_central(tests: int, share: float, *names: Any) -> np.ndarray:
    """Return the ids of test samples that become the validation set, ascending."""
    size = rounded(share * tests)
    if not 0 < size < tests:
        left = "validation" if size == 0 else "testing"
        raise UsageError(
            f"validation {share:g} of {tests} test samples leaves none for {left}: choose another "
            "share"
        )
    return np.sort(seeds.generator("validation", *names).permutation(tests)[:size])


def rounded(value: float) -> int:
    """Return the nearest whole number; a half is rounded up."""
    return math.floor(value + 0.5)
