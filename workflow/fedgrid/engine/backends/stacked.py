"""Train all clients at once, with parameters that have a leading client axis. Best on GPUs.

Clients with less data are padded, if the method says that its functions leave padded samples out: a
padded sample has no part in FedAvg's loss or in BatchNorm's statistics (`Masked`), and a padded
step changes nothing. If the memory does not suffice, the stack is halved, with a warning.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from math import ceil

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.backends import _convolution, _recurrent
from fedgrid.engine.client import Clients, StackedBatch, StackedWork
from fedgrid.engine.optimisers import Optimiser, State, along, listed, local_loss, named
from fedgrid.engine.state import own_model, reseed
from fedgrid.method import Memory, Method, Model, Step

log = logging.getLogger(__name__)

PATIENCE = 3  # calls of a few clients' step before it is recorded


class Backend:
    """Trains as many clients at once as the memory allows."""

    def __init__(self, architecture: Architecture, method: Method, protocol: dict):
        _recurrent.check(architecture.live)
        _recurrent.keep_apart(architecture.live, architecture.empty)  # a teacher is `empty`
        self.architecture = architecture
        lasting = method.average_optimiser or protocol["optimiser_state"] == "kept"
        self.optimiser = Optimiser(protocol, lasting, stacked=True)
        self.size: int | None = None  # clients in a stack, after running out of memory
        names = architecture.trainable
        twice = [names[i] for i in architecture.trained_twice]
        self.step = StackedStep(LocalStep(architecture, method, architecture.live, names))
        served = architecture.live_served  # the second step on a batch is FedAvg's
        self.step_of_served = StackedStep(LocalStep(architecture, Method(), served, twice))

    def train(self, clients: Clients) -> Iterator[tuple[slice, Model, Tensor, Memory]]:
        """Yield per stack: positions, models (G, ...), mean training losses (G,), optimisers."""
        reseed(self.architecture.device, clients.noise)
        size, c = self.size or len(clients), 0
        while c < len(clients):
            which = slice(c, min(c + size, len(clients)))
            try:
                trained = self.train_stack(clients.stack(which))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.size = size = ceil(size / 2)
                log.warning("out of memory: from now on %d clients at a time", size)
                continue
            yield which, *trained
            c = which.stop

    def train_stack(self, clients: StackedWork) -> tuple[Model, Tensor, Memory]:
        """Return these clients' models after all steps, mean losses and optimisers' states."""
        models = {
            n: w.repeat(len(clients.counts), *[1] * w.dim()) for n, w in clients.server.items()
        }
        models |= {name: w.clone() for name, w in clients.memory.get("private", {}).items()}
        names = self.architecture.trainable
        state, losses = listed(clients.optimiser, names), []
        for batch in clients.batches:
            state, loss = self.take_step(clients, models, state, batch)
            losses.append(loss)
        nothing = torch.zeros(len(clients.counts), device=self.architecture.device)
        loss = torch.stack(losses).sum(0) / clients.steps.clamp(min=1) if losses else nothing
        return models, loss, named(state, names)

    def take_step(
        self, clients: StackedWork, models: Model, state: State, batch: StackedBatch
    ) -> tuple[State, Tensor]:
        """Take one step of all clients in place; return optimisers' states and losses (G,)."""
        idle = ~batch.valid.any(1)
        resting = None if batch.sizes.all() else idle
        trained = [models[name] for name in self.architecture.trainable]
        gradients, loss, statistics = self.step(clients, models, batch)
        state = self.optimiser.step(trained, gradients, state, clients.lr, idle=resting)
        take_over(models, statistics, resting)
        if which := self.architecture.trained_twice:
            gradients, _, statistics = self.step_of_served(clients, models, batch)
            state = self.optimiser.step_again(which, trained, gradients, state, clients.lr, resting)
            take_over(models, statistics, resting)
        return state, loss.masked_fill(idle, 0)


