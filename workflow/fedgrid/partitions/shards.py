"""Shards of one class: shards2 gives every client two (McMahan et al., AISTATS 2017)."""

from typing import Any

import numpy as np

from fedgrid.federation import seeds
from fedgrid.federation.members import Partition, of_members
from fedgrid.partitions import _fedntd
from fedgrid.partitions._fedntd import FIXED

PATTERN = r"shards((?=0*[1-9])[0-9]{1,9})"
EXAMPLE = "shards2"
LABEL = "s={}"


def draw(
    labels: np.ndarray, classes: int, clients: int, recipe: str, number: str, *names: Any
) -> Partition:
    """Deal out all samples, `number` shards per client; the recipe `fedntd` fixes the seed.

    UsageError if the shards cannot be dealt out evenly.
    """
    each = float(number)
    seed = FIXED.get(recipe, seeds.seed("shards", clients, each, *names) % 2**32)
    members = _fedntd.shards(labels, classes, clients, int(each), seed)
    return of_members(members, labels, classes)
