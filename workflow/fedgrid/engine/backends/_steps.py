"""Take local steps of a stack of clients: from the ids of samples to models, changed in place."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.backends._local_step import Common, LocalStep, Own
from fedgrid.engine.backends._recorded import Flat, Recorded, unrecorded
from fedgrid.engine.client import StackedBatch, StackedWork
from fedgrid.engine.optimisers import Optimiser, State, along
from fedgrid.engine.samples import Data, Samples
from fedgrid.engine.state import moved
from fedgrid.method import Memory, Method, Model

PATIENCE = 3  # calls of a few clients' step before it is recorded


class Places(NamedTuple):
    """What local steps change in place, (G, ...) each."""

    models: Model
    state: State  # of the optimiser

    def first(self, n: int) -> "Places":
        """Return the places of the first clients."""
        return tree_map(lambda tensor: tensor[:n], self)


Images = tuple[Tensor, Tensor]  # x (G, B, ...), y (G, B)


class Given(NamedTuple):
    """What all local steps of a round read."""

    server: Model
    shared: Memory
    memory: Memory  # (G, ...)
    counts: Tensor  # (G, K)
    steps: Tensor  # (G,)
    round: Tensor  # ()
    lr: Tensor | float

    def first(self, n: int) -> "Given":
        """Return what the first clients read."""
        memory = tree_map(lambda kept: kept[:n], self.memory)
        return self._replace(memory=memory, counts=self.counts[:n], steps=self.steps[:n])

    def rate(self, dtype: torch.dtype) -> Tensor:
        """Return the learning rate as a tensor: a record would keep a number of its first round."""
        lr: Any = self.lr
        return lr if isinstance(lr, Tensor) else self.round.new_full((), lr, dtype=dtype)


class Stack:
    """Clients that take steps together: what these change, and what they read."""

    def __init__(self, places: Places, given: Given, dtype: torch.dtype):
        self.places, self.lr = places, given.lr
        self.read = Flat((places.models, given._replace(lr=given.rate(dtype))))


def given_by(work: StackedWork) -> Given:
    """Return what the local steps of this work read."""
    return Given(
        work.server, work.shared, work.memory, work.counts, work.steps, work.round, work.lr
    )


class Steps:
    """The local steps of a run; with `whole`, one is a function of nothing but tensors.

    A whole step pads every batch, treats every client as one that may be idle, and records nothing.
    """

    def __init__(
        self,
        architecture: Architecture,
        method: Method,
        optimiser: Optimiser,
        samples: Samples,
        whole: bool = False,
    ):
        self.architecture, self.optimiser, self.samples = architecture, optimiser, samples
        names = architecture.trainable
        twice = [names[i] for i in architecture.trained_twice]
        parts = (method, architecture.live, names), (Method(), architecture.live_served, twice)
        # The second step on a batch is FedAvg's.
        self.step, self.step_of_served = (
            StackedStep(LocalStep(architecture, *part), recorded=not whole) for part in parts
        )

    def take_whole(
        self, places: Places, data: Data, given: Given, batch: tuple[Any, ...]
    ) -> Tensor:
        """Take one step of all clients with these data; return their losses (G,)."""
        stack = Stack(places, given, self.architecture.dtype)
        return self.take(self.samples.of(data), stack, StackedBatch._make((*batch, None)))

    def take(self, samples: Samples, stack: Stack, batch: StackedBatch) -> Tensor:
        """Take one step of all clients in place; return their losses (G,)."""
        models, state = stack.places
        idle = ~batch.valid.any(1)
        resting = None if batch.sizes is not None and batch.sizes.all() else idle
        trained, lr = [models[name] for name in self.architecture.trainable], stack.lr
        images = samples.stack(batch.index, batch.draws)
        gradients, loss, entries, rates = self.step(stack.read, images, batch)
        after = self.optimiser.step(trained, gradients, state, lr, resting, rates)
        take_over(models, entries, resting)
        if which := self.architecture.trained_twice:
            gradients, _, entries, _ = self.step_of_served(stack.read, images, batch)
            after = self.optimiser.step_again(which, trained, gradients, after, lr, resting)
            take_over(models, entries, resting)
        write(state, after)
        return loss.masked_fill(idle, 0)


@torch.no_grad()
def take_over(models: Model, entries: Model, idle: Tensor | None) -> None:
    """Put new entries into the models, in place, but for the clients `idle`."""
    for name, new in entries.items():
        old = models[name]
        old.copy_(new if idle is None else torch.where(along(idle, new), old, new))


@torch.no_grad()
def write(state: State, after: State) -> None:
    """Put an optimiser's state after a step in the place of that before it."""
    for slot, before in state.items():
        if before is not after[slot]:
            for old, new in zip(*map(tree_leaves, (before, after[slot])), strict=True):
                old.copy_(new)


