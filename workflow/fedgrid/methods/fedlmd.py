"""FedLMD: distil the server's knowledge of a client's minority classes (Lu et al., 2023).

The teacher's probabilities are over the classes of which the client has at most n_k / K samples,
without the sample's own class; the student's are over all classes but the sample's own. The paper
masks only the majority in the teacher (equation 3). As in the official code, the true class is
masked as well; otherwise the teacher would have mass on a class that the student lacks. The code
multiplies the divergence by tau^2 and the text does not: to follow the text, divide beta by tau^2.
"""

from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Start, Step
from fedgrid.methods import _distillation

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)", "switch": "[0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0, switch: int = 0, exact: bool = False) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models.

    In the rounds before `switch` the penalty is FedLMD-Tf's, with its option `exact` (figure 8);
    the teacher is computed in these rounds, too, because a recorded step cannot branch on a number.
    """

    def minority(step: Step) -> Tensor:
        others = _distillation.but_true(step)
        kept = others & ~_distillation.majority(step)
        _, logits = step.forward(step.server, step.x)
        return _distillation.divergence(step, _distillation.teacher(logits, kept, tau), others, tau)

    def penalty(step: Step) -> Tensor:
        if not switch:
            return beta * minority(step)
        early = step.shared["fedlmd_round"] < switch
        return beta * torch.where(early, teacher_free(step, tau, exact), minority(step))

    def first(start: Start) -> Memory:
        return {"fedlmd_round": next(iter(start.server.values())).new_zeros(())}

    def next_round(cohort: Cohort, update: Model) -> Memory:
        return {"fedlmd_round": cohort.shared["fedlmd_round"] + 1}

    counting: dict[str, Any] = (
        {"shared": first, "share": next_round, "uses_deltas": False} if switch else {}
    )
    return Method(penalty=penalty, padded=True, **counting)


def teacher_free(step: Step, tau: float, exact: bool) -> Tensor:
    """Return the divergence from a uniform distribution over the client's minority classes."""
    others, majority = _distillation.but_true(step), _distillation.majority(step)
    kept = others & ~majority
    classes = kept.sum(1, keepdim=True) if exact else (~majority).sum()
    return _distillation.divergence(step, _distillation.uniform(step, kept, classes), others, tau)
