"""FedMLB: hybrid paths of local and sent blocks regularise a client (Kim et al., ICML 2022).

Kim, Kim and Han, "Multi-Level Branched Regularization for Federated Learning". Of a model with M
blocks there are M - 1 hybrid paths: path l has the client's first l blocks, and above them the
blocks that the server sent, which stay as they are (`models/_hybrid.py`). With q the probabilities
of the client's model and q_l those of path l, a client minimises

    CE(q) + lam1 mean_l CE(q_l) + lam2 mean_l KL(q_l || q)

where the divergence is that of the logits divided by tau. As in the authors' code it is not
multiplied by tau^2, and its gradient goes through both sides. On the same batches the server's
model is equal to that of this code, to 1e-15, in a network without BatchNorm; their ResNet-18 has
GroupNorm, and six blocks. That code clips gradients to the norm 10 (`clip`).

The model must name its blocks. The server's model has the copy of its own upper blocks, too, which
does not count as traffic, but for BatchNorm's running statistics.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Aggregated, Method, Model, Step
from fedgrid.models._hybrid import SENT, Hybrids

SPLITS = True  # the model must name its blocks
NEUTRAL = {"lam1": 0.0, "lam2": 0.0}  # with which it is FedAvg
RANGES = {"lam1": "[0, inf)", "lam2": "[0, inf)", "tau": "(0, inf)"}


def method(lam1: float = 1.0, lam2: float = 1.0, tau: float = 1.0) -> Method:
    """With lam1 and lam2 0 it is FedAvg; tau is the temperature."""
    if not (lam1 or lam2):
        return Method()

    def loss(step: Step) -> Tensor:
        own, *paths = (replace(step, logits=logits) for logits in step.logits.unbind(1))
        hybrid = torch.stack([path.cross_entropy() for path in paths]).mean()
        apart = [divergence(step, path.logits / tau, own.logits / tau) for path in paths]
        return own.cross_entropy() + lam1 * hybrid + lam2 * torch.stack(apart).mean()

    def send(end: Aggregated) -> Model:
        copied = [n for n in end.model if n.startswith(SENT)]
        return {n: end.model[n.removeprefix(SENT)].clone() for n in copied}

    hybrids: Any = Hybrids
    branched = Method(architecture=hybrids, frozen=(SENT,), loss=loss, padded=True)
    return branched | Method(refine=send, uses_deltas=False)


def divergence(step: Step, teacher: Tensor, student: Tensor) -> Tensor:
    """Return KL(softmax(teacher) || softmax(student)), averaged over the batch."""
    target, found = teacher.log_softmax(1), student.log_softmax(1)
    return step.mean((target.exp() * (target - found)).sum(1))
