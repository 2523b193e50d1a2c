"""A CNN for real images on CPUs: three convolutions of stride 2 and one hidden layer.

Strides replace pooling, because a step then takes less time. An image of 3x32x32 takes 2.5 million
multiply-accumulates, and there are 124,106 parameters for ten classes. `workflow/studies/small.md`
says what the model reaches when it is trained centrally.
"""

from torch import nn

from fedgrid.models import Classifier

WEIGHTS = {}  # no weights are published
BLOCKS = ("0", "2", "4", "7", "head")
ENCODER = 3
CHANNELS_LAST = True


def body(shape: tuple[int, int, int], width: int = 64) -> tuple[nn.Module, int]:
    """Return the body, with 32, 64 and 64 channels, for images of any size."""
    channels, height, across = shape
    eighth = -(-height // 8) * -(-across // 8)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * eighth, width),
        nn.ReLU(),
    ), width


def initialise(model: Classifier) -> None:
    """Draw weights as He et al. (ICCV 2015) for ReLU, and set biases to 0."""
    for module in model.body.children():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
