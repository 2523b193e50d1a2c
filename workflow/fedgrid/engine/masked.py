"""BatchNorm over the valid samples of a padded batch, and other calls that vmap cannot map."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedgrid.engine import convolution, recurrent
from fedgrid.method import Model


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
            return convolution.conv2d(*arguments, **keywords)
        if function is F.batch_norm:
            named = dict(zip(_BATCH_NORM, arguments, strict=False)) | keywords
            if named["training"]:
                return self.batch_norm(**named)
        if function is torch.lstm:
            return recurrent.unrolled(*arguments, **keywords)
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
