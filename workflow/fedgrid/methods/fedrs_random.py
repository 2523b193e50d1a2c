"""The placebo of FedRS: the logits of classes that another client lacks are scaled down.

Whose class counts a client of the round gets is drawn anew in each round, as by FedLC's placebo.
What FedRS gains over this placebo is due to the client's own classes, and not to smaller logits as
such.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import fedlc_random, fedrs

NEUTRAL = {"alpha": 1.0}  # with which it is FedAvg
RANGES = {"alpha": "[0, 1]", "by": ("presence", "count", "fading")}


def method(alpha: float = 0.5, by: str = "presence") -> Method:
    """The hyper-parameters are those of FedRS."""
    restricted: Any = fedrs.method(alpha, by).loss

    def of_another(step: Step) -> Tensor:
        loss: Tensor = restricted(replace(step, counts=step.memory["fedlc_counts"]))
        return loss

    return Method(loss=of_another, send=fedlc_random.method().send, padded=True)
