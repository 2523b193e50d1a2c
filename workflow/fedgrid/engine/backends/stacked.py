"""Train all clients at once, with parameters that have a leading client axis. Best on GPUs.

Clients with less data are padded, if the method says that its functions leave padded samples out: a
padded sample has no part in FedAvg's loss or in BatchNorm's statistics, and a padded step changes
nothing. Clients with more steps come first in a stack, and the stack is halved as the others
finish: of ten clients ten, five, three, two or one take a step. If the memory does not suffice, the
stack is halved from the beginning, with a warning.
"""

import logging
from collections.abc import Iterator
from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.engine import recurrent
from fedgrid.engine.architecture import Architecture
from fedgrid.engine.backends import fitting
from fedgrid.engine.backends._compiled import Compiled, Program
from fedgrid.engine.backends._steps import (
    Places,
    Stack,
    Steps,
    given_by,
    is_taken_together,
    write,
)
from fedgrid.engine.client import Clients, StackedBatch, StackedWork
from fedgrid.engine.optimisers import Optimiser, listed, named
from fedgrid.engine.samples import Samples
from fedgrid.engine.state import reseed
from fedgrid.method import Memory, Method, Model
from fedgrid.runtime.resolved import Protocol

log = logging.getLogger(__name__)


class Backend:
    """Trains as many clients at once as the memory allows."""

    def __init__(
        self,
        architecture: Architecture,
        method: Method,
        protocol: Protocol,
        samples: Samples,
        fused: bool = False,
    ):
        recurrent.check(architecture.live)
        recurrent.keep_apart(architecture.live, architecture.empty)  # a teacher is `empty`
        self.architecture, self.method, self.samples = architecture, method, samples
        lasting = method.average_optimiser or protocol["optimiser_state"] == "kept"
        self.optimiser = Optimiser(protocol, lasting, stacked=True)
        self.size: int | None = None  # clients in a stack, after running out of memory
        parts = architecture, method, self.optimiser, samples
        self.steps = Steps(*parts)
        self.reported = False  # whether the log has the padding of a round
        self.said = False  # whether the log says that some steps are not compiled
        self.places: dict[int, Places] = {}  # by the number of clients in a stack
        # A GPU replays a whole step as one CUDA graph, compiled or not.
        whole = fused or architecture.device.type == "cuda"
        self.compiled = Compiled(Steps(*parts, whole=True).take_whole, fused) if whole else None

    def train(self, clients: Clients) -> Iterator[tuple[slice, Model, Tensor, Memory]]:
        """Yield per stack: positions, models (G, ...), mean training losses (G,), optimisers.

        Models and optimisers' states are overwritten when the next stack is trained.
        """
        reseed(self.architecture.device, clients.noise)
        size, c = self.size or len(clients), 0
        while c < len(clients):
            which = slice(c, min(c + size, len(clients)))
            try:
                trained = self.train_stack(clients.stack(which))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.forget()
                self.size = size = ceil(size / 2)
                log.warning("out of memory: from now on %d clients at a time", size)
                continue
            yield which, *trained
            c = which.stop

    @property
    def has_compiled(self) -> bool:
        """Whether a local step was compiled."""
        return self.compiled is not None and self.compiled.succeeded

    def forget(self) -> None:
        """Free what is kept for stacks of the present size."""
        self.places = {}
        if self.compiled:
            self.compiled.programs.clear()

    def train_stack(self, clients: StackedWork) -> tuple[Model, Tensor, Memory]:
        """Return these clients' models after all steps, mean losses and optimisers' states."""
        places, total = self.begin(clients), len(clients.counts)
        take, losses, computed, own, apart = RoundSteps(self, clients, places), [], 0, 0, 0
        for batch in clients.batches:
            some = batch.first(fitting(total, int(np.count_nonzero(batch.sizes))))
            losses.append(padded(take(some), total))
            own += int(some.sizes.sum())
            together = is_taken_together(self.method.padded, some)
            computed += some.index.numel() if together else int(some.sizes.sum())
            apart += not together
        self.report(computed, own)
        self.warn_of_steps(apart, len(losses))
        nothing = torch.zeros(total, device=self.architecture.device)
        loss = torch.stack(losses).sum(0) / clients.steps.clamp(min=1) if losses else nothing
        state = named(places.state, self.architecture.trainable)
        return clients.in_order((places.models, loss, state))

    def report(self, computed: int, own: int) -> None:
        """Say in the log, once per run, how much padding the first stack has."""
        if not self.reported and computed > own > 0:
            log.info(
                "clients of different size are padded: the first round computes %d samples for the "
                "%d that its clients train on (%.2f times as many)",
                *(computed, own, computed / own),
            )
        self.reported = True

    def warn_of_steps(self, apart: int, steps: int) -> None:
        """Say in the log, once per run, that steps of unequal batches cannot be compiled."""
        if apart and not self.said and self.compiled and self.compiled.fused:
            self.said = True
            log.warning(
                "%d of the %d local steps of this round are not compiled, because clients have "
                "batches of different sizes, and the method does not say that it leaves padded "
                "samples out: if it does, write `padded=True` in its file",
                *(apart, steps),
            )

    def begin(self, clients: StackedWork) -> Places:
        """Return the places of models and optimisers' states, with what clients begin with."""
        total = len(clients.counts)
        if total not in self.places:
            models = {n: w.new_empty(total, *w.shape) for n, w in clients.server.items()}
            trained = [models[name] for name in self.architecture.trainable]
            self.places[total] = Places(models, self.optimiser.start(trained))
        places = self.places[total]
        for name, entry in clients.start.items():
            places.models[name].copy_(entry)
        if begun := listed(clients.optimiser, self.architecture.trainable):
            write(places.state, begun)
        else:
            tree_map(torch.Tensor.zero_, places.state)
        return places


class RoundSteps:
    """Takes the steps of a round: compiled if they can be, for the clients that still train."""

    def __init__(self, backend: Backend, clients: StackedWork, places: Places):
        self.backend, self.places, self.given = backend, places, given_by(clients)
        self.programs: dict[int, Program] = {}  # by the number of clients
        self.stacks: dict[int, Stack] = {}

    def __call__(self, batch: StackedBatch) -> Tensor:
        """Take one step of the first clients; return their losses (n,)."""
        backend, n = self.backend, len(batch.index)
        if not (backend.compiled and is_taken_together(backend.method.padded, batch)):
            if n not in self.stacks:
                dtype = backend.architecture.dtype
                self.stacks[n] = Stack(self.places.first(n), self.given.first(n), dtype)
            return backend.steps.take(backend.samples, self.stacks[n], batch)
        tensors = batch.index, batch.valid, batch.draws, batch.step
        if n not in self.programs:
            rate = self.given.rate(backend.architecture.dtype)
            given = self.given.first(n)._replace(lr=rate)
            parts = self.places.first(n), backend.samples.data, given, tensors
            self.programs[n] = backend.compiled.start(*parts)
        return self.programs[n](tensors)


def padded(losses: Tensor, total: int) -> Tensor:
    """Return the losses of the first clients as (total,), with zeros for the others."""
    found = losses.new_zeros(total)
    found[: len(losses)] = losses
    return found
