"""CCVR: a classifier calibrated on virtual features (Luo et al., NeurIPS 2021).

The training is FedAvg's. To evaluate the server, its classifier is trained further on virtual
features: for each class, all clients' features of its samples give a mean and a covariance, and
`samples` features are drawn from the normal distribution with these. A client sends, for each
class, the number of its samples and the mean and covariance of their features by the server's
model; the sums here give the same mean and covariance over all clients, which are equal to those of
FL-bench's code for the same features, to 1e-15.

The classifier goes on from the server's, with SGD and cross-entropy. The calibrated model is not
sent to clients. The defaults of the classifier's training are chosen here. A class with fewer than
two samples has no features.
"""

from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call
from torch.utils._pytree import tree_map

from fedgrid.method import Client, Memory, Method, Model, Server

NEUTRAL = {"epochs": 0}  # with which it is FedAvg
RANGES = {
    "samples": "[1, inf)",
    "epochs": "[0, inf)",
    "batch": "[1, inf)",
    "lr": "(0, inf)",
    "momentum": "[0, 1)",
}

HEAD = "head."


def method(
    samples: int = 200, epochs: int = 10, batch: int = 64, lr: float = 0.01, momentum: float = 0.9
) -> Method:
    """samples: virtual features of each class; the others are of the classifier's SGD.

    With epochs 0 it is FedAvg.
    """

    def calibrate(server: Server) -> Model:
        generator = torch.Generator().manual_seed(server.noise)
        totals = reduce(partial(tree_map, torch.add), map(statistics, server.clients()))
        finite = all(bool(total.isfinite().all()) for total in totals.values())
        if not finite or not (totals["number"] > 1).any():
            return {}
        head: Any = server.architecture.head
        own = {n: server.model[HEAD + n].clone().requires_grad_() for n in head.state_dict()}
        features, labels = virtual(totals, samples, generator)
        features = features.to(own["weight"])
        optimiser = torch.optim.SGD([*own.values()], lr, momentum)
        for _ in range(epochs):
            order = torch.randperm(len(labels), generator=generator).to(
                labels.device, non_blocking=True
            )
            for which in order.split(batch):
                optimiser.zero_grad()
                logits = functional_call(head, own, (features[which],))
                F.cross_entropy(logits, labels[which]).backward()
                optimiser.step()
        return {HEAD + n: w.detach() for n, w in own.items()}

    return Method(deploy=calibrate)


def statistics(client: Client) -> Memory:
    """Return the number (K,), sum (K, D) and sum of products (K, D, D) of features by class."""

    @torch.no_grad()
    def summed(x: Tensor, y: Tensor) -> Memory:
        z = functional_call(client.architecture, client.model, (x,))[0].double()
        classes = F.one_hot(y, len(client.counts)).to(z)
        products = torch.einsum("nk,ni,nj->kij", classes, z, z)
        return {"number": classes.sum(0), "sum": classes.T @ z, "products": products}

    found: Memory = client.total(summed)
    return found


def virtual(totals: Memory, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return features (n, D) that are drawn for each class, and their labels (n,)."""
    features, labels = [], []
    for label, number in enumerate(totals["number"].tolist()):
        if number < 2:
            continue
        mean = totals["sum"][label] / number
        products = totals["products"][label] - number * mean[:, None] * mean
        values, vectors = torch.linalg.eigh(products / (number - 1))
        shape = (samples, len(mean))
        normal = torch.randn(shape, generator=generator, dtype=torch.float64).to(mean)
        features.append(mean + (normal * values.clamp(min=0).sqrt()) @ vectors.T)
        labels.append(torch.full((samples,), label, device=mean.device))
    return torch.cat(features), torch.cat(labels)
