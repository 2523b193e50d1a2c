"""Shared-private-shared: a private copy of the blocks below the split (`_partial.py`): AaB.

Above the split, the shared blocks get the mean of both outputs. The server's model is the shared
blocks alone.
"""

from fedgrid.method import Method
from fedgrid.methods import _partial

PRIVATE = ("private.",)
SPLITS = True  # the model must name its blocks
MODELS_KEPT = 1  # models per client, at most


def method(split: int | None = None, forgets: bool = False) -> Method:
    """split: blocks below the split, between encoder and classifier if None; forgets: placebo."""
    return _partial.privatise("AaB", split, forgets)
