"""All clients of the cohort at once, parameters with a leading client axis. For GPUs.

Clients with less data are padded: a padded sample has no part in a loss or in BatchNorm's
statistics (`Masked`), a padded step changes nothing. Out of memory halves the stack and says so.
"""

import logging
from collections.abc import Iterator
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from fedgrid.backends.loop import objective
from fedgrid.engine import reseed
from fedgrid.method import Memory, State, Step
from fedgrid.schedule import Work

log = logging.getLogger(__name__)


def train(
    engine, run, memories: list[Memory], work: Work, lr: float
) -> Iterator[tuple[slice, State, Tensor]]:
    """Stack after stack of clients: which, their local models (G, ...), mean training losses."""
    reseed(engine.device, work.noise)
    size, c = getattr(engine, "stack", len(memories)), 0
    while c < len(memories):
        which = slice(c, min(c + size, len(memories)))
        try:
            state, losses = train_stack(engine, run.server, memories, run.shared, work, lr, which)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            engine.stack = size = ceil(size / 2)
            log.warning("out of memory: from now on %d clients at a time", size)
            continue
        yield which, state, losses
        c = which.stop


def train_stack(engine, server, memories, shared, work: Work, lr: float, which: slice):
    """`train` for the clients `which` of the cohort, side by side."""
    index, valid, draws = (
        torch.from_numpy(t[:, which]).to(engine.device)
        for t in (work.index, work.valid, work.draws)
    )
    counts = engine.federation.counts[work.clients[which]]
    memory = tree_map(lambda *tensors: torch.stack(tensors), *memories[which])
    state = {n: w.expand(len(counts), *w.shape) for n, w in server.items()}
    state |= memory.get("private", {})
    local_step = mapped_step(engine, server, shared)
    velocity, losses = None, []
    for s in range(len(index)):
        x, y = engine.batch(index[s].flatten(), draws[s].flatten(0, 1))
        x, y = x.unflatten(0, index[s].shape), y.unflatten(0, index[s].shape)
        active = valid[s].any(1)
        mask = valid[s].to(engine.dtype)
        mask[~active, 0] = 1  # an idle client needs a sample too; its step is thrown away
        grads, loss, buffers = local_step(state, memory, x, y, mask, counts)
        state, velocity = descend(engine, state, buffers, grads, velocity, active, lr)
        losses.append(loss * active)
    if not losses:
        return state, torch.zeros(len(counts), device=engine.device)
    return state, torch.stack(losses).sum(0) / valid.any(2).sum(0).clamp(min=1)


def mapped_step(engine, server: State, shared: Memory):
    """One local step's gradients, losses and BatchNorm statistics, mapped over clients."""
    method = engine.method

    def sent(memory: Memory) -> State:
        return server | memory.get("private", {})

    def loss(trained, state, memory, x, y, valid, counts):
        state = state | trained
        masked = Masked(valid, state)
        with engine.precision(), masked:
            outputs = functional_call(engine.live, state, (x,))
        features, logits = (output.to(engine.dtype) for output in outputs)
        params = {name: state[name] for name in engine.parameters}
        step = Step(
            *(params, sent(memory), memory, shared, x, y, valid, counts),
            *(features, logits),
            forward=engine.forward,
        )
        return objective(method, step), (masked.statistics, features, logits)

    def one(state, memory, x, y, valid, counts):
        trained = {name: state[name] for name in engine.trainable}
        fixed = {name: w for name, w in state.items() if name not in trained}
        grads, (value, (statistics, features, logits)) = grad_and_value(loss, has_aux=True)(
            trained, fixed, memory, x, y, valid, counts
        )
        if method.correct:
            params = {name: state[name] for name in engine.parameters}
            step = Step(
                *(params, sent(memory), memory, shared, x, y, valid, counts, features, logits),
                forward=engine.forward,
            )
            grads = method.correct(step, grads)
        return grads, value, statistics

    return vmap(one, randomness="different")


@torch.no_grad()
def descend(engine, state, statistics, grads, velocity, active, lr: float):
    """One step of SGD for the active clients; the new states and momentum buffers."""
    protocol = engine.protocol

    def where_active(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)

    if protocol["weight_decay"]:
        grads = {n: g + protocol["weight_decay"] * state[n] for n, g in grads.items()}
    if protocol["momentum"]:
        old = velocity or tree_map(torch.zeros_like, grads)
        grads = velocity = {
            n: where_active(protocol["momentum"] * old[n] + g, old[n]) for n, g in grads.items()
        }
    moved = {n: state[n] - lr * g for n, g in grads.items()} | statistics
    return state | {n: where_active(w, state[n]) for n, w in moved.items()}, velocity


class Masked(TorchFunctionMode):
    """BatchNorm in training mode over the valid samples only, without writing to its buffers."""

    def __init__(self, valid: Tensor, state: State):
        super().__init__()
        self.valid, self.statistics = valid, {}
        self.names = {id(tensor): name for name, tensor in state.items()}

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        """Every call of torch's API passes here; all but training BatchNorms go on as they are."""
        keywords = keywords or {}
        if function is F.batch_norm:
            named = dict(zip(_BATCH_NORM, arguments, strict=False)) | keywords
            if named["training"]:
                return self.batch_norm(**named)
        return function(*arguments, **keywords)

    def batch_norm(self, input, running_mean, running_var, weight, bias, training, momentum, eps):
        """(B, channels, ...) normalised; the new running statistics are left in `statistics`."""
        x = input.to(weight.dtype)
        axes, shape = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
        mask = self.valid.view(-1, *[1] * (x.dim() - 1)).to(x)
        samples = mask.sum() * x[0, 0].numel()
        mean = (x * mask).sum(axes) / samples
        centred = x - mean.view(shape)
        variance = (centred.square() * mask).sum(axes) / samples
        unbiased = variance * samples / (samples - 1)
        for running, batch in ((running_mean, mean), (running_var, unbiased)):
            name = self.names[id(running)]
            old = self.statistics.get(name, running)  # a module may be called more than once
            self.statistics[name] = (1 - momentum) * old + momentum * batch.detach()
        scale = weight / torch.sqrt(variance + eps)
        return (centred * scale.view(shape) + bias.view(shape)).to(input.dtype)


_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum")
_BATCH_NORM += ("eps",)