def take_over(models: Model, statistics: Model, idle: Tensor | None) -> None:
    """Put BatchNorm's new statistics into the models, in place, but for the clients `idle`."""
    for name, new in statistics.items():
        models[name] = new if idle is None else torch.where(along(idle, new), models[name], new)


class StackedStep:
    """One local step of a stack whose clients may have batches of different sizes.

    If a method leaves out padded samples, all clients take the step together. Otherwise those with
    equally many samples take it together, so that no batch is padded.
    """

    def __init__(self, step: "LocalStep"):
        self.padded, self.dtype = step.method.padded, step.architecture.dtype
        self.take, self.take_few = Recorded(step), Recorded(step, patience=PATIENCE)

    def __call__(self, clients: StackedWork, models: Model, batch: StackedBatch):
        """Return gradients by trained parameter, losses (G,) and statistics."""
        if self.padded or (batch.sizes == batch.y.shape[1]).all():
            return self.take_all(clients, models, batch)
        return self.take_by_size(clients, models, batch)

    def take_all(self, clients: StackedWork, models: Model, batch: StackedBatch):
        """Return the results of all clients, whose batches are padded to the longest."""
        mask = batch.valid.to(self.dtype)
        # An idle client needs a sample; its step is discarded.
        mask[:, 0].masked_fill_(~batch.valid.any(1), 1)
        return self.take(
            *(models, clients.server, clients.shared, clients.memory),
            *(batch.x, batch.y, mask, clients.counts, clients.round),
        )

    def take_by_size(self, clients: StackedWork, models: Model, batch: StackedBatch):
        """Return the results of all clients, put together from those of equal sizes."""
        found = None
        for size in np.unique(batch.sizes[batch.sizes > 0]):
            which = torch.from_numpy((batch.sizes == size).nonzero()[0]).to(batch.y.device)
            part = self.take_equal(clients, models, batch, which, int(size))
            found = found or tree_map(lambda of: of.new_zeros(len(batch.y), *of.shape[1:]), part)
            for whole, of in zip(*map(tree_leaves, (found, part)), strict=True):
                whole.index_copy_(0, which, of)
        return found

    def take_equal(
        self, clients: StackedWork, models: Model, batch: StackedBatch, which: Tensor, size: int
    ):
        """Return the results of the clients at the positions `which`, with `size` samples each."""
        own = {name: entry[which] for name, entry in models.items()}
        memory = tree_map(lambda kept: kept[which], clients.memory)
        x, y = batch.x[which, :size], batch.y[which, :size]
        mask = torch.ones_like(y, dtype=self.dtype)
        given = own, clients.server, clients.shared, memory
        return self.take_few(*given, x, y, mask, clients.counts[which], clients.round)


class LocalStep:
    """One local step of all clients: gradients, losses and BatchNorm statistics.

    Only the loss is mapped over clients: no client's loss depends on another's parameters, so the
    gradient of the sum of losses holds every client's own gradient.
    """

    # The leading client axis of state, server, shared, memory, x, y, valid, counts, round; None: no
    # axis.
    each = (0, None, None, 0, 0, 0, 0, 0, None)

    def __init__(
        self, architecture: Architecture, method: Method, module: nn.Module, trained: list[str]
    ):
        self.architecture, self.method = architecture, method
        self.module, self.entries, self.trained = module, [*module.state_dict()], trained

    def __call__(self, state, *rest):
        """Return gradients by trained parameter, losses (clients,) and statistics."""
        trained = {name: state[name].detach().requires_grad_() for name in self.trained}
        mapped = vmap(self.loss, self.each, randomness="different")
        value, statistics, *outputs = mapped(state | trained, *rest)
        grads = torch.autograd.grad(value.sum(), list(trained.values()), materialize_grads=True)
        if self.method.correct:
            named = dict(zip(trained, grads, strict=True))
            grads = self.corrected(named, state, *rest, *outputs)
        return list(grads), value.detach(), statistics

    def loss(self, state, server, shared, memory, x, y, valid, counts, number):
        """Return one client's loss, its batch statistics, and the outputs that `correct` reads."""
        masked, entries = Masked(valid, state), {name: state[name] for name in self.entries}
        with self.architecture.precision(), masked:
            outputs = functional_call(self.module, entries, (x,))
        outputs = [output.to(self.architecture.dtype) for output in outputs]
        step = self.seen(state, server, shared, memory, x, y, valid, counts, number, *outputs)
        with masked:  # a teacher may use batch statistics too
            value = local_loss(self.method, step)
        return value, masked.statistics, *(outputs if self.method.correct else ())

    @torch.no_grad()
    def corrected(self, grads, state, *rest) -> list[Tensor]:
        """Return all clients' gradients after the method's `correct`."""

        def correct(grads, state, *rest):
            return self.method.correct(self.seen(state, *rest), grads)

        corrected = vmap(correct, (0, *self.each, 0, 0))(grads, state, *rest)
        return [corrected[name] for name in grads]

    def seen(
        self, state, server, shared, memory, x, y, valid, counts, number, features, logits
    ) -> Step:
        """Return one client's step, as the method's functions read it."""
        params = {name: state[name] for name in self.architecture.parameters}
        return Step(
            params,
            own_model(server, memory),
            memory,
            shared,
            *(x, y, valid, counts, features, logits, number),
            forward=self.architecture.forward,
        )


