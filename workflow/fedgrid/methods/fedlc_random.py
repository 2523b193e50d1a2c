"""The placebo of FedLC: a client's logits are calibrated by the class counts of another client.

Whose counts a client of the round gets is drawn anew in each round. What FedLC gains over this
placebo is due to the client's own counts, and not to uneven margins as such.
"""

from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Step
from fedgrid.methods.contribution import of_another
from fedgrid.methods.fedlc import calibrated, check

NEUTRAL = {"tau": 0.0}  # with which it is FedAvg


def method(tau: float = 1.0, others: bool = False) -> Method:
    """tau of at least 0 weighs the calibration; 0 is FedAvg if `others` is False."""
    check("fedlc_random", tau)

    def send(cohort: Cohort) -> list[Memory]:
        whose = of_another(cohort.counts, cohort.noise)
        return [{"fedlc_counts": counts} for counts in cohort.counts[whose]]

    def loss(step: Step) -> Tensor:
        return calibrated(step, step.memory["fedlc_counts"], tau, others)

    return Method(loss=loss, send=send, padded=True)
