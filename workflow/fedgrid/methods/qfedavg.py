"""q-FedAvg: clients with a large loss move the server more (q-FFL; Li et al., ICLR 2020).

With F_k the mean loss of the server's model on a client's training data, L = 1 / lr, and
D_k = L (server - local),

    h_k = q F_k^(q - 1) |D_k|^2 + L F_k^q        w <- w - sum_k F_k^q D_k / sum_k h_k

With q = 0 it is FedAvg whose clients weigh the same. 1e-10 is added to F_k, as in the authors'
code. The server's model is equal to that of this code on the same batches, to 1e-15, where its
TensorFlow is replaced by gradients of the same network. That code, like the paper, can also draw
clients with probabilities in proportion to their samples.

A client's weight is F_k^q L / sum_k h_k. The weights have a sum of at most 1; their placebo is
`swapped_weights`. Private entries have no part in the norm.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedgrid.method import Client, Cohort, Memory, Method

RANGES = {"q": "[0, inf)"}
OPTIMISERS = ("sgd",)  # Adam's change divided by the learning rate is no gradient
LEAST = 1e-10


def method(q: float = 1.0) -> Method:
    """q: how much more a large loss counts; 0 is FedAvg with `uniform`."""

    def weigh(cohort: Cohort) -> Tensor:
        losses = torch.stack([told["loss"] for told in cohort.measured]).to(cohort.sizes) + LEAST
        squares: Any = sum(delta.flatten(1).square().sum(1) for delta in cohort.deltas.values())
        long = 1 / cohort.lr
        powers = losses**q
        steep = q * losses ** (q - 1) * squares.to(losses) * long**2 + long * powers
        return long * powers / steep.sum()

    given: dict[str, Any] = {"any_sum": True, "weigh_after_training": True}
    return Method(measure=measure_loss, weigh=weigh, optimisers=OPTIMISERS, **given)


def measure_loss(client: Client) -> Memory:
    """Return the mean loss of the server's model on the client's training data; 0 without any."""
    return {"loss": mean_loss(client, client.server)}


def mean_loss(client: Client, model: dict[str, Tensor]) -> Tensor:
    """Return the mean cross-entropy () of a model on a client's training data; 0 without any."""

    @torch.no_grad()
    def summed(x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(client.architecture, model, (x,))[1]
        return F.cross_entropy(logits, y, reduction="sum")

    return client.total(summed) / client.counts.sum().clamp(min=1)
