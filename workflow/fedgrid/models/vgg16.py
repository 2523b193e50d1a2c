"""VGG-16 without BatchNorm, with 128 features (arXiv 2411.06352; layout in `_vgg.py`)."""

from torch import nn

from fedgrid.models import _vgg

WEIGHTS = {}  # no weights are published


def body(shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return the body, for images of any size."""
    return _vgg.Vgg(shape[0], norm=False), _vgg.WIDTH
