"""A few whole classes for each client, in equal parts: with classes5 every client has five.

The partitions FeCifar10 (classes5) and FeCifar100 (classes20) of Li et al. (arXiv 2107.11954). The
list of classes is put into a random order again and again, the orders are joined, and each client
takes the next entries. So a class is held by as many clients as any other one, or by one more. The
samples of a class are shuffled and cut into equal parts, one for each of its clients. CIFAR-10 over
100 clients gives each of them 100 images of each of five classes.
"""

from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members, of_owners
from fedgrid.runtime.names import UsageError

PATTERN = r"classes([1-9][0-9]{0,8})"
EXAMPLE = "classes5"
LABEL = "{} classes"


def draw(
    labels: np.ndarray, classes: int, clients: int, recipe: str, number: str, *names: Any
) -> Partition:
    """Deal out all samples, `number` classes per client; `names` seed the draw, and no recipe does.

    UsageError for more classes than there are, for a class without a client, and for a class with
    fewer samples than clients.
    """
    each = int(number)
    if each > classes or each * clients < classes:
        raise UsageError(
            f"classes{number} over {clients} clients and {classes} classes is no partition: a "
            "client needs that many different classes, and a class needs a client"
        )
    rng = seeds.generator("classes", clients, number, *names)
    held = hold_classes(classes, clients, each, rng)
    owners = np.empty(len(labels), np.int64)
    for c in range(classes):
        holders = np.flatnonzero((held == c).any(1))
        ids = rng.permutation(np.flatnonzero(labels == c))
        if len(ids) < len(holders):
            raise UsageError(
                f"classes{number} gives class {c} to {len(holders)} clients, "
                f"and it has {len(ids)} samples: lower the protocol's `clients`"
            )
        owners[ids] = np.repeat(holders, [*map(len, np.array_split(ids, len(holders)))])
    return of_members(of_owners(owners, clients), labels, classes)


def hold_classes(classes: int, clients: int, each: int, rng: np.random.Generator) -> np.ndarray:
    """Return the classes of each client (clients, each), all different.

    If a client is between two orders, the classes that it has are put behind in the second one.
    """
    orders = [np.empty(0, np.int64)]
    for dealt in range(0, clients * each, classes):
        order, last = rng.permutation(classes), orders[-1]
        has = np.isin(order, last[len(last) - dealt % each :])  # of the client that has begun
        orders.append(np.concatenate([order[~has], order[has]]))
    return np.concatenate(orders)[: clients * each].reshape(clients, each)
