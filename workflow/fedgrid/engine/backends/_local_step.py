"""One local step of all clients at once: gradients, losses and BatchNorm statistics.

A padded sample has no part in FedAvg's loss, nor in BatchNorm's statistics (`engine/masked.py`).
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.gradients import differentiate
from fedgrid.engine.masked import Masked
from fedgrid.engine.optimisers import changed_gradients, local_loss
from fedgrid.engine.state import own_model
from fedgrid.method import Memory, Method, Model, Step


class Own(NamedTuple):
    """What a step reads of one client; of a stack, with a leading client axis."""

    memory: Memory
    counts: Tensor  # (K,)
    steps: Tensor  # ()
    x: Tensor  # (B, ...)
    y: Tensor  # (B,)
    valid: Tensor  # (B,)


class Common(NamedTuple):
    """What a step of all clients reads."""

    server: Model
    shared: Memory
    round: Tensor  # ()
    step: Tensor  # ()
    lr: Tensor  # ()


class LocalStep:
    """One local step of all clients: gradients, losses, new entries and factors of rates.

    New entries are BatchNorm's statistics, and frozen parameters that the method's `correct` gives.
    Only the loss is mapped over clients: no client's loss depends on another's parameters, so the
    gradient of the sum of losses holds every client's own gradient.
    """

    def __init__(
        self, architecture: Architecture, method: Method, module: nn.Module, trained: list[str]
    ):
        self.architecture, self.method = architecture, method
        self.module, self.entries, self.trained = module, [*module.state_dict()], trained
        self.changes = bool(method.correct or method.rate)

    def __call__(self, state: Model, own: Own, common: Common) -> Any:
        """Return gradients by trained parameter, losses (G,), new entries and factors of rates."""
        trained = {name: state[name].detach().requires_grad_() for name in self.trained}
        mapped = vmap(self.loss, (0, 0, None), randomness="different")
        value, statistics, *outputs = mapped(state | trained, own, common)
        inputs = list(trained.values())
        grads = [*torch.autograd.grad(value.sum(), inputs, materialize_grads=True)]
        grads, rates, frozen = self.changed(grads, state, own, common, outputs)
        return grads, value.detach(), statistics | frozen, rates

    def loss(self, state: Model, own: Own, common: Common) -> Any:
        """Return one client's loss, its batch statistics, and the outputs that hooks read."""
        masked, entries = Masked(own.valid, state), {name: state[name] for name in self.entries}
        with self.architecture.precision(), masked:
            outputs = functional_call(self.module, entries, (own.x,))
        outputs = [output.to(self.architecture.dtype) for output in outputs]
        step = self.seen(state, own, common, *outputs)
        with masked:  # a teacher may use batch statistics too
            value = local_loss(self.method, step)
        return value, masked.statistics, *(outputs if self.changes else ())

    @torch.no_grad()
    def changed(
        self, grads: list[Tensor], state: Model, own: Own, common: Common, outputs: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor], Model]:
        """Return what `changed_gradients` gives, of all clients."""
        if not self.changes:
            return grads, [], {}

        def change(grads: list[Tensor], state: Model, own: Own, outputs: list[Tensor]) -> Any:
            step = self.seen(state, own, common, *outputs)
            return changed_gradients(self.method, step, self.trained, grads)

        return vmap(change, randomness="different")(grads, state, own, outputs)

    def seen(
        self, state: Model, own: Own, common: Common, features: Tensor, logits: Tensor
    ) -> Step:
        """Return one client's step, as the method's functions read it."""
        network = self.architecture
        return Step(
            params={name: state[name] for name in network.parameters},
            server=own_model(common.server, own.memory),
            shared=common.shared,
            **own._asdict(),
            features=features,
            logits=logits,
            round=common.round,
            step=common.step,
            lr=common.lr,
            forward=network.forward,
            differentiate=partial(differentiate, network, self.method, state),
        )
