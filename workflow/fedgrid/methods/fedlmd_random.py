"""The placebo of FedLMD: as many classes are masked, but they are drawn at random.

FedLMD's teacher leaves out the classes of which the client has most samples. Here it leaves out as
many classes, drawn anew for each client in each round, whatever its labels are. All else is as in
`fedlmd.py`: the sample's own class is left out of teacher and student. What FedLMD gains over this
placebo is due to the choice of the masked classes.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation
from fedgrid.methods._random_classes import ORDER, send_orders


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models."""

    def penalty(step: Step) -> Tensor:
        others = _distillation.but_true(step)
        masked = step.memory[ORDER] < _distillation.majority(step).sum()
        _, logits = step.forward(step.server, step.x)
        target = _distillation.teacher(logits, others & ~masked, tau)
        return beta * _distillation.divergence(step, target, others, tau)

    return Method(penalty=penalty, send=send_orders)
