"""Pull: stay near the server's model, but only in the classifier.

This file is an example: change it into your method, and give it the name of your method.
"""

from torch import Tensor

from fedgrid.method import Method, Step

NEUTRAL = {"mu": 0.0}  # with which it is FedAvg
RANGES = {"mu": "[0, inf)"}


def method(mu: float = 0.1) -> Method:
    """Return FedAvg with a penalty; mu weighs the squared distance."""

    def near(step: Step) -> Tensor:
        return mu * (step.params["head.weight"] - step.server["head.weight"]).square().sum()

    return Method(penalty=near)
