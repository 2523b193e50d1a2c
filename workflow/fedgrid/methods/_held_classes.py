"""A client's class counts in a random order among the classes that it holds, for placebos.

A class of which a client has no sample still has none. All orders of the other classes are equally
likely, so that the counts can also be the right ones.
"""

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory

COUNTS = "permuted_counts"  # in a client's memory of this round


def send_permuted(cohort: Cohort) -> list[Memory]:
    """Return for each client its class counts (K,), permuted; drawn anew for it in each round."""
    return [{COUNTS: counts} for counts in permuted(cohort.counts, cohort.noise)]


def permuted(counts: Tensor, seed: int) -> Tensor:
    """Return counts (C, K) of clients, each row permuted among its entries above 0."""
    lacking = (counts == 0).long()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(counts.shape, generator=generator).to(counts.device, non_blocking=True)
    order = (drawn + lacking).argsort(1)  # the classes that a client holds come first
    places = lacking.argsort(dim=1, stable=True)
    return torch.zeros_like(counts).scatter(1, places, counts.gather(1, order))
