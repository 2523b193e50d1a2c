"""Ditto: a second model at each client, held near the server's (Li, Hu, Beirami, Smith, ICML 2021).

A client k trains the server's model w as FedAvg does and, on the same batches, its own model v_k,
which minimises F_k(v_k) + lam / 2 |v_k - w|^2, with w as the server sent it. The server averages w
alone, so its model is FedAvg's. A client is evaluated with v_k, which it keeps; all v_k begin with
the initial weights of w.

The paper chooses lam from 0.1, 1 and 2 by validation data, the official code at each step if asked;
here it is fixed. That code gives all clients of a round the same weight; add `uniform` for that.
With it, the server's model and all v_k are equal to those of this code on the same batches, to
1e-15, where its TensorFlow is replaced by gradients of the same network. With the protocol's `clip`
both gradients are limited together.
"""

import torch
from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods._partial import keep, two_losses
from fedgrid.models._second import Pair

RANGES = {"lam": "[0, inf)"}
PRIVATE = ("private.",)
MODELS_KEPT = 1  # models per client


def method(lam: float = 1.0) -> Method:
    """lam: with 0 the second model is trained by its client alone."""

    def near(step: Step) -> Tensor:
        own = {n: v for n, v in step.params.items() if n.startswith(PRIVATE)}
        away = [
            (v - step.server[n.removeprefix("private.")]).square().sum() for n, v in own.items()
        ]
        return lam / 2 * torch.stack(away).sum()

    return keep(Pair, True, False) | Method(loss=two_losses, penalty=near, padded=True)
