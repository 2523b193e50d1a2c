"""The placebo of FedRS: the logits of classes that another client lacks are scaled down.

Whose class counts a client of the round gets is drawn anew in each round. What FedRS gains over
this placebo is due to the client's own classes, and not to smaller logits as such.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Step
from fedgrid.methods import fedrs
from fedgrid.methods.contribution import of_another

NEUTRAL = {"alpha": 1.0}  # with which it is FedAvg
RANGES = {"alpha": "[0, 1]", "by": ("presence", "count", "fading")}


def method(alpha: float = 0.5, by: str = "presence") -> Method:
    """The hyper-parameters are those of FedRS."""
    restricted: Any = fedrs.method(alpha, by).loss

    def loss_of_another(step: Step) -> Tensor:
        loss: Tensor = restricted(replace(step, counts=step.memory["fedrs_counts"]))
        return loss

    return Method(loss=loss_of_another, send=send_counts, padded=True)


def send_counts(cohort: Cohort) -> list[Memory]:
    """Return for each client the class counts (K,) of another one."""
    whose = of_another(cohort.counts, cohort.noise)
    return [{"fedrs_counts": counts} for counts in cohort.counts[whose]]
