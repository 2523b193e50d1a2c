"""The CNN of Li et al. (2021) for FEMNIST: the network of LEAF with a hidden layer of 512.

LEAF (Caldas et al., 2018) has 2,048 units there. It has 1,690,046 parameters for 62 classes of
1x28x28 images, and initial weights as `vgg11.py`. `fedavg_cnn.py` is the same function of other
initial weights.
"""

from collections import OrderedDict

from torch import nn

from fedgrid.models import Classifier, _vgg

WEIGHTS = {}  # no weights are published
BLOCKS = ("encoder1", "encoder2", "classifier1", "head")
ENCODER = 2
CHANNELS_LAST = True  # steps are 1.2 times as fast on CPUs


def body(shape: tuple[int, int, int], width: int = 512) -> tuple[nn.Module, int]:
    """Return the body: two 5x5 convolutions, each with 2x2 max-pooling and ReLU, one hidden layer.

    Images may have any size.
    """
    channels, height, across = shape
    blocks: dict[str, list[nn.Module]] = {
        "encoder1": layer(channels, 32),
        "encoder2": [*layer(32, 64), nn.Flatten()],
        "classifier1": [nn.Linear(64 * (height // 4) * (across // 4), width), nn.ReLU()],
    }
    made: OrderedDict[str, nn.Module] = OrderedDict()
    made |= {name: nn.Sequential(*layers) for name, layers in blocks.items()}
    return nn.Sequential(made), width


def layer(before: int, after: int) -> list[nn.Module]:
    """Return a convolution, pooling and ReLU; ReLU before the pooling would give the same."""
    return [nn.Conv2d(before, after, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]


def initialise(model: Classifier) -> None:
    """Draw all weights again: for convolutions as He et al. do, and for linear layers small."""
    model.apply(_vgg.draw)