class Recorded:
    """A function of nested tensors that is traced once per shape of its arguments, then replayed.

    With `patience`, calls of a shape before so many are not traced: a trace takes as long as some
    calls, and shapes of a few clients may come once only.

    The trace is the plain sequence of PyTorch's operations, including those of the gradient. It
    avoids the overhead of vmap, modules and autograd, half of a small model's step. A number that
    does not come from the arguments keeps its value of the first call.
    """

    def __init__(self, function: Callable, patience: int = 0):
        self.function, self.records = function, {}
        self.patience, self.calls = patience, Counter()

    def __call__(self, *arguments):
        """Return the function's result."""
        leaves, form = tree_flatten(arguments)
        kind = (form, *((t.shape, t.stride(), t.dtype) for t in leaves))
        self.calls[kind] += 1
        if self.calls[kind] <= self.patience:
            return self.function(*arguments)
        if kind not in self.records:
            self.records[kind] = self.record(leaves, form)
        graph, result = self.records[kind]
        with torch.no_grad():
            return tree_unflatten(graph(*leaves), result)

    def record(self, leaves: list[Tensor], form):
        """Return the function's trace, and the structure of its result."""
        result = None

        def flat(*leaves):
            nonlocal result
            flattened, result = tree_flatten(self.function(*tree_unflatten(leaves, form)))
            return flattened

        # Tensors are identified by `id`, and one tensor may occur in several places. A resumed run
        # records in another round, so what recording draws must not move the random numbers.
        gpus = {leaf.device for leaf in leaves if leaf.device.type == "cuda"}
        with torch.random.fork_rng(gpus):
            graph = make_fx(flat)(*(leaf.detach() for leaf in leaves))
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return graph, result


class Masked(TorchFunctionMode):
    """BatchNorm in training mode over the valid samples only, without writing to its buffers.

    LSTMs become plain operations, which vmap needs, and on GPUs small convolutions become
    products.
    """

    def __init__(self, valid: Tensor, state: Model):
        super().__init__()
        self.valid, self.statistics = valid, {}
        self.names = {id(tensor): name for name, tensor in state.items()}

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        """Every call of torch's API passes here; some are changed."""
        keywords = keywords or {}
        if function is F.conv2d:
            return _convolution.conv2d(*arguments, **keywords)
        if function is F.batch_norm:
            named = dict(zip(_BATCH_NORM, arguments, strict=False)) | keywords
            if named["training"]:
                return self.batch_norm(**named)
        if function is torch.lstm:
            return _recurrent.unrolled(*arguments, **keywords)
        return function(*arguments, **keywords)

    def batch_norm(self, input, running_mean, running_var, weight, bias, training, momentum, eps):
        """Return (B, channels, ...) normalised; store the new running statistics."""
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
