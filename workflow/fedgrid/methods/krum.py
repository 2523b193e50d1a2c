"""Krum: the server takes the model of one client that is close to others (Blanchard et al., 2017).

Blanchard, El Mhamdi, Guerraoui and Stainer (NeurIPS 2017). Of n clients of which f may send
anything, a client's score is the sum of the squared distances between its change and the
n - f - 2 nearest ones of others. The client with the lowest score has the weight 1. `multi_krum`
takes the mean of several clients.

A client that takes no step sends nothing, and is left out of n. f is `share` times n, rounded down.
If n is too small for a neighbour, the nearest one is taken. Of two clients with the same score the
one with the lower number is taken.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedgrid.method import Cohort, Method

RANGES = {"share": "[0, 0.5)"}


def method(share: float = 0.2) -> Method:
    """share: of the clients that may send anything."""
    return closest(share, lambda clients, attackers: 1)


def closest(share: float, number: Callable[[int, int], int]) -> Method:
    """Return the method that takes the mean of the clients with the lowest scores.

    `number` says of how many, from the numbers of clients and of attackers.
    """

    def weigh(cohort: Cohort) -> Tensor:
        there = (cohort.steps > 0).nonzero()[:, 0]
        there = there[cohort.clients[there].argsort()]
        attackers = int(share * len(there) + 1e-9)
        scores = score(cohort, there, attackers)
        best = scores.topk(number(len(there), attackers), largest=False).indices
        return torch.zeros_like(cohort.sizes).index_fill(0, there[best], 1 / len(best))

    return Method(weigh=weigh, weigh_after_training=True)


def score(cohort: Cohort, there: Tensor, attackers: int) -> Tensor:
    """Return the scores of those clients of a cohort that are at these positions."""
    near = max(len(there) - attackers - 2, 1)
    flat = torch.cat([delta[there].flatten(1) for delta in cohort.deltas.values()], 1)
    squares = torch.stack([(flat - own).square().sum(1) for own in flat])
    squares.fill_diagonal_(torch.inf)
    return squares.sort(1).values[:, :near].sum(1)
