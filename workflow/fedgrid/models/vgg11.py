"""VGG-11 without BatchNorm in six blocks (Simonyan and Zisserman, ICLR 2015), for small images.

It is the network of Li et al. (2021) on where to privatise: four blocks of two convolutions, and a
classifier of two linear layers. It has 9,354,378 parameters for ten classes and 9,377,508 for 100.
The initial weights are those of the authors' code: without BatchNorm they matter. Images that are
grey, small or large are treated as in `_vgg.py`.
"""

from collections import OrderedDict

from torch import nn

from fedgrid.models import Classifier, _vgg

WEIGHTS = {}  # no weights are published
BLOCKS = ("encoder1", "encoder2", "encoder3", "encoder4", "classifier1", "head")
ENCODER = 4


def body(shape: tuple[int, int, int], width: int = 256) -> tuple[nn.Module, int]:
    """Return the body, for images of any size."""
    channels = 3 if shape[0] == 1 else shape[0]
    single = nn.AdaptiveAvgPool2d(1)  # changes nothing at 32x32
    blocks: dict[str, list[nn.Module]] = {
        "encoder1": [_vgg.Frame(), *layer(channels, 64, pool=True), *layer(64, 128, pool=True)],
        "encoder2": [*layer(128, 256), *layer(256, 256, pool=True)],
        "encoder3": [*layer(256, 512), *layer(512, 512, pool=True)],
        "encoder4": [*layer(512, 512), *layer(512, 512, pool=True), single, nn.Flatten()],
        "classifier1": [nn.Linear(512, width), nn.ReLU()],
    }
    made: OrderedDict[str, nn.Module] = OrderedDict()
    made |= {name: nn.Sequential(*layers) for name, layers in blocks.items()}
    return nn.Sequential(made), width


def layer(before: int, after: int, pool: bool = False) -> list[nn.Module]:
    """Return a 3x3 convolution and ReLU, with a pooling between them that gives the same."""
    pooling = [nn.MaxPool2d(2)] if pool else []
    return [nn.Conv2d(before, after, 3, padding=1), *pooling, nn.ReLU()]


def initialise(model: Classifier) -> None:
    """Draw all weights again: for convolutions as He et al. do, and for linear layers small."""
    model.apply(_vgg.draw)
