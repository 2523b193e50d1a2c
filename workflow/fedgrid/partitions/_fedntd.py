"""The partitions of the code of FedNTD and FedLMD, number for number.

Lee et al. (NeurIPS 2022) and Lu et al. (ACM Multimedia 2023) seed numpy's and Python's legacy
generators with a constant before they draw the partition. So a partition does not depend on the
seed of a run, and all runs share it. (Cohorts: `federation/schedule.py`.)
"""

import random

import numpy as np

from fedgrid.federation.members import of_owners
from fedgrid.partitions._restarts import SMALLEST, Draws
from fedgrid.runtime.names import UsageError

SEED = 19940817
FIXED = {"fedntd": SEED}  # recipes that do not depend on the run's seed
RESTARTS = 200_000  # ten times what alpha = 0.05 over 100 clients takes


def dirichlet(
    labels: np.ndarray, classes: int, clients: int, alpha: float, seed: int = SEED
) -> list[np.ndarray]:
    """Return the samples of each client by a balanced Dirichlet draw; UsageError if none is found.

    Class by class, shares are drawn for the clients that have less than the mean number of samples.
    The whole draw is repeated until the smallest client has enough samples, or until no draw can be
    expected to succeed (`_restarts.py`).
    """
    rng, fair = np.random.RandomState(seed), len(labels) / clients
    own = [np.flatnonzero(labels == c) for c in range(classes)]
    draws = Draws(alpha, clients, RESTARTS)
    while draws.go_on():
        orders, ends, sizes = [ids.copy() for ids in own], [], np.zeros(clients, np.int64)
        for order in orders:
            rng.shuffle(order)
            shares = rng.dirichlet(np.full(clients, alpha)) * (sizes < fair)
            ends.append((np.cumsum(shares / shares.sum()) * len(order)).astype(np.int64)[:-1])
            sizes += np.diff(ends[-1], prepend=0, append=len(order))
        if not (small := (sizes < SMALLEST).sum(keepdims=True)).any():
            return of_owners(owners_of(orders, ends, len(labels)), clients)
        draws.add(small)
    raise draws.refusal()


def owners_of(orders: list[np.ndarray], ends: list[np.ndarray], samples: int) -> np.ndarray:
    """Return the client of each sample, (samples,): class by class, clients take parts in order."""
    owners = np.empty(samples, np.int64)
    for order, end in zip(orders, ends, strict=True):
        sizes = np.diff(end, prepend=0, append=len(order))
        owners[order] = np.repeat(np.arange(len(sizes)), sizes)
    return owners


def shards(
    labels: np.ndarray, classes: int, clients: int, each: int, seed: int = SEED
) -> list[np.ndarray]:
    """Return the samples of each client: `each` shards of one class; a class may occur twice.

    For each shard, numpy shuffles the numbers of all shards of its class that are left, as in the
    published code. So the time grows with the square of the clients: with two shards each and ten
    classes, about 1 second for 16,000 clients.

    UsageError unless the shards can be dealt out evenly.
    """
    per_class, rest = divmod(each * clients, classes)
    if rest or np.bincount(labels, minlength=classes).min() < per_class:
        raise UsageError(
            f"{classes} classes cannot be cut into {each * clients} shards of one class, "
            f"{each} for each of {clients} clients"
        )
    dealt, rng = random.Random(seed), np.random.RandomState(seed)
    left = [cut(np.flatnonzero(labels == c), per_class) for c in range(classes)]
    wanted = [*range(classes)] * per_class
    dealt.shuffle(wanted)
    return [
        np.concatenate([left[c].pop(rng.choice(len(left[c]), replace=False)) for c in row])
        for row in np.reshape(wanted, (clients, each))
    ]


def cut(ids: np.ndarray, pieces: int) -> list[np.ndarray]:
    """Return equal pieces in order; the first pieces get one leftover sample each."""
    whole = len(ids) // pieces * pieces
    rows, over = ids[:whole].reshape(pieces, -1), ids[whole:]
    return [np.append(row, over[i : i + 1]) for i, row in enumerate(rows)]
