"""The placebo of CCVR: the labels of each client's samples are shuffled among them.

A client still has as many samples of each class, and the same features. What CCVR gains over this
placebo is due to the class of each sample, and not to what tells clients apart, nor to more
training of the classifier with as many features of each class. The more classes a client has, the
less its shuffled labels say.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Client, Method, Model, Server
from fedgrid.methods import ccvr

NEUTRAL = {"epochs": 0}  # with which it is FedAvg
RANGES = {
    "samples": "[1, inf)",
    "epochs": "[0, inf)",
    "batch": "[1, inf)",
    "lr": "(0, inf)",
    "momentum": "[0, 1)",
}


def method(
    samples: int = 200, epochs: int = 10, batch: int = 64, lr: float = 0.01, momentum: float = 0.9
) -> Method:
    """The hyper-parameters are those of CCVR."""
    calibrate: Any = ccvr.method(samples, epochs, batch, lr, momentum).deploy

    def by_shuffled_labels(server: Server) -> Model:
        generator = torch.Generator().manual_seed(server.noise)
        made: Model = calibrate(
            replace(server, clients=lambda: (shuffled(c, generator) for c in server.clients()))
        )
        return made

    return Method(deploy=by_shuffled_labels)


def shuffled(client: Client, generator: torch.Generator) -> Client:
    """Return the client with its labels in a random order; only `total` over its data sees it."""
    classes = torch.arange(len(client.counts))
    labels = classes.repeat_interleave(client.counts.cpu())
    order = torch.randperm(len(labels), generator=generator)

    def total(function: Callable[[Tensor, Tensor], Any]) -> Any:
        left = iter(labels[order].tolist())

        def of_chunk(x: Tensor, y: Tensor) -> Any:
            return function(x, y.new_tensor(list(islice(left, len(y)))))

        return client.total(of_chunk)

    return replace(client, total=total)
