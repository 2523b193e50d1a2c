"""torchvision's ResNet-18 at the images' own resolution (He et al., CVPR 2016)."""

from torch import nn
from torchvision.models import resnet18

from fedgrid.models import headless

WEIGHTS = {"imagenet": "ResNet18_Weights.IMAGENET1K_V1"}
SIDE_PATHS = ("downsample",)  # convolutions beside the main path


def body(shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return the body: the original stem and four stages, average-pooled."""
    return headless(resnet18(), shape[0]), 512
