"""The placebo of FedLMD: as many classes are masked, but they are drawn at random.

FedLMD's teacher leaves out a sample's own class and the classes of which the client has most
samples. Here it leaves out the own class and as many others as FedLMD does for this sample, drawn
anew for each client in each round, whatever its labels are. What FedLMD gains over this placebo is
due to the choice of the masked classes, and not to their number.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation
from fedgrid.methods._random_classes import ORDER, send_orders

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the temperature of both models."""

    def penalty(step: Step) -> Tensor:
        others = _distillation.but_true(step)
        majority = _distillation.majority(step)
        count = majority.sum() - majority[step.y].to(step.y)  # of the majority, but a sample's own
        kept = others & (places_of_others(step) >= count[:, None])
        _, logits = step.forward(step.server, step.x)
        target = _distillation.teacher(logits, kept, tau)
        return beta * _distillation.divergence(step, target, others, tau)

    return Method(penalty=penalty, padded=True, send=send_orders)


def places_of_others(step: Step) -> Tensor:
    """Return the places (B, K) of classes in the client's order, without the sample's own."""
    order = step.memory[ORDER]
    return order - (order > order[step.y][:, None]).to(order)
