"""Two hidden layers of 200 units, for inputs of any shape.

The 2NN of McMahan et al. (AISTATS 2017).
"""

from math import prod

from torch import nn

WEIGHTS = {}  # no weights are published
CONVOLUTIONS = False
BLOCKS = ("0", "3", "head")
ENCODER = 1


def body(shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Inputs (B, *shape) -> features (B, 200)."""
    layers = (nn.Flatten(), nn.Linear(prod(shape), 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
    return nn.Sequential(*layers), 200
