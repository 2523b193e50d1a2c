"""VGG-16 with BatchNorm, with 128 features (arXiv 2411.06352; layout in `_vgg.py`).

The paper does not mention BatchNorm. Without it, 13 convolutions often do not begin to learn with
Adam, so this variant is the default. BatchNorm has running statistics, as in torchvision's
`vgg16_bn`.
"""

from torch import nn

from fedgrid.models import _vgg

WEIGHTS = {}  # no weights are published


def body(shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return the body, for images of any size."""
    return _vgg.Vgg(shape[0], norm=True), _vgg.WIDTH
