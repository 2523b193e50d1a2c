"""MobileNet of FedLMD's table 4: MobileNetV1 for CIFAR (Howard et al., 2017).

It has 3,217,226 parameters for ten classes. FedLMD's code has no such model. This is the layout of
FedBABU, by FedNTD's laboratory: a stem of stride 1, and BatchNorm without running statistics, which
uses the batch's statistics in evaluation too.
"""

from torch import nn

from fedgrid.models import batch_norm

WEIGHTS = {}  # no weights are published
BLOCKS = ("0", "9", "21", "33", "69", "head")  # a block begins where maps become smaller
ENCODER = 5
INDEPENDENT = False  # an image's output depends on the other images of its batch
# Output channels and stride of the depthwise-separable blocks.
LAYERS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *(*((512, 1),) * 5, (1024, 2), (1024, 1)),
)


def body(shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return the body: a 3x3 stem and 13 blocks, average-pooled; for images of any size."""
    layers = [*layer(shape[0], 32)]
    before = 32
    for after, stride in LAYERS:
        layers += layer(before, before, stride=stride, groups=before)
        layers += layer(before, after, kernel=1)
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), before


def layer(
    before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    """Return a convolution that keeps the size if its stride is 1, BatchNorm and ReLU."""
    padding = kernel // 2
    made = nn.Conv2d(before, after, kernel, stride, padding, groups=groups, bias=False)
    return made, batch_norm(after), nn.ReLU()
