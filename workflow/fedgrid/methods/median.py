"""The coordinate-wise median of the clients' changes (Yin et al., ICML 2018).

Each parameter of the server's model moves by the median of the clients' changes of it: of an even
number of clients, by the mean of the two in the middle. Weights have no part. A client that takes
no step sends nothing, and is left out.

BatchNorm's running statistics are averaged with FedAvg's weights, as with every method.
"""

import torch
from torch import Tensor

from fedgrid.method import Cohort, Method, Model


def method() -> Method:
    """There is nothing to choose."""

    def middle(cohort: Cohort, weights: Tensor) -> Model:
        return {n: halfway(delta) for n, delta in sent(cohort).items()}

    return Method(aggregate=middle)


def sent(cohort: Cohort) -> Model:
    """Return the deltas (C, ...) of the clients that have trained."""
    there = (cohort.steps > 0).nonzero()[:, 0]
    return {n: delta[there] for n, delta in cohort.deltas.items()}


def halfway(values: Tensor) -> Tensor:
    """Return the median of (C, ...) over C."""
    ordered = values.sort(0).values
    low, high = (len(values) - 1) // 2, len(values) // 2
    return torch.lerp(ordered[low], ordered[high], 0.5)
