"""ResNet-8 of FedLMD's table 4: the CIFAR ResNet with one block per stage (He et al., CVPR 2016).

It has 78,042 parameters for ten classes. FedLMD's code has no such model. This is the layout of the
FedRS authors' code. As in FedNTD's ResNets, BatchNorm has no running statistics: it uses the
batch's statistics in evaluation too.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from fedgrid.models import batch_norm

WEIGHTS = {}  # no weights are published
BLOCKS = ("0", "3", "4", "5", "head")
ENCODER = 4
INDEPENDENT = False  # an image's output depends on the other images of its batch
SIDE_PATHS = ("shortcut",)  # convolutions beside the main path


def body(shape: tuple[int, int, int], width: int = 16) -> tuple[nn.Module, int]:
    """Return the body: a 3x3 stem and blocks of 16, 32 and 64 channels, for images of any size."""
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
        batch_norm(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ), 4 * width


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            batch_norm(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            batch_norm(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            convolution = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, batch_norm(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, after, height / stride, width / stride) for x (B, before, height, width)."""
        return F.relu(self.main(x) + self.shortcut(x))
