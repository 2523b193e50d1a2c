"""FedBABU: train and average the body, and never the head (Oh, Kim and Yun, ICLR 2022).

The head is the last linear layer. All clients have the same, with the weights that were drawn at
the start; weight decay does not change it either. Clients have equal weights, as in the official
code. The paper then fine-tunes body and head on each client; here the server's model is evaluated,
with the head that was never trained.
"""

from fedgrid.method import Method
from fedgrid.methods import uniform


def method() -> Method:
    """There is nothing to choose."""
    return uniform.method() | Method(frozen=("head.",))
