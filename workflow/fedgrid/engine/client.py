"""What a backend is given: clients, one by one or stacked, each with its batches in order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.engine.hooks.rules import MistakeError, alike
from fedgrid.engine.optimisers import STATE, overlaid
from fedgrid.engine.samples import Samples
from fedgrid.engine.state import moved, own_model
from fedgrid.federation import schedule, seeds
from fedgrid.method import Memory, Model
from fedgrid.runtime.names import UsageError


@dataclass(frozen=True)
class LocalWork:
    """The input of one client in a round."""

    server: Model  # the server's model, with this client's private entries
    start: Model  # the model that its local steps begin with
    memory: Memory
    shared: Memory
    counts: Tensor  # (K,) its training samples per class
    steps: Tensor  # () number of its local steps
    round: Tensor  # ()
    lr: float
    optimiser: Memory  # its optimiser's state; empty before the first step
    noise: int  # seed of random numbers that the model draws itself, such as dropout
    batches: Iterable[tuple[Tensor, Tensor]]  # x (B, ...), y (B,)


class StackedBatch(NamedTuple):
    """One local step of G clients, padded to one shape."""

    index: Tensor  # type: ignore[assignment]  # (G, B) ids of samples; tuples have a method index
    valid: Tensor  # (G, B) False for padding
    draws: Tensor  # (G, B, A) uniform random numbers for the augmentation
    step: Tensor  # () number of the step in the round
    sizes: Any  # (G,) samples of each client, on the CPU, read without waiting for a GPU

    def first(self, n: int) -> "StackedBatch":
        """Return the batch of the first clients."""
        return StackedBatch(
            self.index[:n], self.valid[:n], self.draws[:n], self.step, self.sizes[:n]
        )


@dataclass(frozen=True)
class StackedWork:
    """The input of G clients in a round, stacked; those with more steps come first."""

    order: np.ndarray  # (G,) their positions in the part of the cohort that they are
    server: Model
    start: Model  # as of `LocalWork`; what differs between clients is (G, ...)
    memory: Memory  # (G, ...)
    shared: Memory
    counts: Tensor  # (G, K)
    round: Tensor  # ()
    lr: float
    optimiser: Memory  # (G, ...)
    steps: Tensor  # (G,) number of local steps of each client
    batches: Iterable[StackedBatch]

    def in_order(self, found: Any) -> Any:
        """Return tensors (G, ...) of these clients in the order of the cohort."""
        if (self.order == np.arange(len(self.order))).all():
            return found
        back = moved(np.argsort(self.order), self.steps.device)
        return tree_map(lambda tensor: tensor[back], found)


class Clients:
    """The cohort of a round for a backend: its clients one by one, or stacked."""

    def __init__(
        self,
        samples: Samples,
        work: schedule.Work,
        server: Model,
        shared: Memory,
        memories: list[Memory],
        begun: list[Model],
        number: int,
        lr: float,
    ):
        self.samples, self.work, self.memories = samples, work, memories
        when = torch.full((), number, device=samples.device)
        self.given: dict[str, Any] = {"shared": shared, "round": when, "lr": lr}
        self.server, self.begun, self.noise = server, begun, work.noise

    def __len__(self) -> int:
        return len(self.memories)

    def __iter__(self) -> Iterator[LocalWork]:
        return map(self.one, range(len(self)))

    def one(self, c: int) -> LocalWork:
        """Return the input of the client at position `c` of the cohort."""
        client, server = int(self.work.clients[c]), own_model(self.server, self.memories[c])
        return LocalWork(
            server=server,
            start=server | self.begun[c],
            memory=self.memories[c],
            optimiser=self.state(c),
            counts=self.samples.federation.counts[client],
            steps=torch.tensor(self.work.steps[c], device=self.samples.device),
            noise=seeds.seed(self.noise, client),
            batches=self.samples.batches(self.work, c),
            **self.given,
        )

    def stack(self, which: slice) -> StackedWork:
        """Return the stacked input of the clients at the positions `which` of the cohort."""
        order = np.argsort(-self.work.steps[which], kind="stable")
        places = np.arange(which.start, which.stop)[order]
        whole = self.work.index, self.work.valid, self.work.draws
        tables = [np.ascontiguousarray(table[:, places]) for table in whole]
        index, valid, draws = (moved(table, self.samples.device) for table in tables)
        clients = moved(self.work.clients[places], self.samples.device)
        memory = stacked([self.memories[c] for c in places], "`memory` or `remember`")
        begun = stacked([self.begun[c] for c in places], "`begin`")
        numbers = torch.arange(len(index), device=self.samples.device)
        return StackedWork(
            order=order,
            server=self.server,
            start=own_model(self.server, memory) | begun,
            memory=memory,
            optimiser=stacked([*map(self.state, places)], "the optimiser"),
            counts=self.samples.federation.counts[clients],
            steps=valid.any(2).sum(0),
            batches=map(StackedBatch, index, valid, draws, numbers, tables[1].sum(2)),
            **self.given,
        )

    def state(self, c: int) -> Memory:
        """Return the optimiser's state that the server has sent, with what the client has kept."""
        own = self.memories[c].get(STATE, {})
        return overlaid(self.given["shared"].get(STATE, {}), own) or own


def stacked(memories: list[Memory], hooks: str) -> Memory:
    """Return memories of the same form as one, whose tensors have a leading client axis.

    `hooks` are the functions of the method that give them, in words.
    """
    try:
        for one in memories:
            alike(one, memories[0], "that of another client")
    except MistakeError as mistake:
        raise UsageError(f"{hooks} of a client {mistake}, or choose the backend loop") from None
    return tree_map(lambda *tensors: torch.stack(tensors), *memories)
