"""FedNTD: distil what the server knows of the classes that are not true (Lee et al., 2022)."""

from torch import Tensor

from fedgrid import distill
from fedgrid.method import Method, Step


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models.

    The defaults are those of the official configuration; the code's own tau is 3.
    """

    def penalty(step: Step) -> Tensor:
        kept = distill.but_true(step)
        _, logits = step.forward(step.server, step.x)
        return beta * distill.divergence(step, distill.teacher(logits, kept, tau), kept, tau)

    return Method(penalty=penalty)
