"""FedAvg with distillation from the server's model over all classes (Lu et al., 2023)."""

import torch
from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models."""

    def penalty(step: Step) -> Tensor:
        every = torch.ones_like(step.logits, dtype=torch.bool)
        _, logits = step.forward(step.server, step.x)
        return beta * _distillation.divergence(
            step, _distillation.teacher(logits, every, tau), every, tau
        )

    return Method(penalty=penalty, padded=True)
