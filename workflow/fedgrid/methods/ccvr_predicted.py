"""A placebo of CCVR without labels: each sample has the class that the server's model predicts.

The features are the same, and as many virtual ones are drawn of each class that is predicted for
two samples or more; the classifier is trained further in the same way. What CCVR gains over this
placebo is due to the labels. The other placebo, `ccvr_random`, shuffles the labels of each client.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

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

    def by_predictions(server: Server) -> Model:
        made: Model = calibrate(replace(server, clients=lambda: map(predicted, server.clients())))
        return made

    return Method(deploy=by_predictions)


def predicted(client: Client) -> Client:
    """Return the client with predictions for labels; only `total` over its data has them."""

    def total(function: Callable[[Tensor, Tensor], Any]) -> Any:
        @torch.no_grad()
        def of_chunk(x: Tensor, y: Tensor) -> Any:
            logits = functional_call(client.architecture, client.model, (x,))[1]
            return function(x, logits.argmax(1))

        return client.total(of_chunk)

    return replace(client, total=total)
