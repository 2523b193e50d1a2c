"""FedAvg with MOON's projection head: the control of MOON (Li et al., CVPR 2021) without its loss.

MOON inserts two layers before the classifier, and compares features behind them. The model with
these layers is another one than FedAvg's. What MOON gains over this method is due to its loss. The
rounds are those of `moon-mu0`, without the local model that MOON keeps of each client.
"""

from functools import partial

from fedgrid.method import Method
from fedgrid.methods.moon import projected

NEUTRAL = {"projection": 0}  # with which it is FedAvg
RANGES = {"projection": "[0, inf)"}


def method(projection: int = 256) -> Method:
    """projection: the width of the two-layer head; 0 leaves the model unchanged."""
    return Method(architecture=partial(projected, width=projection)) if projection else Method()
