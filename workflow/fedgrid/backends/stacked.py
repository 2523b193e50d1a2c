"""All clients of the cohort at once, parameters with a leading client axis. For GPUs.

Clients with less data are padded: a padded sample has no part in a loss or in BatchNorm's
statistics (`Masked`), a padded step changes nothing. Out of memory halves the stack and says so.
"""

import logging
from collections.abc import Callable, Iterator
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from fedgrid.backends.loop import along, descend, objective
from fedgrid.engine import reseed
from fedgrid.method import Memory, State, Step
from fedgrid.schedule import Work

log = logging.getLogger(__name__)


def train(
    engine, run, memories: list[Memory], work: Work, lr: float
) -> Iterator[tuple[slice, State, Tensor]]:
    """Stack after stack of clients: which, their local models (G, ...), mean training losses."""
    reseed(engine.device, work.noise)
    size, c = engine.between.get("stack", len(memories)), 0
    while c < len(memories):
        which = slice(c, min(c + size, len(memories)))
        try:
            state, losses = train_stack(engine, run.server, memories, run.shared, work, lr, which)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            engine.between["stack"] = size = ceil(size / 2)
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
    state = {n: w.repeat(len(counts), *[1] * w.dim()) for n, w in server.items()}
    state |= {name: w.clone() for name, w in memory.get("private", {}).items()}
    if "step" not in engine.between:
        engine.between["step"] = Recorded(LocalStep(engine))
    local_step = engine.between["step"]
    velocity, losses = None, []
    for s in range(len(index)):
        x, y = engine.batch(index[s].flatten(), draws[s].flatten(0, 1))
        x, y = x.unflatten(0, index[s].shape), y.unflatten(0, index[s].shape)
        idle = ~valid[s].any(1)
        mask = valid[s].to(engine.dtype)
        mask[:, 0].masked_fill_(idle, 1)  # an idle client needs a sample too; its step is no step
        arguments = state, server, shared, memory, x, y, mask, counts
        grads, loss, statistics = local_step(*arguments)
        everybody = work.valid[s, which].any(1).all()
        velocity = descend(
            *([state[name] for name in engine.trainable], grads, velocity, engine.protocol, lr),
            idle=None if everybody else idle,
        )
        for name, new in statistics.items():
            state[name] = new if everybody else torch.where(along(idle, new), state[name], new)
        losses.append(loss.masked_fill(idle, 0))
    if not losses:
        return state, torch.zeros(len(counts), device=engine.device)
    return state, torch.stack(losses).sum(0) / valid.any(2).sum(0).clamp(min=1)


class LocalStep:
    """One local step of all clients: gradients, losses and BatchNorm statistics.

    Only the loss is mapped: no client's loss depends on another's parameters, so that the gradient
    of their sum is every client's own.
    """

    # What leads with a client axis, of state, server, shared, memory, x, y, valid, counts.
    each = (0, None, None, 0, 0, 0, 0, 0)

    def __init__(self, engine):
        self.engine, self.method = engine, engine.method

    def __call__(self, state, *rest):
        """Gradients as a list in the order of the trainable parameters, losses (clients,)."""
        trained = {name: state[name].detach().requires_grad_() for name in self.engine.trainable}
        mapped = vmap(self.loss, self.each, randomness="different")
        value, statistics, *outputs = mapped(state | trained, *rest)
        grads = torch.autograd.grad(value.sum(), list(trained.values()), materialize_grads=True)
        if self.method.correct:
            named = dict(zip(trained, grads, strict=True))
            grads = self.corrected(named, state, *rest, *outputs)
        return list(grads), value.detach(), statistics

    def loss(self, state, server, shared, memory, x, y, valid, counts):
        """One client's loss, the statistics its batch leaves, and what `correct` will read."""
        masked = Masked(valid, state)
        with self.engine.precision(), masked:
            outputs = functional_call(self.engine.live, state, (x,))
        outputs = [output.to(self.engine.dtype) for output in outputs]
        step = self.seen(state, server, shared, memory, x, y, valid, counts, *outputs)
        with masked:  # a teacher may normalise by its batch too
            value = objective(self.method, step)
        return value, masked.statistics, *(outputs if self.method.correct else ())

    @torch.no_grad()
    def corrected(self, grads, state, *rest) -> list[Tensor]:
        """All clients' gradients as the method corrects them."""

        def correct(grads, state, *rest):
            return self.method.correct(self.seen(state, *rest), grads)

        corrected = vmap(correct, (0, *self.each, 0, 0))(grads, state, *rest)
        return [corrected[name] for name in grads]

    def seen(self, state, server, shared, memory, *rest) -> Step:
        """The step of one client, as a method's terms see it."""
        params = {name: state[name] for name in self.engine.parameters}
        sent = server | memory.get("private", {})
        return Step(params, sent, memory, shared, *rest, forward=self.engine.forward)


class Recorded:
    """A function of nested tensors that is run once for each kind of arguments, and replayed.

    The record is the plain sequence of PyTorch's operations, gradients' included: what mapping,
    modules and autograd take to find it, half of a small model's step, is spent once. A number that
    the function takes from anywhere but its arguments stays what it was at the first call.
    """

    def __init__(self, function: Callable):
        self.function, self.records = function, {}

    def __call__(self, *arguments):
        """The function's result."""
        leaves, form = tree_flatten(arguments)
        kind = (form, *((t.shape, t.stride(), t.dtype) for t in leaves))
        if kind not in self.records:
            self.records[kind] = self.record(leaves, form)
        graph, result = self.records[kind]
        with torch.no_grad():
            return tree_unflatten(graph(*leaves), result)

    def record(self, leaves: list[Tensor], form):
        """The function's operations, and the form of its result."""
        result = None

        def flat(*leaves):
            nonlocal result
            flattened, result = tree_flatten(self.function(*tree_unflatten(leaves, form)))
            return flattened

        # Tensors are told apart by identity, and one may be in several places.
        graph = make_fx(flat)(*(leaf.detach() for leaf in leaves))
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return graph, result


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
            if running is None:
                continue
            name = self.names[id(running)]
            old = self.statistics.get(name, running)  # a module may be called more than once
            self.statistics[name] = (1 - momentum) * old + momentum * batch.detach()
        scale = weight / torch.sqrt(variance + eps)
        return (centred * scale.view(shape) + bias.view(shape)).to(input.dtype)


_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum")
_BATCH_NORM += ("eps",)
