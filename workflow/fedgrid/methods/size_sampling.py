"""Clients are drawn in proportion to their samples, and all weigh the same (Li et al., ICLR 2020).

Li et al., "On the Convergence of FedAvg on Non-IID Data", draw so in their scheme I, with
replacement. Here the clients of a round are different ones, as in power of choice (Cho et al.,
2022): they are drawn one after the other, each with a probability in proportion to its samples
among those that are left. So this is power of choice without a choice, and what that method gains
over it is due to the losses. Clients with too few samples for a batch are not drawn.
"""

from torch import Tensor

from fedgrid.method import Candidates, Method
from fedgrid.methods import uniform
from fedgrid.methods.power_of_choice import draw


def method() -> Method:
    """Return the draw and weights 1 / m for each of m clients."""

    def choose(candidates: Candidates) -> Tensor:
        taking = len(candidates.drawn)
        return draw(candidates, taking + 1)[:taking]  # the last one of the lots takes no part

    return Method(choose=choose, weigh=uniform.method().weigh)
