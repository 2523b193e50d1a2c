"""One client after the other, all its steps, in place in one resident model. Best on CPUs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedgrid import seeds
from fedgrid.engine import reseed
from fedgrid.method import Memory, State, Step
from fedgrid.schedule import Work


def train(
    engine, run, memories: list[Memory], work: Work, lr: float
) -> Iterator[tuple[slice, State, Tensor]]:
    """Client after client of the cohort: which, its local model (1, ...), mean training loss (1,).

    The model is the resident one, and only its until the next is asked for.
    """
    live = engine.live.state_dict(keep_vars=True)
    for c, client in enumerate(work.clients):
        reseed(engine.device, seeds.seed(work.noise, int(client)))
        sent = run.server | memories[c].get("private", {})
        copy([live[name] for name in sent], list(sent.values()))
        loss = local(engine, live, sent, memories[c], run.shared, work, c, lr)
        yield slice(c, c + 1), {n: w.detach()[None] for n, w in live.items()}, loss[None]


def local(engine, live, server, memory, shared, work: Work, c: int, lr: float) -> Tensor:
    """All the steps of one client; its mean loss."""
    params = {name: live[name] for name in engine.parameters}
    trained = [live[name] for name in engine.trainable]
    counts = engine.federation.counts[work.clients[c]]
    index, draws = (torch.from_numpy(t[:, c]).to(engine.device) for t in (work.index, work.draws))
    sizes, velocity, losses = work.valid[:, c].sum(1), None, []
    for s in range(work.steps[c]):
        x, y = engine.batch(index[s, : sizes[s]], draws[s, : sizes[s]])
        with engine.precision():
            features, logits = engine.live(x)
        valid = torch.ones(len(y), dtype=engine.dtype, device=engine.device)
        step = Step(
            *(params, server, memory, shared, x, y, valid, counts),
            *(features.to(engine.dtype), logits.to(engine.dtype)),
            forward=engine.forward,
        )
        loss = objective(engine.method, step)
        grads = torch.autograd.grad(loss, trained, materialize_grads=True)
        if engine.method.correct:
            corrected = engine.method.correct(step, dict(zip(engine.trainable, grads, strict=True)))
            grads = [corrected[name] for name in engine.trainable]
        velocity = descend(trained, list(grads), velocity, engine.protocol, lr)
        losses.append(loss.detach())
    return torch.stack(losses).mean() if losses else torch.zeros((), device=engine.device)


def objective(method, step: Step) -> Tensor:
    """The local loss: cross-entropy, or what the method puts in its place, and its penalty."""
    loss = method.loss(step) if method.loss else step.cross_entropy()
    return loss + method.penalty(step) if method.penalty else loss


@torch.no_grad()
def descend(params, grads, velocity, protocol: dict, lr: float, idle: Tensor | None = None):
    """One step of SGD in place, as torch.optim.SGD takes it; the new momentum buffers.

    `idle` (G,) says which of the clients along the tensors' first axis take no step.
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
    """(G,) in a shape that broadcasts over `tensor` (G, ...)."""
    return clients.view(-1, *[1] * (tensor.dim() - 1))


@torch.no_grad()
def copy(into: list[Tensor], tensors: list[Tensor]) -> None:
    """Copy every tensor into its place."""
    torch._foreach_copy_(into, tensors)
