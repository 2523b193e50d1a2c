"""VGG-16 for small images (Simonyan and Zisserman, ICLR 2015), with a last hidden layer of 128.

The paper of client contribution normalisation (arXiv 2411.06352) says only that VGG-16's last
hidden layer has 128 units. The layout here is this project's reading: the 13 convolutions, one
hidden layer after them, and no dropout. With ten classes the plain network has 14,781,642
parameters. Names and initial weights of the convolutions are as in torchvision's `features`, and
the hidden layer is drawn as torchvision draws VGG's linear layers.

Five poolings need 32x32 pixels. A smaller image gets a margin of zeros, the same on all sides but
for an odd pixel. Images are normalised before, so the margin has the mean grey of the dataset. A
grey image is repeated three times, as a colour image of the same grey. Larger images are averaged
before the hidden layer.
"""

import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 32  # least height and width after the margin is added
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
WIDTH = 128  # of the hidden layer


class Vgg(nn.Module):
    """Images (B, channels, height, width) -> the hidden layer's activations (B, 128)."""

    def __init__(self, channels: int, norm: bool):
        super().__init__()
        self.features = nn.Sequential(*layers(3 if channels == 1 else channels, norm))
        self.pool = nn.AdaptiveAvgPool2d(1)  # changes nothing at 32x32
        self.hidden = nn.Linear(STAGES[-1][-1], WIDTH)
        self.apply(draw)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations after ReLU."""
        features = self.pool(self.features(framed(x))).flatten(1)
        return F.relu(self.hidden(features))


def layers(before: int, norm: bool) -> list[nn.Module]:
    """Return all convolutions, each with ReLU and perhaps BatchNorm; a pooling ends a stage."""
    made: list[nn.Module] = []
    for stage in STAGES:
        for after in stage:
            made += [nn.Conv2d(before, after, 3, padding=1)]
            made += [nn.BatchNorm2d(after)] if norm else []
            made += [nn.ReLU()]
            before = after
        made += [nn.MaxPool2d(2)]
    return made


def framed(x: Tensor) -> Tensor:
    """Return images with a margin up to 32x32 pixels; grey ones get three equal channels."""
    high, wide = (max(0, SIDE - size) for size in x.shape[-2:])
    x = F.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
    return x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x


class Frame(nn.Module):
    """The function `framed` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Return images of at least 32x32 pixels, with three equal channels if they were grey."""
        return framed(x)


def draw(layer: nn.Module) -> None:
    """Draw a layer's weights as torchvision does for VGG; BatchNorm's are right as they are."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
    elif isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, 0, 0.01)
        nn.init.zeros_(layer.bias)
