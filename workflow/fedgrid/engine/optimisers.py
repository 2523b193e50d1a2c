"""The local loss and the SGD step of a client."""

import torch
from torch import Tensor

from fedgrid.method import Method, Step


def local_loss(method: Method, step: Step) -> Tensor:
    """Return the cross-entropy, or the method's own loss, plus the method's penalty."""
    loss = method.loss(step) if method.loss else step.cross_entropy()
    return loss + method.penalty(step) if method.penalty else loss


@torch.no_grad()
def descend(params, grads, velocity, protocol: dict, lr: float, idle: Tensor | None = None):
    """Take one step of SGD in place, as torch.optim.SGD does; return the momentum buffers.

    `idle` (G,) marks the clients, along the tensors' first axis, that take no step.
    """
    if protocol["weight_decay"]:
        grads = torch._foreach_add(grads, params, alpha=protocol["weight_decay"])
    if protocol["momentum"]:
        if velocity is None:
            velocity = [grad.clone() for grad in grads]
        else:
            torch._foreach_mul_(velocity, protocol["momentum"])
            torch._foreach_add_(velocity, grads)
        grads = velocity
    if idle is not None:
        grads = [grad.masked_fill(along(idle, grad), 0) for grad in grads]
    torch._foreach_add_(params, grads, alpha=-lr)
    return velocity


def along(clients: Tensor, tensor: Tensor) -> Tensor:
    """Return (G,) in a shape that broadcasts over `tensor` (G, ...)."""
    return clients.view(-1, *[1] * (tensor.dim() - 1))


@torch.no_grad()
def copy(into: list[Tensor], tensors: list[Tensor]) -> None:
    """Copy every tensor into its place."""
    torch._foreach_copy_(into, tensors)
