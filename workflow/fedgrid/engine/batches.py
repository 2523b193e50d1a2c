"""Refuse batches from which a model cannot learn, before the first round.

BatchNorm divides by the deviation of a channel's numbers in a batch. Of one number there is none:
torch refuses it, and the stack of clients, which masks padding, would compute with 0 / 0.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.samples import Samples
from fedgrid.runtime.names import UsageError


def check_batches(architecture: Architecture, samples: Samples) -> None:
    """Raise a UsageError if a client has a batch of one sample, and a BatchNorm single pixels."""
    protocol, members = samples.protocol, samples.federation.members
    size = protocol["batch"], protocol["smallest_batch"]
    if min(size) > 1:
        return
    alone = (k for k, ids in enumerate(members) if has_single(len(ids), *size))
    client = next(alone, None)
    if client is not None and normalises_pixels(architecture, samples):
        raise UsageError(
            f"client {client} has a batch of one sample, and the model has a BatchNorm over maps "
            "of one pixel, which needs at least two: set the protocol's `smallest_batch` and "
            "`batch` to at least 2"
        )


def has_single(samples: int, batch: int, smallest: int) -> bool:
    """Whether one of a client's batches has one sample."""
    return samples > 1 and (batch == 1 or (smallest <= 1 and samples % batch == 1))


def normalises_pixels(architecture: Architecture, samples: Samples) -> bool:
    """Whether one sample gives a BatchNorm of the model one number per channel."""
    x = samples.normalise(samples.federation.images[:2])
    with Watched() as watched:
        architecture.forward(architecture.draw(0), x)
    return watched.found


class Watched(TorchFunctionMode):
    """Notes whether a BatchNorm is called with one number per sample and channel."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Every call of torch's API passes here."""
        keywords = keywords or {}
        if function is F.batch_norm:
            self.found |= is_single(arguments[0] if arguments else keywords["input"])
        return function(*arguments, **keywords)


def is_single(x: Tensor) -> bool:
    """Whether (B, channels, ...) has one number per sample and channel."""
    return x[0, 0].numel() == 1
