"""Private-shared: the blocks below the split are private (`_partial.py`): aB of Li et al.

With two blocks this is LG-FedAvg (Liang et al., arXiv:2001.01523, 2020).
"""

from fedgrid.method import Method
from fedgrid.methods import _partial

PRIVATE = ("private.",)
SPLITS = True  # the model must name its blocks
MODELS_KEPT = 1  # models per client, at most


def method(split: int | None = None, forgets: bool = False) -> Method:
    """split: blocks below the split, between encoder and classifier if None; forgets: placebo."""
    return _partial.privatise("aB", split, forgets)
