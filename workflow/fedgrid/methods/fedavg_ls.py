"""FedAvg with label smoothing (Szegedy et al., 2016; Lu et al., 2023, table 2)."""

import torch.nn.functional as F
from torch import Tensor

from fedgrid.method import Method, Step

NEUTRAL = {"mu": 0.0}  # with which it is FedAvg
RANGES = {"mu": "[0, 1]"}


def method(mu: float = 0.1) -> Method:
    """mu in [0, 1] is the probability spread over all classes; 0 is FedAvg."""

    def smoothed(step: Step) -> Tensor:
        everywhere = -step.mean(F.log_softmax(step.logits, dim=1).mean(1))
        return (1 - mu) * step.cross_entropy() + mu * everywhere

    return Method(loss=smoothed, padded=True)
