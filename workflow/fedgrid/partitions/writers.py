"""Whole writers: the clients share the writers of the images, and no two have one in common.

The partition of real writers of Li et al. (ICDE 2022): the writers are put into a random order and
cut into groups of nearly equal numbers of writers, one group per client. A client has all images of
its writers. With as many clients as writers, or `clients: writers`, a client is one writer; fewer
clients need `merge: true`.
"""

from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members, of_owners

PATTERN = "writers"
EXAMPLE = "writers"
LABEL = "writers"
WRITERS = True  # `draw` takes the writer of each sample
MERGES = True


def draw(
    labels: np.ndarray,
    classes: int,
    clients: int,
    recipe: str,
    number: str,
    *names: Any,
    writers: np.ndarray,
) -> Partition:
    """Deal out all writers; `names` seed the draw, and no recipe changes it."""
    there, which = np.unique(writers, return_inverse=True)
    order = seeds.generator("writers", clients, *names).permutation(len(there))
    client = np.empty(len(there), np.int64)  # of each writer
    client[order] = np.repeat(np.arange(clients), [*map(len, np.array_split(order, clients))])
    return of_members(of_owners(client[which], clients), labels, classes)
