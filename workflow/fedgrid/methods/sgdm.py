"""SGDM, or momentum federated learning (Liu, Chen, Chen and Zhang, IEEE TPDS 2020).

The clients train with the protocol's momentum, and the server averages their momentum buffers as it
averages their models. In the next round every client starts with both averages. `reset` makes it
SGD with momentum whose buffer starts at zero in every round, which is FedAvg. The buffers of
private entries stay at their clients, as these entries do.
"""

from fedgrid.method import Method

OPTIMISERS = ("sgd",)  # Adam has no momentum buffer of this kind


def method(reset: bool = False) -> Method:
    """reset: the buffer starts at zero in every round, and is not averaged."""
    return Method(average_optimiser=not reset, optimisers=OPTIMISERS)
