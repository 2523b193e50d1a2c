"""A small CNN for the quick scale: two 3x3 convolutions of stride 2 and one hidden layer.

Strides replace pooling, because on 8x8 images a CPU spends its time on calls, not on arithmetic.
"""

from torch import nn

WEIGHTS = {}  # no weights are published
BLOCKS = ("0", "2", "5", "head")
ENCODER = 2


def body(shape: tuple[int, int, int], width: int = 64) -> tuple[nn.Module, int]:
    """Return the body, with 16 and 32 channels, for images of any size."""
    channels, height, across = shape
    quarter = ((height + 3) // 4) * ((across + 3) // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * quarter, width),
        nn.ReLU(),
    ), width
