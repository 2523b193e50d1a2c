"""The placebo of power of choice: the clients of a round are drawn from its candidates by lot.

The candidates are those of `power_of_choice`. What that method gains over this one is due to the
losses. The first clients of the lots are the same for every number of candidates, and for
`size_sampling`, so that a run does not depend on `d`.
"""

from torch import Tensor

from fedgrid.method import Candidates, Method
from fedgrid.methods import uniform
from fedgrid.methods.power_of_choice import draw

RANGES = {"d": "[1, inf)"}


def method(d: int = 20) -> Method:
    """d: the number of candidates, above the number of clients that take part in a round."""

    def choose(candidates: Candidates) -> Tensor:
        return draw(candidates, d)[: len(candidates.drawn)]  # in the order of the lots

    return Method(choose=choose, weigh=uniform.method().weigh)
