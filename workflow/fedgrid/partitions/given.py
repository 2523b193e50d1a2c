"""Given clients: each client has the samples that the dataset says are its own.

The clients are numbered in the order of their names. In a dataset with writers, each is a client.
"""

from typing import Any

import numpy as np

from fedgrid.federation.members import Partition, of_members, of_owners
from fedgrid.runtime.names import UsageError

PATTERN = "given"
EXAMPLE = "given"
LABEL = "given"
WRITERS = True  # `draw` takes the client of each sample


def draw(
    labels: np.ndarray,
    classes: int,
    clients: int,
    recipe: str,
    number: str,
    *names: Any,
    writers: np.ndarray,
) -> Partition:
    """Return each client's samples; there is nothing to draw.

    UsageError if the protocol has another number of clients than the dataset.
    """
    there, which = np.unique(writers, return_inverse=True)
    if clients != len(there):
        raise UsageError(
            f"the partition given has {len(there)} clients, and the protocol {clients}: set its "
            f"`clients` to {len(there)}, or to `writers`"
        )
    return of_members(of_owners(which, clients), labels, classes)
