"""What the code of FedNTD and FedLMD draws, number for number: partitions and cohorts.

Lee et al. (NeurIPS 2022) and Lu et al. (ACM Multimedia 2023) seed numpy's and Python's old
generators with a constant before the data are dealt out, and numpy's with the round's index before
a cohort is drawn. So neither depends on the seed of a run, and all their runs share them.
"""

import random

import numpy as np

from fedgrid.names import UsageError

SEED = 19940817
SMALLEST = 10  # samples of a client of `dirichlet`
RESTARTS = 200_000  # ten times what alpha = 0.05 over 100 clients takes


def dirichlet(
    labels: np.ndarray, classes: int, clients: int, alpha: float, seed: int = SEED
) -> list[np.ndarray]:
    """The samples of each client, of a balanced Dirichlet draw; UsageError if none is found.

    Class by class, shares are drawn for the clients that have not yet their fair share, and all of
    it again until the smallest client has enough.
    """
    rng, fair = np.random.RandomState(seed), len(labels) / clients
    own = [np.flatnonzero(labels == c) for c in range(classes)]
    for _ in range(RESTARTS):
        orders, ends, sizes = [ids.copy() for ids in own], [], np.zeros(clients, np.int64)
        for order in orders:
            rng.shuffle(order)
            shares = rng.dirichlet(np.full(clients, alpha)) * (sizes < fair)
            ends.append((np.cumsum(shares / shares.sum()) * len(order)).astype(np.int64)[:-1])
            sizes += np.diff(ends[-1], prepend=0, append=len(order))
        if sizes.min() >= SMALLEST:
            pieces = map(np.split, orders, ends)
            return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
    raise UsageError(f"no balanced partition of dir{alpha:g} over {clients} clients was found")


def shards(
    labels: np.ndarray, classes: int, clients: int, each: int, seed: int = SEED
) -> list[np.ndarray]:
    """The samples of each client, `each` shards of one class each; it may get a class twice.

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
    """Equal pieces, in order; the first few get one each of what is left over at the end."""
    whole = len(ids) // pieces * pieces
    rows, over = ids[:whole].reshape(pieces, -1), ids[whole:]
    return [np.append(row, over[i : i + 1]) for i, row in enumerate(rows)]


def cohort(population: int, size: int, round: int) -> np.ndarray:
    """The ids of a round's clients in the order drawn; rounds count from 0."""
    return np.random.RandomState(round).choice(population, size, replace=False)
