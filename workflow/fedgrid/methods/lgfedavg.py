"""LG-FedAvg: the body stays at its client, the classifier is shared (Liang et al., 2020).

Liang, Liu, Liu, Allen, Auerbach, Brent, Salakhutdinov and Morency, "Think Locally, Act Globally:
Federated Learning with Local and Global Representations" (arXiv:2001.01523). It is FedPer upside
down. `ps` shares more layers than the last one.

The official code begins with a model that FedAvg has trained and gives all clients the same weight.
Here a run begins with the protocol's initial weights; add `uniform` for equal weights.
"""

from fedgrid.method import Method

PRIVATE = ("body.",)
MODELS_KEPT = 1  # per client, tensors as large as the model


def method() -> Method:
    """There is nothing to choose."""
    return Method(private=PRIVATE)
