"""A learning rate of the server: its step is `lr` times FedAvg's (Reddi et al., ICLR 2021).

It is FedOpt with SGD on the server: w <- w - lr sum_k a_k (w - w_k). It shows whether a longer or
shorter step of the server alone gains what another method gains, such as FedExP, whose step is at
least as long as FedAvg's. BatchNorm's running statistics are averaged as by FedAvg.
"""

from torch import Tensor

from fedgrid.method import Cohort, Method

NEUTRAL = {"lr": 1.0}  # with which it is FedAvg
RANGES = {"lr": "(0, inf)"}


def method(lr: float = 1.0) -> Method:
    """lr above 0 is the learning rate of the server; 1 is FedAvg."""

    def longer(cohort: Cohort, weights: Tensor) -> Tensor:
        return lr * weights

    return Method(scale=longer)