class StackedStep:
    """Gradients of a stack whose clients may have batches of different sizes.

    If a method leaves out padded samples, all clients take the step together. Otherwise those with
    equally many samples take it together, so that no batch is padded.
    """

    def __init__(self, step: LocalStep, recorded: bool = True):
        self.step, made = step, Recorded if recorded else unrecorded
        self.padded, self.dtype = step.method.padded, step.architecture.dtype
        self.replay, self.replay_few = made(self.take), made(self.take, patience=PATIENCE)

    def __call__(self, read: Flat, images: Images, batch: StackedBatch) -> Any:
        """Return gradients by trained parameter, losses (G,), new entries and factors of rates."""
        if is_taken_together(self.padded, batch):
            return self.take_all(read, images, batch)
        return self.take_by_size(read, images, batch)

    def take(
        self, read: tuple[Model, Given], x: Tensor, y: Tensor, valid: Tensor, step: Tensor
    ) -> Any:
        """Return the results of the step with these models."""
        models, given = read
        own = Own(given.memory, given.counts, given.steps, x, y, valid)
        rate: Any = given.lr
        common = Common(given.server, given.shared, given.round, step, rate)
        return self.step(models, own, common)

    def take_all(self, read: Flat, images: Images, batch: StackedBatch) -> Any:
        """Return the results of all clients, whose batches are padded to the longest."""
        mask = batch.valid.to(self.dtype)
        # An idle client needs a sample; its step is discarded.
        mask[:, 0].masked_fill_(~batch.valid.any(1), 1)
        return self.replay(read, *images, mask, batch.step)

    def take_by_size(self, read: Flat, images: Images, batch: StackedBatch) -> Any:
        """Return the results of all clients, put together from those of equal sizes."""
        found, sizes = None, batch.sizes
        for size in np.unique(sizes[sizes > 0]):
            which = moved(np.flatnonzero(sizes == size), batch.index.device)
            part = self.take_equal(read, images, which, int(size), batch.step)
            found = found or tree_map(lambda of: of.new_zeros(len(sizes), *of.shape[1:]), part)
            for whole, of in zip(*map(tree_leaves, (found, part)), strict=True):
                whole.index_copy_(0, which, of)
        return found

    def take_equal(self, read: Flat, images: Images, which: Tensor, size: int, step: Tensor) -> Any:
        """Return the results of the clients at the positions `which`, with `size` samples each."""
        (models, given), (x, y) = read.tree, (part[which, :size] for part in images)
        mask = torch.ones_like(y, dtype=self.dtype)
        every = models, given.memory, given.counts, given.steps
        models, memory, counts, steps = tree_map(lambda tensor: tensor[which], every)
        given = given._replace(memory=memory, counts=counts, steps=steps)
        return self.replay_few(Flat((models, given)), x, y, mask, step)


def is_taken_together(padded: bool, batch: StackedBatch) -> bool:
    """Whether all clients can take a step together: the method allows it, or nothing is padded.

    A whole step, whose batch has no sizes, is taken only where they can.
    """
    return padded or batch.sizes is None or bool((batch.sizes == batch.index.shape[1]).all())
