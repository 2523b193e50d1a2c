"""What a backend is given: clients, one by one or stacked, each with its batches in order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.engine.optimisers import STATE, overlaid
from fedgrid.engine.samples import Samples
from fedgrid.engine.state import own_model
from fedgrid.federation import schedule, seeds
from fedgrid.method import Memory, Model


@dataclass(frozen=True)
class LocalWork:
    """The input of one client in a round."""

    server: Model  # the server's model, with this client's private entries
    memory: Memory
    shared: Memory
    counts: Tensor  # (K,) its training samples per class
    round: Tensor  # ()
    lr: float
    optimiser: Memory  # its optimiser's state; empty before the first step
    noise: int  # seed of random numbers that the model draws itself, such as dropout
    batches: Iterable[tuple[Tensor, Tensor]]  # x (B, ...), y (B,)


class StackedBatch(NamedTuple):
    """One local step of G clients, padded to one shape."""

    x: Tensor  # (G, B, ...)
    y: Tensor  # (G, B)
    valid: Tensor  # (G, B) False for padding
    sizes: np.ndarray  # (G,) samples of each client, on the CPU


@dataclass(frozen=True)
class StackedWork:
    """The input of G clients in a round, stacked."""

    server: Model
    memory: Memory  # (G, ...)
    shared: Memory
    counts: Tensor  # (G, K)
    round: Tensor  # ()
    lr: float
    optimiser: Memory  # (G, ...)
    steps: Tensor  # (G,) number of local steps of each client
    batches: Iterable[StackedBatch]


class Clients:
    """The cohort of a round for a backend: its clients one by one, or stacked."""

    def __init__(
        self,
        samples: Samples,
        work: schedule.Work,
        server: Model,
        shared: Memory,
        memories: list[Memory],
        number: int,
        lr: float,
    ):
        self.samples, self.work, self.memories = samples, work, memories
        when = torch.tensor(number, device=samples.device)
        self.given = {"shared": shared, "round": when, "lr": lr}
        self.server, self.noise = server, work.noise

    def __len__(self) -> int:
        return len(self.memories)

    def __iter__(self) -> Iterator[LocalWork]:
        return map(self.one, range(len(self)))

    def one(self, c: int) -> LocalWork:
        """Return the input of the client at position `c` of the cohort."""
        client = int(self.work.clients[c])
        return LocalWork(
            server=own_model(self.server, self.memories[c]),
            memory=self.memories[c],
            optimiser=self.state(c),
            counts=self.samples.federation.counts[client],
            noise=seeds.seed(self.noise, client),
            batches=self.samples.batches(self.work, c),
            **self.given,
        )

    def stack(self, which: slice) -> StackedWork:
        """Return the stacked input of the clients at the positions `which` of the cohort."""
        index, valid, draws = (
            torch.from_numpy(table[:, which]).to(self.samples.device)
            for table in (self.work.index, self.work.valid, self.work.draws)
        )
        states = map(self.state, range(*which.indices(len(self))))
        return StackedWork(
            server=self.server,
            memory=stacked(self.memories[which]),
            optimiser=stacked([*states]),
            counts=self.samples.federation.counts[self.work.clients[which]],
            steps=valid.any(2).sum(0),
            batches=self.stacked_batches(index, valid, draws, self.work.valid[:, which].sum(2)),
            **self.given,
        )

    def state(self, c: int) -> Memory:
        """Return the optimiser's state that the server has sent, with what the client has kept."""
        own = self.memories[c].get(STATE, {})
        return overlaid(self.given["shared"].get(STATE, {}), own) or own

    def stacked_batches(
        self, index: Tensor, valid: Tensor, draws: Tensor, sizes: np.ndarray
    ) -> Iterator[StackedBatch]:
        """Yield a batch per step; `sizes` (S, G) are on the CPU, read without waiting for a GPU."""
        for s in range(len(index)):
            x, y = self.samples.batch(index[s].flatten(), draws[s].flatten(0, 1))
            x, y = x.unflatten(0, index[s].shape), y.unflatten(0, index[s].shape)
            yield StackedBatch(x, y, valid[s], sizes[s])


def stacked(memories: list[Memory]) -> Memory:
    """Return memories of the same form as one, whose tensors have a leading client axis."""
    return tree_map(lambda *tensors: torch.stack(tensors), *memories)
