"""One odd client: with odd2 the last client has all images of the last two classes.

Figure 1 of the paper of client contribution normalisation (arXiv 2411.06352) has three clients, two
with eight classes each and one with the other two. All other clients share the images of the other
classes equally: their sizes differ by one image at most, and so do their images of a class. With K
classes of m images and N clients, the odd client of odd2 has 2 m images and each other client
(K - 2) m / (N - 1): for CINIC-10 and three clients 18,000, and 36,000 each.
"""

from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members
from fedgrid.runtime.names import UsageError

PATTERN = r"odd([1-9][0-9]{0,8})"
EXAMPLE = "odd2"
LABEL = "{} odd classes"


def draw(
    labels: np.ndarray, classes: int, clients: int, recipe: str, number: str, *names: Any
) -> Partition:
    """Deal out all samples; `number` classes are the last client's, and no recipe changes it.

    UsageError if no class is left for the other clients, or there is no other client.
    """
    common = classes - int(number)
    if common < 1 or clients < 2:
        raise UsageError(
            f"odd{number} over {clients} clients and {classes} classes is no partition: it needs "
            f"two clients or more, and more than {number} classes"
        )
    order = seeds.generator("odd", clients, number, *names).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # at random within a class
    odd = labels[order] >= common
    shared = order[~odd]
    members = [shared[client :: clients - 1] for client in range(clients - 1)]
    return of_members([*members, order[odd]], labels, classes)
