"""FedNTD without a teacher: uniform over the classes that are not true (Lu et al., 2023)."""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the student's temperature."""

    def penalty(step: Step) -> Tensor:
        kept = _distillation.but_true(step)
        target = _distillation.uniform(step, kept, kept.sum(1, keepdim=True))
        return beta * _distillation.divergence(step, target, kept, tau)

    return Method(penalty=penalty, padded=True)
