"""The placebo of FedLC: logits are calibrated by a client's class counts, but of random classes.

The counts are permuted among the classes that the client holds, anew for each client in each round.
The margins are as uneven, and a class that the client lacks has the margin of FedLC. What FedLC
gains over this placebo is due to the counts of the right classes, and not to uneven margins as
such, nor to which classes a client lacks. A client of one class has the counts of FedLC.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods._held_classes import COUNTS, send_permuted
from fedgrid.methods.fedlc import calibrated

NEUTRAL = {"tau": 0.0}  # with which it is FedAvg
RANGES = {"tau": "[0, inf)"}


def method(tau: float = 1.0, others: bool = False) -> Method:
    """tau weighs the calibration; 0 is FedAvg if `others` is False."""

    def loss(step: Step) -> Tensor:
        return calibrated(step, step.memory[COUNTS], tau, others)

    return Method(loss=loss, send=send_permuted, padded=True)
