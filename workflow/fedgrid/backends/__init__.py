"""Two ways to take a cohort's local steps, with one result: `loop` and `stacked`."""

import torch
from torch import nn

SMALL = 50_000  # parameters: below, a step of a linear model is calls rather than arithmetic


def best(model: nn.Module, device: torch.device) -> str:
    """All clients at once on a GPU, and where a CPU would spend its time on calls.

    Mapped over clients instead of one after the other, small linear layers take a CPU half the
    time, and convolutions twice to five times as long (tests/benchmarks/README.md).
    """
    layers = [
        module for module in model.modules() if next(module.parameters(False), None) is not None
    ]
    linear = all(isinstance(layer, nn.Linear) for layer in layers)
    small = sum(parameter.numel() for parameter in model.parameters()) < SMALL
    return "stacked" if device.type == "cuda" or (linear and small) else "loop"
