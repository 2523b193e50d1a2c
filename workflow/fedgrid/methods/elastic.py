"""Elastic aggregation: sensitive parameters move less (Chen et al., CVPR 2023).

Before it trains, a client measures how sensitive the server's model is on its data. From 0 on, with
the gradient g of every batch of one epoch, for each parameter tensor,

    s_k <- mu s_k + (1 - mu) |g|^2

With s the mean of s_k by FedAvg's weights, and the largest s_k of the round's clients, the server
moves each tensor by FedAvg's update times

    1 + tau - s / max_k s_k

The paper takes the gradient of the squared norm of the logits, which needs no labels
(`of="output"`). The authors published no code. The code of FL-bench takes the gradient of the loss
(`of="loss"`), a tensor at a time as here, and 30 % of a client's samples; its mean goes on from one
participation to the next. With `shuffled`, the placebo, each tensor gets the factor of another one,
drawn anew in each round.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad

from fedgrid.method import Client, Cohort, Memory, Method, Model, weighted_sum
from fedgrid.methods.contribution import of_another
from fedgrid.runtime.names import UsageError


def method(
    tau: float = 0.5, mu: float = 0.95, of: str = "output", shuffled: bool = False
) -> Method:
    """tau of at least 0: the most that a factor is above 1; mu in [0, 1) of the running mean.

    of: "output" or "loss". shuffled: the placebo.
    """
    if tau < 0:
        raise UsageError(f"elastic: tau is {tau}: set it to 0 or more")
    if not 0 <= mu < 1:
        raise UsageError(f"elastic: mu is {mu}, and it is from 0 to below 1")
    if of not in ("output", "loss"):
        raise UsageError(f"elastic: of is output or loss, not {of!r}")

    def measure(client: Client) -> Memory:
        return {"sensitivity": sensitivity(client, mu, of == "loss")}

    def aggregate(cohort: Cohort, weights: Tensor) -> Model:
        update = weighted_sum(cohort, weights)
        told = [measured["sensitivity"] for measured in cohort.measured]
        found = torch.stack([factor([own[n] for own in told], weights, tau) for n in update])
        if shuffled:
            found = found[of_another(len(found), cohort.noise).to(found.device)]
        return {n: a * change for a, (n, change) in zip(found, update.items(), strict=True)}

    return Method(measure=measure, aggregate=aggregate, uses_weights=True)


def factor(own: list[Tensor], weights: Tensor, tau: float) -> Tensor:
    """Return the factor () of a tensor's update from the clients' sensitivities."""
    all_of = torch.stack(own).to(weights)
    largest = all_of.max()
    return 1 + tau - torch.where(largest > 0, weights @ all_of / largest.clamp(min=1e-30), 1.0)


def sensitivity(client: Client, mu: float, of_loss: bool) -> Model:
    """Return the running mean () of the squared gradient of each of the server's parameters."""
    names = [name for name, _ in client.architecture.named_parameters()]
    trained = {name: client.server[name] for name in names}

    def value(params: Model, x: Tensor, y: Tensor) -> Tensor:
        logits: Any = functional_call(client.architecture, client.server | params, (x,))[1]
        return F.cross_entropy(logits, y) if of_loss else logits.square().sum(1).mean()

    found = {name: w.new_zeros(()) for name, w in trained.items()}
    for x, y in client.epoch():
        for name, g in grad(value)(trained, x, y).items():
            found[name] = mu * found[name] + (1 - mu) * g.square().sum()
    return found
