"""FedNTD: distil the server's knowledge of the classes that are not true (Lee et al., 2022)."""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models.

    The defaults are those of the official configuration; the code's own default for tau is 3.
    """

    def penalty(step: Step) -> Tensor:
        kept = _distillation.but_true(step)
        _, logits = step.forward(step.server, step.x)
        return beta * _distillation.divergence(
            step, _distillation.teacher(logits, kept, tau), kept, tau
        )

    return Method(penalty=penalty, padded=True)
