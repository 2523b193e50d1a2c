"""Gradients of a client's loss at any model, for methods that look beyond the model in training."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.hooks.calling import untouched_generators
from fedgrid.engine.masked import Masked
from fedgrid.engine.optimisers import local_loss
from fedgrid.engine.state import reseed
from fedgrid.method import Method, Model, Step, log_likelihood


def differentiate(
    architecture: Architecture,
    method: Method,
    state: Model,
    step: Step,
    params: Model,
    valid: Tensor,
) -> Model:
    """Return the gradient of the method's loss at other parameters, by trained parameter.

    The batch is that of `step`, without the samples whose `valid` is 0. The network is in training
    mode; `state` has its other entries, such as BatchNorm's running statistics, which stay as they
    are.
    """

    def loss(trained: Model) -> Tensor:
        model = state | params | trained
        masked = Masked(valid, model)
        features, logits = call_in_training(architecture, model, step.x, masked)
        given: dict[str, Any] = {"features": features, "logits": logits, "valid": valid}
        with masked:
            return local_loss(method, replace(step, params=params | trained, **given))

    return torch.func.grad(loss)({name: params[name] for name in architecture.trainable})


@untouched_generators()
def differentiate_batch(
    architecture: Architecture, noise: int, model: Model, x: Tensor, y: Tensor
) -> Model:
    """Return the gradient of the mean cross-entropy of a batch, by parameter.

    It has those that local training leaves as they are, too. Of a network with several outputs it
    is the sum of their cross-entropies. `noise` seeds what the network draws, such as dropout.
    """
    reseed(architecture.device, noise)
    valid = torch.ones(len(y), dtype=architecture.dtype, device=y.device)

    def loss(trained: Model) -> Tensor:
        moved = model | trained
        _, logits = call_in_training(architecture, moved, x, Masked(valid, moved))
        outputs = logits.view(len(y), -1, logits.shape[-1]).unbind(1)
        return -torch.stack([log_likelihood(output, y).mean() for output in outputs]).sum()

    return torch.func.grad(loss)({name: model[name] for name in architecture.parameters})


def call_in_training(
    architecture: Architecture, model: Model, x: Tensor, masked: Masked
) -> tuple[Tensor, Tensor]:
    """Return features and logits of a model in training mode; `masked` gets its statistics."""
    entries = {name: model[name] for name in architecture.entries}
    with architecture.precision(), masked:
        features, logits = functional_call(architecture.live, entries, (x,))
    return features.to(architecture.dtype), logits.to(architecture.dtype)
