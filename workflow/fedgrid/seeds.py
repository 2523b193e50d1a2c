"""Random numbers named by what they are for, so that no order of jobs, rounds or clients matters.

The same names give the same numbers: partition, cohort, batches and initial weights are those of
the seed for every method, and a resumed run needs no saved generator.
"""

from hashlib import sha256

import numpy as np


def seed(*names) -> int:
    """A 63-bit seed from the names, e.g. `seed("batches", "digits", 0, round, client)`."""
    return int.from_bytes(sha256("/".join(map(str, names)).encode()).digest()[:8]) >> 1


def generator(*names) -> np.random.Generator:
    """numpy's generator seeded by the names."""
    return np.random.default_rng(seed(*names))
