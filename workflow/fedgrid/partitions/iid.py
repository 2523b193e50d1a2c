"""Independent and identically distributed: all samples are shuffled and dealt out equally.

The IID partition of McMahan et al. (AISTATS 2017). Sizes differ by one sample at most.
"""

from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members
from fedgrid.runtime.names import UsageError

PATTERN = "iid"
EXAMPLE = "iid"
LABEL = "iid"


def draw(
    labels: np.ndarray, classes: int, clients: int, recipe: str, number: str, *names: Any
) -> Partition:
    """Deal out all samples; `names` seed the draw, and no recipe changes it.

    UsageError if there are more clients than samples.
    """
    if clients > len(labels):
        raise UsageError(
            f"{clients} clients are more than the {len(labels)} training samples: lower the "
            "protocol's `clients`"
        )
    order = seeds.generator("iid", clients, *names).permutation(len(labels))
    return of_members(np.array_split(order, clients), labels, classes)
