"""The placebo of Fed-RoD: the balanced softmax has the client's counts, but of random classes.

The counts are permuted among the classes that the client holds, anew for each client in each round.
What Fed-RoD gains over this placebo is due to the counts of the right classes, and not to the
second classifier, nor to which classes a client lacks. A client of one class has the counts of
Fed-RoD.
"""

from fedgrid.method import Method
from fedgrid.methods import fedrod
from fedgrid.methods._held_classes import COUNTS, send_permuted

RANGES = {"gamma": "[0, inf)"}
PRIVATE = ("private.",)


def method(gamma: float = 1.0) -> Method:
    """gamma >= 0: the power of the counts in the balanced softmax."""
    return fedrod.two_heads(gamma, lambda step: step.memory[COUNTS]) | Method(send=send_permuted)
