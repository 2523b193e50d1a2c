"""A placebo for any method's weights: each client of a round gets the weight of another one.

Who gets whose weight is drawn anew in each round. The weights of a round are the same numbers, so
their effective number is the same; what they say of the clients is gone. Combine it with the method
whose weights are in question.
"""

from torch import Tensor

from fedgrid.method import Cohort, Method
from fedgrid.methods.contribution import of_another


def method() -> Method:
    """Return the change of weights; a client alone keeps its weight."""

    def swapped(cohort: Cohort, weights: Tensor) -> Tensor:
        return weights[of_another(weights, cohort.noise)]

    return Method(reweigh=swapped)
