"""The local loss of a client, and the optimiser of its local steps: SGD, Adam or AdamW.

Adam: Kingma and Ba (ICLR 2015). AdamW: Loshchilov and Hutter (ICLR 2019). Every step gives the
numbers of `torch.optim` up to rounding. That library is not used, because one step here moves one
client, or all clients of a stack, each with a state of its own.

With `clip` a client's gradient is limited as by `torch.nn.utils.clip_grad_norm_`: its largest
Euclidean norm over all trained parameters together. It is the gradient of the whole loss, after a
method's `correct`, and before weight decay and momentum, as where that function is called between
`backward` and `step`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.method import Memory, Method, Model, Step
from fedgrid.runtime.resolved import Protocol

# An optimiser's state: lists of tensors by slot, in the order of the trained parameters, and for
# Adam the number of steps.
State = dict[str, Any]
Tensors = list[Tensor] | tuple[Tensor, ...]
STATE = "optimiser"  # where a client's memory, or what the server sends, holds a state


def local_loss(method: Method, step: Step) -> Tensor:
    """Return the cross-entropy, or the method's own loss, plus the method's penalty."""
    loss = method.loss(step) if method.loss else step.cross_entropy()
    return loss + method.penalty(step) if method.penalty else loss


def changed_gradients(
    method: Method, step: Step, names: list[str], gradients: list[Tensor]
) -> tuple[list[Tensor], list[Tensor], Model]:
    """Return one client's gradients after `correct`, factors of `rate`, and new frozen parameters.

    Gradients and factors are in the order of the names.
    """
    given = dict(zip(names, gradients, strict=True))
    corrected = method.correct(step, given) if method.correct else given
    frozen = {name: value for name, value in corrected.items() if name not in given}
    return [corrected[name] for name in names], factors(method, step, names), frozen


def factors(method: Method, step: Step, names: list[str]) -> list[Tensor]:
    """Return the factors of the learning rate for these parameters; none without `rate`."""
    if not method.rate:
        return []
    rates, whole = method.rate(step), torch.ones_like(step.valid[0])
    return [rates.get(name, whole) for name in names]


class Optimiser:
    """The optimiser of a protocol. An empty state is that before the first step.

    `lasting` says that states are read after the local training, so that a client that takes no
    step must keep its own; `stacked`, that tensors have a leading client axis.
    """

    def __init__(self, protocol: Protocol, lasting: bool = False, stacked: bool = False):
        self.kind, self.lasting = protocol["optimiser"], lasting
        self.clip, self.stacked = protocol["clip"], stacked
        self.momentum, self.decay = protocol["momentum"], protocol["weight_decay"]
        self.beta1, self.beta2 = protocol["beta1"], protocol["beta2"]
        self.epsilon = protocol["epsilon"]
        self.direction = self.sgd if self.kind == "sgd" else self.adam

    def start(self, params: list[Tensor]) -> State:
        """Return the state before the first step, with zeros for these parameters."""
        slots = {"sgd": ("momentum",) if self.momentum else ()}.get(self.kind, ("mean", "square"))
        state: State = {slot: [torch.zeros_like(tensor) for tensor in params] for slot in slots}
        if self.kind != "sgd":
            clients = params[0].shape[: int(self.stacked)]
            state["steps"] = params[0].new_zeros(clients, dtype=torch.float64)
        return state

    @torch.no_grad()
    def step(
        self,
        params: list[Tensor],
        grads: Tensors,
        state: State,
        lr: float | Tensor,
        idle: Tensor | None = None,
        rates: Sequence[Tensor] = (),
    ) -> State:
        """Change the parameters in place by one step; return the state after it.

        `idle` (G,) marks the clients, along the tensors' first axis, that take no step. `rates`
        are factors of the learning rate, one for each parameter, or (G,); none: all are 1.
        """
        before: State = {}
        if rates or (idle is not None and self.lasting):
            before = tree_map(torch.clone, state or self.start(params))
        if rates:
            grads = [g.masked_fill(along(r == 0, g), 0) for g, r in zip(grads, rates, strict=True)]
        if self.clip:
            grads = clipped(grads, self.clip, self.stacked)
        if self.decay and self.kind != "adamw":
            grads = torch._foreach_add(grads, params, alpha=self.decay)
        direction, state = self.direction(grads, state)
        if self.decay and self.kind == "adamw":
            direction = torch._foreach_add(direction, params, alpha=self.decay)
        if rates:
            direction = [way * along(r, way) for way, r in zip(direction, rates, strict=True)]
            state = kept_still(state, before, rates)
        if idle is not None:
            direction = [way.masked_fill(along(idle, way), 0) for way in direction]
        if isinstance(lr, Tensor):  # a record has it as an argument
            torch._foreach_sub_(params, torch._foreach_mul(direction, lr))
        else:
            torch._foreach_add_(params, direction, alpha=-lr)
        return kept_idle(state, before, idle) if self.lasting and idle is not None else state

    def step_again(
        self,
        which: list[int],
        params: list[Tensor],
        grads: list[Tensor],
        state: State,
        lr: float | Tensor,
        idle: Tensor | None = None,
    ) -> State:
        """Take one more step of SGD with the parameters at the positions `which`.

        The other parameters, and their momentum, stay as they are. `grads` are those of `which`.
        """
        own = {slot: [kept[i] for i in which] for slot, kept in state.items()}
        after = self.step([params[i] for i in which], grads, own, lr, idle)
        for slot, kept in after.items():
            for i, tensor in zip(which, kept, strict=True):
                state[slot][i] = tensor
        return state

    def sgd(self, grads: Tensors, state: State) -> tuple[Tensors, State]:
        """Return the direction of SGD: the gradient, or the momentum buffer after it."""
        if not self.momentum:
            return grads, state
        if not state:
            state = {"momentum": [grad.clone() for grad in grads]}
        else:
            torch._foreach_mul_(state["momentum"], self.momentum)
            torch._foreach_add_(state["momentum"], grads)
        return state["momentum"], state

    def adam(self, grads: Tensors, state: State) -> tuple[Tensors, State]:
        """Return Adam's direction: the mean of gradients over the root of that of their squares."""
        if not state:
            state = self.start([*grads])
        mean, square, steps = state["mean"], state["square"], state["steps"] + 1
        torch._foreach_lerp_(mean, grads, 1 - self.beta1)
        torch._foreach_mul_(square, self.beta2)
        torch._foreach_addcmul_(square, grads, grads, 1 - self.beta2)
        roots = torch._foreach_sqrt(square)
        scaled(roots, 1 / (1 - self.beta2**steps).sqrt())
        torch._foreach_add_(roots, self.epsilon)
        direction = torch._foreach_div(mean, roots)
        scaled(direction, 1 / (1 - self.beta1**steps))
        return direction, {"mean": mean, "square": square, "steps": steps}


