"""FedDisco: weigh down clients whose classes are far from even (Ye et al., ICML 2023).

With FedAvg's weight n_k / sum n and the discrepancy d_k between the client's class shares and equal
shares, a client's weight is in proportion to

    max(0, n_k / sum n - a d_k + b)

In the authors' code the discrepancy is the Kullback-Leibler divergence divided by its sum over the
round's clients (`measure="kl"`), or the Euclidean distance (`"l2"`). With both, the server's model
is equal to the one with that code's weights on the same batches, to 1e-15. If no client has a
weight above 0, FedAvg's weights stay; that code fails there. A client without samples has the
weight 0.

The placebo of its weights is `swapped_weights`.
"""

import torch
from torch import Tensor

from fedgrid.method import Cohort, Method, by_samples, relative

RANGES = {"a": "[0, inf)", "b": "[0, inf)", "measure": ("kl", "l2")}


def method(a: float = 0.5, b: float = 0.1, measure: str = "kl") -> Method:
    """With a and b 0 it is FedAvg; measure: of the discrepancy."""

    def by_discrepancy(cohort: Cohort) -> Tensor:
        usual = by_samples(cohort)
        shares = cohort.counts.to(usual) / cohort.sizes[:, None].clamp(min=1)
        far = divergence(shares) if measure == "kl" else distance(shares)
        new = (usual - a * far + b).clamp(min=0) * (cohort.sizes > 0)
        return torch.where(new.any(), relative(new), usual)

    return Method(weigh=by_discrepancy)


def divergence(shares: Tensor) -> Tensor:
    """Return the divergences (C,) of shares (C, K) from equal ones, divided by their sum."""
    found = torch.xlogy(shares, shares * shares.shape[1]).sum(1)
    return torch.where(found.sum() > 0, relative(found), 0)


def distance(shares: Tensor) -> Tensor:
    """Return the distances (C,) of shares (C, K) from equal ones."""
    return torch.linalg.vector_norm(shares - 1 / shares.shape[1], dim=1)
