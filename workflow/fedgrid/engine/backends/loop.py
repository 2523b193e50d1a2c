"""Train one client after the other, in place in one module. Best on CPUs."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.client import Clients, LocalWork
from fedgrid.engine.gradients import differentiate
from fedgrid.engine.optimisers import Optimiser, changed_gradients, copy, listed, local_loss, named
from fedgrid.engine.state import reseed
from fedgrid.method import Memory, Method, Model, Step
from fedgrid.runtime.resolved import Protocol


class Backend:
    """Trains clients in the architecture's resident module."""

    has_compiled = False

    def __init__(
        self, architecture: Architecture, method: Method, protocol: Protocol, *of_stacks: Any
    ):
        self.architecture, self.method = architecture, method
        self.optimiser = Optimiser(protocol)

    def train(self, clients: Clients) -> Iterator[tuple[slice, Model, Tensor, Memory]]:
        """Yield per client: position, model (1, ...), mean training loss (1,), optimiser's state.

        The model is the resident module's, and is valid only until the next client.
        """
        for c, client in enumerate(clients):
            model, *rest = tree_map(lambda tensor: tensor.detach()[None], self.train_client(client))
            yield slice(c, c + 1), model, *rest

    def train_client(self, client: LocalWork) -> tuple[Model, Tensor, Memory]:
        """Return a client's model after all its steps, its mean loss, its optimiser's state."""
        network = self.architecture
        reseed(network.device, client.noise)
        live = network.live.state_dict(keep_vars=True)
        copy([live[name] for name in client.start], list(client.start.values()))
        params = {name: live[name] for name in network.parameters}
        trained = [live[name] for name in network.trainable]
        state, losses = listed(client.optimiser, network.trainable), []
        for number, (x, y) in enumerate(client.batches):
            step = self.step(network.live, client, params, number, x, y)
            found = self.gradients(self.method, step, network.trainable, trained)
            gradients, rates, frozen, loss = found
            state = self.optimiser.step(trained, gradients, state, client.lr, rates=rates)
            if frozen:
                copy([live[name] for name in frozen], [*frozen.values()])
            if which := network.trained_twice:
                # The second step on a batch is FedAvg's.
                names, twice = ([network.trainable[i] for i in which], [trained[i] for i in which])
                again = self.step(network.live_served, client, params, number, x, y)
                gradients, *_ = self.gradients(Method(), again, names, twice)
                state = self.optimiser.step_again(which, trained, gradients, state, client.lr)
            losses.append(loss)
        nothing = torch.zeros((), device=network.device)
        loss = torch.stack(losses).mean() if losses else nothing
        return live, loss, named(state, network.trainable)

    def step(
        self, module: nn.Module, client: LocalWork, params: Model, number: int, x: Tensor, y: Tensor
    ) -> Step:
        """Return step `number` of a client's round, as the method's functions read it."""
        network = self.architecture
        with network.precision():
            features, logits = module(x)
        return Step(
            params=params,
            server=client.server,
            memory=client.memory,
            shared=client.shared,
            x=x,
            y=y,
            valid=torch.ones(len(y), dtype=network.dtype, device=network.device),
            counts=client.counts,
            features=features.to(network.dtype),
            logits=logits.to(network.dtype),
            round=client.round,
            step=torch.tensor(number, device=network.device),
            steps=client.steps,
            lr=torch.full((), client.lr, dtype=network.dtype, device=network.device),
            forward=network.forward,
            differentiate=partial(differentiate, network, self.method, client.start),
        )

    def gradients(
        self, method: Method, step: Step, names: list[str], trained: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor], Model, Tensor]:
        """Return gradients, factors of rates, new frozen parameters, and the loss of one step."""
        loss = local_loss(method, step)
        gradients = [*torch.autograd.grad(loss, trained, materialize_grads=True)]
        with torch.no_grad():
            return *changed_gradients(method, step, names, gradients), loss.detach()
