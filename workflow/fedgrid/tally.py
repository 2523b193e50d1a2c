"""The sum over a cohort: as its clients finish, if their weights are known by then, or at the end.

`Running` holds one model whatever the cohort's size. `Kept` holds every client's delta, for methods
that weigh by what training told them, or that aggregate or share something of their own.
"""

import torch
from torch import Tensor

from fedgrid.method import Method, State, by_samples, relative, weighted_sum


class UnknownError(Exception):
    """Somebody looked at what only training will tell."""


class Unknown:
    """Stands in a cohort for what is not known before its training."""

    def _refuse(self, *_):
        raise UnknownError

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = _refuse


def tally(method: Method, cohort, server: State, parameters: list[str], statistics: list[str]):
    """`Running` if the weights do not wait for the training and nothing else asks for deltas."""
    if not (method.aggregate or method.share):
        try:
            weights = (method.weigh or by_samples)(cohort)
            return Running(server, parameters, statistics, weights)
        except UnknownError:
            pass
    return Kept(server, parameters, statistics, len(cohort.clients))


class Running:
    """sum_k a_k Delta_k, and the mean of the statistics, client by client."""

    def __init__(
        self, server: State, parameters: list[str], statistics: list[str], weights: Tensor
    ):
        self.server, self.parameters, self.statistics = server, parameters, statistics
        self.weights, self.share = weights, relative(weights)
        self.deltas = Unknown()
        self.sums = {n: torch.zeros_like(server[n]) for n in (*parameters, *statistics)}

    @torch.no_grad()
    def add(self, which: slice, states: State) -> None:
        """Count in the clients `which` of the cohort, (G, ...)."""
        for name in self.parameters:
            add(self.sums[name], self.weights[which], self.server[name] - states[name])
        for name in self.statistics:
            add(self.sums[name], self.share[which], states[name])

    def update(self, method: Method, cohort, weights: Tensor) -> State:
        """The weighted sum of the deltas."""
        return {name: self.sums[name] for name in self.parameters}

    def means(self, share: Tensor) -> State:
        """The weighted mean of the statistics."""
        return {name: self.sums[name] for name in self.statistics}


class Kept:
    """Every client's delta and statistics, (C, ...)."""

    def __init__(self, server: State, parameters: list[str], statistics: list[str], clients: int):
        self.server, self.weights = server, None
        self.deltas = {n: server[n].new_empty((clients, *server[n].shape)) for n in parameters}
        self.stacks = {n: server[n].new_empty((clients, *server[n].shape)) for n in statistics}

    @torch.no_grad()
    def add(self, which: slice, states: State) -> None:
        """Keep the clients `which` of the cohort, (G, ...)."""
        for name, deltas in self.deltas.items():
            torch.sub(self.server[name], states[name], out=deltas[which])
        for name, stack in self.stacks.items():
            stack[which] = states[name]

    def update(self, method: Method, cohort, weights: Tensor) -> State:
        """What the method makes of the deltas, else their weighted sum."""
        return (method.aggregate or weighted_sum)(cohort, weights)

    def means(self, share: Tensor) -> State:
        """The weighted mean of the statistics."""
        return {n: torch.tensordot(share.to(s), s, dims=1) for n, s in self.stacks.items()}


def add(total: Tensor, weights: Tensor, stack: Tensor) -> None:
    """total += sum_k weights_k stack_k, in place, one client after the other."""
    for weight, tensor in zip(weights.to(stack).unbind(), stack.unbind(), strict=True):
        total.addcmul_(tensor, weight)
