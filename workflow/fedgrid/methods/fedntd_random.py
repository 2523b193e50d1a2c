"""The placebo of FedNTD: one class is masked for each sample, but another one than its own.

FedNTD distils the classes that are not true. Here a random other class is left out of teacher and
student instead, the same one for all samples of a class, drawn anew for each client in each round.
What FedNTD gains over this placebo is due to leaving out the true class.
"""

import torch.nn.functional as F
from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation
from fedgrid.methods._random_classes import ORDER, send_orders

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models."""

    def penalty(step: Step) -> Tensor:
        kept = ~F.one_hot(another_class(step), step.logits.shape[1]).bool()
        _, logits = step.forward(step.server, step.x)
        target = _distillation.teacher(logits, kept, tau)
        return beta * _distillation.divergence(step, target, kept, tau)

    return Method(penalty=penalty, padded=True, send=send_orders)


def another_class(step: Step) -> Tensor:
    """Return for each sample (B,) the class that follows its own in the client's random order."""
    order = step.memory[ORDER]
    following = (order[:, None] + 1) % len(order) == order
    return following.to(order).argmax(1)[step.y]
