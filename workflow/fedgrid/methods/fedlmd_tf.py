"""FedLMD-Tf: FedLMD without a teacher (Lu et al., 2023, equation 8).

The target is 1 / (K - |M_k|) for each minority class but the sample's own, so it sums to less than
1 for a sample of a minority class; `exact` makes it sum to 1. (The published code divides by
K - |batch| - 1, which is negative for ten classes, and cannot be called.) As in FedLMD, the
divergence is multiplied by tau^2.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods.fedlmd import teacher_free

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0, exact: bool = False) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the student's temperature."""

    def penalty(step: Step) -> Tensor:
        return beta * teacher_free(step, tau, exact)

    return Method(penalty=penalty, padded=True)
