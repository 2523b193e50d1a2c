"""A small CNN for the quick scale: two 3x3 convolutions with max-pooling, one hidden layer."""

from torch import nn

WEIGHTS = {}  # none are published


def body(shape: tuple[int, int, int], width: int = 64) -> tuple[nn.Module, int]:
    """16 and 32 channels; images of at least 4x4 pixels."""
    channels, height, across = shape
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * (height // 4) * (across // 4), width), nn.ReLU()),
    ), width
