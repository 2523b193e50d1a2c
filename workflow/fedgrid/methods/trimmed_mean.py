"""The coordinate-wise trimmed mean of the clients' changes (Yin et al., ICML 2018).

For each parameter of the server's model, the `share` of the clients with the largest changes and
the same share with the smallest are left out, and the mean of the others is taken. The share is
rounded down to a number of clients. Weights have no part. A client that takes no step sends
nothing, and is left out.

BatchNorm's running statistics are averaged with FedAvg's weights, as with every method.
"""

from torch import Tensor

from fedgrid.method import Cohort, Method, Model
from fedgrid.methods.median import sent

RANGES = {"share": "[0, 0.5)"}


def method(share: float = 0.1) -> Method:
    """share: of the clients at either end; 0 is the mean with equal weights."""

    def trimmed(cohort: Cohort, weights: Tensor) -> Model:
        return {
            n: inner_mean(delta, int(share * len(delta) + 1e-9))
            for n, delta in sent(cohort).items()
        }

    return Method(aggregate=trimmed)


def inner_mean(values: Tensor, number: int) -> Tensor:
    """Return the mean of (C, ...) over C without the `number` smallest and largest."""
    return values.sort(0).values[number : len(values) - number].mean(0)
