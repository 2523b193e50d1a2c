"""One client after the other, all its steps, in place in one resident model. Best on CPUs."""

import torch
from torch import Tensor

from fedgrid import seeds
from fedgrid.method import Memory, State, Step
from fedgrid.schedule import Work


def train(
    engine, server: State, memories: list[Memory], shared: Memory, work: Work, lr: float
) -> tuple[State, Tensor]:
    """The cohort's local models (C, ...) and their mean training losses (C,)."""
    live = engine.live.state_dict(keep_vars=True)
    states = {n: torch.empty((len(memories), *w.shape)).to(w) for n, w in server.items()}
    losses = []
    for c, client in enumerate(work.clients):
        torch.manual_seed(seeds.seed(work.noise, int(client)))
        sent = server | memories[c].get("private", {})
        copy([live[name] for name in sent], list(sent.values()))
        losses.append(local(engine, live, sent, memories[c], shared, work, c, lr))
        copy([state[c] for state in states.values()], [live[name] for name in states])
    return states, torch.stack(losses)


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
def descend(params, grads, velocity, protocol: dict, lr: float):
    """One step of SGD in place, as torch.optim.SGD takes it; the new momentum buffers."""
    if protocol["weight_decay"]:
        grads = torch._foreach_add(grads, params, alpha=protocol["weight_decay"])
    if protocol["momentum"]:
        if velocity is None:
            velocity = [grad.clone() for grad in grads]
        else:
            torch._foreach_mul_(velocity, protocol["momentum"])
            torch._foreach_add_(velocity, grads)
        grads = velocity
    torch._foreach_add_(params, grads, alpha=-lr)
    return velocity


@torch.no_grad()
def copy(into: list[Tensor], tensors: list[Tensor]) -> None:
    """Copy every tensor into its place."""
    torch._foreach_copy_(into, tensors)
