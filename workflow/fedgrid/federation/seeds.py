"""Random numbers seeded by names, so that the order of jobs, rounds or clients does not matter.

The same names give the same numbers: for a seed, all methods share partition, cohorts, batches and
initial weights, and a resumed run needs no saved generator.
"""

from hashlib import sha256
from typing import Any

import numpy as np


def seed(*names: Any) -> int:
    """Return a 63-bit seed from the names, e.g. `seed("batches", "digits", 0, round, client)`."""
    return int.from_bytes(sha256("/".join(map(str, names)).encode()).digest()[:8]) >> 1


def generator(*names: Any) -> np.random.Generator:
    """Return numpy's generator, seeded by the names."""
    return np.random.default_rng(seed(*names))
