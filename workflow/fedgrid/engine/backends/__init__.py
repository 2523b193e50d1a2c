"""Two ways to train a cohort, `loop` and `stacked`, with the same result up to rounding."""

import torch
from torch import nn

from fedgrid.engine.backends import _recurrent

SMALL = 50_000  # parameters; below, calls take more time than arithmetic in a linear model


def best(model: nn.Module, device: torch.device) -> str:
    """Return "stacked" for a GPU, and for a small linear model on a CPU; else "loop".

    On a CPU, stacking halves the time of small linear layers, but convolutions take two to five
    times as long (tests/benchmarks/README.md). A recurrent layer takes a whole sequence in one call
    of the loop, and in the stack it takes some calls for every step.
    """
    if _recurrent.recurrent(model):
        return "loop"
    layers = [
        module for module in model.modules() if next(module.parameters(False), None) is not None
    ]
    linear = all(isinstance(layer, nn.Linear) for layer in layers)
    small = sum(parameter.numel() for parameter in model.parameters()) < SMALL
    return "stacked" if device.type == "cuda" or (linear and small) else "loop"
