"""Recurrent layers under vmap, which has no rule for torch's fused ones.

An LSTM is unrolled into its steps. Other layers are refused: the loop backend can train them.
"""

from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgrid.runtime.names import UsageError


def recurrent(model: nn.Module) -> list[tuple[str, nn.RNNBase]]:
    """Return the model's recurrent layers, with their names."""
    return [(name, m) for name, m in model.named_modules() if isinstance(m, nn.RNNBase)]


def check(model: nn.Module) -> None:
    """Refuse a model with a recurrent layer that `unrolled` does not cover."""
    for name, layer in recurrent(model):
        if layer.mode != "LSTM" or layer.bidirectional or layer.proj_size:
            raise UsageError(
                f"the backend stacked cannot train `{name}` ({layer}), because it can unroll LSTMs "
                "of one direction without projection only: choose `--backend loop`"
            )


def keep_apart(*models: nn.Module) -> None:
    """Keep the recurrent layers from moving their weights into one piece of a GPU's memory.

    A layer does so for cuDNN whenever it is given other weights. Those under vmap have no memory.
    """
    layer: Any
    for _, layer in chain.from_iterable(map(recurrent, models)):
        layer.flatten_parameters = lambda: None


def unrolled(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    weights: list[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what torch.lstm returns: outputs, and both states after the last step."""
    x, ends = x.transpose(0, 1) if batch_first else x, []
    each = len(weights) // layers
    for layer in range(layers):
        own = weights[layer * each : (layer + 1) * each]
        x, *end = unroll(x, state[0][layer], state[1][layer], *own)
        ends.append(end)
        if layer < layers - 1:
            x = F.dropout(x, dropout, training)
    hidden, cells = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return x.transpose(0, 1) if batch_first else x, hidden, cells


def unroll(
    x: Tensor,
    hidden: Tensor,
    cell: Tensor,
    into: Tensor,
    again: Tensor,
    bias: Tensor | None = None,
    bias_again: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one layer's outputs (length, B, width), and its states after the last step."""
    outputs = []
    for given in F.linear(x, into, bias).unbind():
        gates = given + F.linear(hidden, again, bias_again)
        enter, keep, new, show = gates.chunk(4, -1)
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = show.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs), hidden, cell
