"""A placebo for any method's weights: random ones with the same effective number of clients.

In each round the weights are the softmax of independent normal scores, which are scaled until
1 / sum a_k^2 is that of the weights that the other method gives. The sum of the weights stays the
same. Each round draws anew, so that over many rounds no client is preferred.
"""

import torch
from torch import Tensor

from fedgrid.method import Cohort, Method, relative

STEPS = 60  # of the bisection
WIDEST = 1e4  # scale at which one client has all the weight


def method() -> Method:
    """Return the change of weights; equal weights stay equal."""

    def drawn(cohort: Cohort, weights: Tensor) -> Tensor:
        if (weights == weights[0]).all():  # rounding would move them a little
            return weights
        generator = torch.Generator().manual_seed(cohort.noise)
        scores = torch.randn(len(weights), generator=generator, dtype=torch.float64)
        found = of_effective_number(scores, relative(weights.double().cpu()))
        return found.to(weights) * weights.sum()

    return Method(reweigh=drawn)


def of_effective_number(scores: Tensor, like: Tensor) -> Tensor:
    """Return the softmax (C,) of scaled scores (C,) that is as concentrated as `like` (C,)."""
    wanted, low, high = like.square().sum(), 0.0, WIDEST
    for _ in range(STEPS):
        middle = (low + high) / 2
        wider = torch.softmax(middle * scores, 0).square().sum() < wanted
        low, high = (middle, high) if wider else (low, middle)
    return torch.softmax(low * scores, 0)
