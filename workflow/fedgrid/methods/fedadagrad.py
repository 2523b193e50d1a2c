"""FedAdagrad: Adagrad on the server (Reddi et al., ICLR 2021; `_adaptive.py` has the equations).

v <- v + D^2. The paper's experiments have no mean: beta1 = 0.
"""

import torch

from fedgrid.method import Method
from fedgrid.methods._adaptive import adapt

RANGES = {"lr": "(0, inf)", "beta1": "[0, 1)", "tau": "(0, inf)"}


def method(lr: float = 0.1, beta1: float = 0.0, tau: float = 0.001) -> Method:
    """lr: the server's learning rate; beta1 and tau as in the equations."""
    return adapt("fedadagrad", torch.add, lr, beta1, tau, "paper")
