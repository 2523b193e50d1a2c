"""Elastic aggregation: sensitive parameters move less (Chen et al., CVPR 2023).

A client measures how sensitive the server's model is on its data. From 0 on, with the gradient g of
every batch of one epoch,

    s_k <- mu s_k + (1 - mu) g^2

With s the mean of s_k by FedAvg's weights, and the largest s_k of the round's clients, the server
moves each parameter by FedAvg's update times

    1 + tau - s / max_k s_k

The gradient is that of the squared norm of the logits, which needs no labels (`of="output"`). The
code of FL-bench takes the gradient of the loss (`of="loss"`), and has one s_k for each parameter
tensor, with the squared norm of its gradient (`by="tensor"`); in fact it takes the norm of the
first row of this gradient alone. With the norm of the whole gradient in that code, the server's
model is equal to its own on the same batches, to 1e-15. It uses 30 % of a client's samples, on
which it does not train, and its mean goes on from one participation to the next. With `shuffled`,
the placebo, each factor is that of another parameter or tensor, drawn anew in each round.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad

from fedgrid.method import Client, Cohort, Memory, Method, Model, weighted_sum
from fedgrid.methods.contribution import of_another

RANGES = {
    "tau": "[0, inf)",
    "mu": "[0, 1)",
    "of": ("output", "loss"),
    "by": ("parameter", "tensor"),
}


def method(
    tau: float = 0.5,
    mu: float = 0.95,
    of: str = "output",
    by: str = "parameter",
    shuffled: bool = False,
) -> Method:
    """tau: the most that a factor is above 1; mu: of the running mean; shuffled: the placebo.

    of: whose gradient is taken; by: what has a sensitivity.
    """

    def measure(client: Client) -> Memory:
        return {"sensitivity": sensitivity(client, mu, of == "loss", by == "tensor")}

    def aggregate(cohort: Cohort, weights: Tensor) -> Model:
        update = weighted_sum(cohort, weights)
        told = [measured["sensitivity"] for measured in cohort.measured]
        found = [factor([own[n] for own in told], weights, tau) for n in update]
        found = of_others(found, cohort.noise) if shuffled else found
        return {n: a * change for a, (n, change) in zip(found, update.items(), strict=True)}

    return Method(measure=measure, aggregate=aggregate, uses_weights=True)


def factor(own: list[Tensor], weights: Tensor, tau: float) -> Tensor:
    """Return the factors of a tensor's update from the clients' sensitivities."""
    all_of = torch.stack(own)
    largest = all_of.amax(0)
    mean = torch.tensordot(weights.to(all_of), all_of, dims=1)
    return 1 + tau - torch.where(largest > 0, mean / largest.clamp(min=1e-30), 1.0)


def of_others(factors: list[Tensor], seed: int) -> list[Tensor]:
    """Return the same factors, each in the place of another one."""
    flat = torch.cat([one.flatten() for one in factors])
    mixed = flat[of_another(flat, seed)]
    parts = mixed.split([one.numel() for one in factors])
    return [part.view_as(one) for part, one in zip(parts, factors, strict=True)]


def sensitivity(client: Client, mu: float, of_loss: bool, by_tensor: bool) -> Model:
    """Return the running means of squared gradients of the server's parameters, or of norms."""
    names = [name for name, _ in client.architecture.named_parameters()]
    trained = {name: client.server[name] for name in names}

    def value(params: Model, x: Tensor, y: Tensor) -> Tensor:
        logits: Any = functional_call(client.architecture, client.server | params, (x,))[1]
        return F.cross_entropy(logits, y) if of_loss else logits.square().sum(1).mean()

    found = {n: w.new_zeros(() if by_tensor else w.shape) for n, w in trained.items()}
    for x, y in client.epoch():
        for name, g in grad(value)(trained, x, y).items():
            square = g.square().sum() if by_tensor else g.square()
            found[name] = mu * found[name] + (1 - mu) * square
    return found
