"""Shared-private: the blocks above the split are private (`_partial.py`): Ab of Li et al.

With a split of 0 all blocks are private (ab), and every client trains alone. With the last block
only this is FedPer (Arivazhagan et al., arXiv:1912.00818, 2019).
"""

from fedgrid.method import Method
from fedgrid.methods import _partial

PRIVATE = ("private.",)
SPLITS = True  # the model must name its blocks
MODELS_KEPT = 1  # models per client, at most


def method(split: int | None = None, forgets: bool = False) -> Method:
    """split: blocks below the split, between encoder and classifier if None; forgets: placebo."""
    return _partial.privatise("Ab", split, forgets)
