"""Weights by a power of the number of samples, from equal weights to FedAvg's and beyond.

a_k is proportional to n_k^exponent. With 0 all clients of a round weigh the same, 1 is FedAvg, and
with more the largest clients outweigh the others even more. The exponent moves the effective number
of clients, 1 / sum a_k^2, and nothing else that a client's data say.
"""

from torch import Tensor

from fedgrid.method import Cohort, Method, relative


def method(exponent: float = 0.5) -> Method:
    """exponent: any number. A client without samples has the weight 0."""

    def by_power(cohort: Cohort) -> Tensor:
        there = cohort.sizes > 0
        largest = cohort.sizes.max().clamp(min=1)  # so that no power overflows
        return relative((cohort.sizes / largest).where(there, 1) ** exponent * there)

    return Method(weigh=by_power)
