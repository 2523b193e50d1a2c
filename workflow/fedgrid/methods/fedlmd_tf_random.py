"""The placebo of FedLMD-Tf: its target is as wide, but over classes that are drawn at random.

FedLMD-Tf's target is uniform over a client's minority classes without a sample's own. Here it has
as many classes and the same sum, but they are drawn anew for each client in each round, whatever
its labels are. What FedLMD-Tf gains over this placebo is due to the choice of the classes.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import _distillation
from fedgrid.methods._random_classes import send_orders
from fedgrid.methods.fedlmd_random import places_of_others

NEUTRAL = {"beta": 0.0}  # with which it is FedAvg
RANGES = {"beta": "[0, inf)", "tau": "(0, inf)"}


def method(beta: float = 1.0, tau: float = 1.0) -> Method:
    """beta >= 0 weighs the divergence, 0 is FedAvg; tau > 0 is the student's temperature."""

    def penalty(step: Step) -> Tensor:
        others, majority = _distillation.but_true(step), _distillation.majority(step)
        count = majority.sum() - majority[step.y].to(step.y)  # of the majority, but a sample's own
        kept = others & (places_of_others(step) >= count[:, None])
        target = _distillation.uniform(step, kept, (~majority).sum())
        return beta * _distillation.divergence(step, target, others, tau)

    return Method(penalty=penalty, padded=True, send=send_orders)
