"""The CNN of McMahan et al. (AISTATS 2017) as in FedNTD and FedLMD, for images of any size.

It has 2,156,490 parameters for ten classes of 3x32x32 images.
"""

from torch import nn

WEIGHTS = {}  # no weights are published
BLOCKS = ("0", "3", "7", "head")
ENCODER = 2
CHANNELS_LAST = True  # steps are 1.3 times as fast on CPUs; those of a ResNet at 32x32 are slower


def body(shape: tuple[int, int, int], width: int = 512) -> tuple[nn.Module, int]:
    """Return the body: two 5x5 convolutions, each with 2x2 max-pooling and ReLU, one hidden layer.

    Pooling before ReLU is the same function with the same gradients, and a quarter of ReLU's work.
    """
    channels, height, across = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (across // 4), width),
        nn.ReLU(),
    ), width
