"""Train one client after the other, in place in one module. Best on CPUs."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.client import Clients, LocalWork
from fedgrid.engine.optimisers import Optimiser, copy, listed, local_loss, named
from fedgrid.engine.state import reseed
from fedgrid.method import Memory, Method, Model, Step
from fedgrid.runtime.resolved import Protocol


class Backend:
    """Trains clients in the architecture's resident module."""

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
        copy([live[name] for name in client.server], list(client.server.values()))
        params = {name: live[name] for name in network.parameters}
        trained = [live[name] for name in network.trainable]
        state, losses = listed(client.optimiser, network.trainable), []
        for x, y in client.batches:
            gradients, loss = self.gradients(
                network.live, self.method, client, params, trained, x, y
            )
            state = self.optimiser.step(trained, gradients, state, client.lr)
            if which := network.trained_twice:
                twice = [trained[i] for i in which]  # the second step on a batch is FedAvg's
                gradients, _ = self.gradients(
                    network.live_served, Method(), client, params, twice, x, y
                )
                state = self.optimiser.step_again(which, trained, gradients, state, client.lr)
            losses.append(loss)
        nothing = torch.zeros((), device=network.device)
        loss = torch.stack(losses).mean() if losses else nothing
        return live, loss, named(state, network.trainable)

    def gradients(
        self,
        module: nn.Module,
        method: Method,
        client: LocalWork,
        params: Model,
        trained: list[Tensor],
        x: Tensor,
        y: Tensor,
    ) -> tuple[list[Tensor], Tensor]:
        """Return the gradients of one step, by trained parameter, and the loss."""
        network = self.architecture
        with network.precision():
            features, logits = module(x)
        valid = torch.ones(len(y), dtype=network.dtype, device=network.device)
        step = Step(
            params,
            client.server,
            client.memory,
            client.shared,
            x,
            y,
            valid,
            client.counts,
            features.to(network.dtype),
            logits.to(network.dtype),
            client.round,
            forward=network.forward,
        )
        loss = local_loss(method, step)
        gradients = [*torch.autograd.grad(loss, trained, materialize_grads=True)]
        if method.correct:
            named = dict(zip(network.trainable, gradients, strict=True))
            corrected = method.correct(step, named)
            gradients = [corrected[name] for name in network.trainable]
        return list(gradients), loss.detach()