def clipped(grads: Tensors, limit: float, stacked: bool) -> Tensors:
    """Return gradients whose norm over all tensors, of each client in a stack, is within a limit.

    As in torch, 1e-6 is added to the norm, and a norm that is not finite is not an error.
    """
    flat = [grad.reshape(len(grad), -1) if stacked else grad.flatten() for grad in grads]
    norms = [torch.linalg.vector_norm(grad, dim=-1) for grad in flat]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    factor = (limit / (norm + 1e-6)).clamp(max=1)
    return [grad * along(factor, grad) for grad in grads]


def scaled(tensors: Tensors, factor: Tensor) -> None:
    """Multiply the tensors in place by a number, or by one number per client."""
    for tensor in tensors:
        tensor.mul_(along(factor, tensor).to(tensor))


def kept_idle(state: State, before: State, idle: Tensor) -> State:
    """Return the state in which the clients `idle` have what they had before."""

    def own(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(along(idle, new), old, new)

    return tree_map(own, state, before)


def kept_still(state: State, before: State, rates: Sequence[Tensor]) -> State:
    """Return the state in which parameters whose factor is 0 have what they had before."""

    def own(new: Tensor, old: Tensor, rate: Tensor) -> Tensor:
        return torch.where(along(rate == 0, new), old, new)

    return {
        slot: [*map(own, kept, before[slot], rates)] if isinstance(kept, list) else kept
        for slot, kept in state.items()
    }


def of_entries(memory: Memory, names: list[str]) -> Memory:
    """Return a state, as `named` gives it, of these parameters only."""
    wanted = {*names}
    return {
        slot: {n: w for n, w in kept.items() if n in wanted} if isinstance(kept, dict) else kept
        for slot, kept in memory.items()
    }


def overlaid(memory: Memory, other: Memory) -> Memory:
    """Return a state, as `named` gives it, with the parameters of another one in place of its own.

    What a state has once, such as the number of Adam's steps, stays.
    """
    return {
        slot: kept | other.get(slot, {}) if isinstance(kept, dict) else kept
        for slot, kept in memory.items()
    }


def named(state: State, names: list[str]) -> Memory:
    """Return a state with a dict of tensors by parameter instead of each list."""
    return {
        slot: dict(zip(names, kept, strict=True)) if isinstance(kept, list) else kept
        for slot, kept in state.items()
    }


def listed(memory: Memory, names: list[str]) -> State:
    """Return the inverse of `named`, in tensors of its own."""
    state = {
        slot: [kept[name] for name in names] if isinstance(kept, dict) else kept
        for slot, kept in memory.items()
    }
    return tree_map(torch.clone, state)


def along(clients: Tensor, tensor: Tensor) -> Tensor:
    """Return (G,) in a shape that broadcasts over `tensor` (G, ...); a number stays a number."""
    return clients.view(-1, *[1] * (tensor.dim() - 1)) if clients.dim() else clients


@torch.no_grad()
def copy(into: list[Tensor], tensors: list[Tensor]) -> None:
    """Copy every tensor into its place."""
    torch._foreach_copy_(into, tensors)
