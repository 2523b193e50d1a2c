"""The placebo of Fed-RoD: the balanced softmax has the client's counts, but of random classes.

The order of the classes is drawn anew for each client in each round. What Fed-RoD gains over this
placebo is due to the counts of the right classes, and not to the second classifier. A class that
the client lacks in the drawn order counts as one sample, because the loss of a sample of it would
be infinite.
"""

from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods import fedrod
from fedgrid.methods._random_classes import ORDER, send_orders

RANGES = {"gamma": "[0, inf)"}
PRIVATE = ("private.",)


def method(gamma: float = 1.0) -> Method:
    """gamma >= 0: the power of the counts in the balanced softmax."""

    def of_others(step: Step) -> Tensor:
        return step.counts[step.memory[ORDER]].clamp(min=1)

    return fedrod.two_heads(gamma, of_others) | Method(send=send_orders)
