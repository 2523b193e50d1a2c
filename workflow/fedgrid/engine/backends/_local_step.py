"""One local step of all clients at once: gradients, losses and BatchNorm statistics.

A padded sample has no part in FedAvg's loss, nor in BatchNorm's statistics (`Masked`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.backends import _convolution, _recurrent
from fedgrid.engine.optimisers import local_loss
from fedgrid.engine.state import own_model
from fedgrid.method import Memory, Method, Model, Step


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

    def __call__(self, state: Model, *rest: Any) -> Any:
        """Return gradients by trained parameter, losses (clients,) and statistics."""
        trained = {name: state[name].detach().requires_grad_() for name in self.trained}
        mapped = vmap(self.loss, self.each, randomness="different")
        value, statistics, *outputs = mapped(state | trained, *rest)
        inputs = list(trained.values())
        grads = [*torch.autograd.grad(value.sum(), inputs, materialize_grads=True)]
        if self.method.correct:
            named = dict(zip(trained, grads, strict=True))
            grads = self.corrected(named, state, *rest, *outputs)
        return grads, value.detach(), statistics

    def loss(
        self, state: Model, server: Model, shared: Memory, memory: Memory,
        x: Tensor, y: Tensor, valid: Tensor, counts: Tensor, number: Tensor,
    ) -> Any:  # fmt: skip
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
    def corrected(self, grads: Model, state: Model, *rest: Any) -> list[Tensor]:
        """Return all clients' gradients after the method's `correct`."""
        change: Any = self.method.correct

        def correct(grads: Model, state: Model, *rest: Any) -> Any:
            return change(self.seen(state, *rest), grads)

        corrected = vmap(correct, (0, *self.each, 0, 0))(grads, state, *rest)
        return [corrected[name] for name in grads]

    def seen(
        self, state: Model, server: Model, shared: Memory, memory: Memory,
        x: Tensor, y: Tensor, valid: Tensor, counts: Tensor, number: Tensor,
        features: Tensor, logits: Tensor,
    ) -> Step:  # fmt: skip
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


class Masked(TorchFunctionMode):
    """BatchNorm in training mode over the valid samples only, without writing to its buffers.

    LSTMs become plain operations, which vmap needs, and on GPUs small convolutions become
    products.
    """

    def __init__(self, valid: Tensor, state: Model):
        super().__init__()
        self.valid = valid
        self.statistics: dict[str, Tensor] = {}
        self.names = {id(tensor): name for name, tensor in state.items()}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
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

    def batch_norm(
        self, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
        weight: Tensor, bias: Tensor, training: bool, momentum: float, eps: float,
    ) -> Tensor:  # fmt: skip
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


_BATCH_NORM = (
    *("input", "running_mean", "running_var", "weight"),
    *("bias", "training", "momentum", "eps"),
)
