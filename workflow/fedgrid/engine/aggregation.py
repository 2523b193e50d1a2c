"""The weighted sum over a cohort: client by client if the weights are known, otherwise at the end.

`Running` holds one model for a cohort of any size. `Kept` holds every client's delta, for methods
whose weights depend on the training, that aggregate in a way of their own, or whose `share` or
`observe` reads deltas.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgrid.method import Cohort, Later, Method, Model, by_samples, relative, weighted_sum

ADDED_UP = "are added up, because the method says uses_deltas=False: if `share` or `observe` reads "
ADDED_UP += "them, leave that out"


class Weights(NamedTuple):
    """The weights of a round's clients, (C,) each."""

    given: Tensor  # what `weigh` gives
    new: Tensor  # after `reweigh`
    factors: Tensor  # of the deltas, after `scale`


def weigh(method: Method, cohort: Cohort) -> Weights:
    """Return the weights of a cohort's clients."""
    given = (method.weigh or by_samples)(cohort)
    new = method.reweigh(cohort, given) if method.reweigh else given
    return Weights(given, new, method.scale(cohort, new) if method.scale else new)


def start_sum(
    method: Method, cohort: Cohort, server: Model, parameters: list[str], statistics: list[str]
) -> "Running | Kept":
    """Return `Running` if weights are known before training and nothing else needs deltas."""
    if method.aggregate or method.uses_deltas or method.weigh_after_training:
        return Kept(server, parameters, statistics, len(cohort.clients))
    return Running(server, parameters, statistics, weigh(method, cohort))


class Running:
    """sum_k a_k Delta_k and the mean of the statistics, updated client by client."""

    def __init__(
        self, server: Model, parameters: list[str], statistics: list[str], weights: Weights
    ):
        self.server, self.parameters, self.statistics = server, parameters, statistics
        self.weights, self.share = weights, relative(weights.factors)
        self.deltas = Later("deltas", ADDED_UP)
        self.sums = {n: torch.zeros_like(server[n]) for n in (*parameters, *statistics)}

    @torch.no_grad()
    def add(self, which: slice, models: Model) -> None:
        """Add the clients `which` of the cohort, models (G, ...)."""
        for name in self.parameters:
            add(self.sums[name], self.weights.factors[which], self.server[name] - models[name])
        for name in self.statistics:
            add(self.sums[name], self.share[which], models[name])

    def update(self, method: Method, cohort: Cohort, factors: Tensor) -> Model:
        """Return the weighted sum of the deltas."""
        return {name: self.sums[name] for name in self.parameters}

    def means(self, share: Tensor) -> Model:
        """Return the weighted mean of the statistics."""
        return {name: self.sums[name] for name in self.statistics}

    def local(self, position: int) -> Model:
        """Raise an AttributeError: no client's model is kept."""
        return self.deltas.models


class Kept:
    """Every client's delta and statistics, (C, ...)."""

    def __init__(self, server: Model, parameters: list[str], statistics: list[str], clients: int):
        self.server, self.weights = server, None
        self.deltas = {n: server[n].new_empty((clients, *server[n].shape)) for n in parameters}
        self.stacks = {n: server[n].new_empty((clients, *server[n].shape)) for n in statistics}

    @torch.no_grad()
    def add(self, which: slice, models: Model) -> None:
        """Store the clients `which` of the cohort, models (G, ...)."""
        for name, deltas in self.deltas.items():
            torch.sub(self.server[name], models[name], out=deltas[which])
        for name, stack in self.stacks.items():
            stack[which] = models[name]

    def update(self, method: Method, cohort: Cohort, factors: Tensor) -> Model:
        """Return the method's aggregate of the deltas, or else their weighted sum."""
        return (method.aggregate or weighted_sum)(cohort, factors)

    def local(self, position: int) -> Model:
        """Return the model of the client at this position of the cohort after training."""
        trained = {n: self.server[n] - delta[position] for n, delta in self.deltas.items()}
        return self.server | trained | {n: stack[position] for n, stack in self.stacks.items()}

    def means(self, share: Tensor) -> Model:
        """Return the weighted mean of the statistics."""
        return {n: torch.tensordot(share.to(s), s, dims=1) for n, s in self.stacks.items()}


def add(total: Tensor, weights: Tensor, stack: Tensor) -> None:
    """Compute total += sum_k weights_k stack_k in place, one client after the other."""
    for weight, tensor in zip(weights.to(stack).unbind(), stack.unbind(), strict=True):
        total.addcmul_(tensor, weight)
