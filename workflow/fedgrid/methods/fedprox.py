"""FedProx: a proximal term holds local models near the server's (Li et al., MLSys 2020)."""

from typing import Any

from torch import Tensor

from fedgrid.method import Method, Step

NEUTRAL = {"mu": 0.0}  # with which it is FedAvg
RANGES = {"mu": "[0, inf)"}


def method(mu: float = 0.01) -> Method:
    """mu >= 0 weighs mu/2 ||w - w_server||^2 over all parameters; 0 is FedAvg."""

    def proximity(step: Step) -> Tensor:
        squares = ((w - step.server[name]).square() for name, w in step.params.items())
        distance: Any = sum(square.sum() for square in squares)
        return mu / 2 * distance

    return Method(penalty=proximity, padded=True)
