"""Convolutions of a stack as matrix products, one product for each client, all in a single call.

Under vmap, a convolution with weights of its own for each client becomes a grouped one. cuDNN's
kernels for groups are slow on small maps. A product first copies the windows that a kernel meets,
so it needs more memory, and is no gain for large kernels (tests/benchmarks/README.md).
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

TAPS = 9  # of a kernel, at most: with 25 a round of a CNN is slower, and 49 are no gain


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[Any, ...] = 1,
    padding: int | tuple[Any, ...] | str = 0,
    dilation: int | tuple[Any, ...] = 1,
    groups: int = 1,
) -> Tensor:
    """Return what torch's conv2d returns, up to rounding: (B, out, height, width)."""
    if not worth(input, weight) or not plain(input, padding, dilation, groups):
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return product(input, weight, bias, pair(stride), pair(padding))


def worth(x: Tensor, weight: Tensor) -> bool:
    """Whether a product is faster than a grouped convolution: on a GPU, with a small kernel."""
    return x.is_cuda and weight.shape[2:].numel() <= TAPS


def plain(
    x: Tensor, padding: int | tuple[Any, ...] | str, dilation: int | tuple[Any, ...], groups: int
) -> bool:
    """Whether `product` covers a convolution."""
    batched = x.dim() == 4 and not isinstance(padding, str)
    return batched and groups == 1 and pair(dilation) == (1, 1)


def pair(size: Any) -> tuple[int, int]:
    """Return a size by dimension: height, width."""
    return (size, size) if isinstance(size, int) else tuple(size)


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[Any, ...],
    padding: tuple[Any, ...],
) -> Tensor:
    """Return the convolution as the product of the weights and the windows of the images."""
    height, width = padding
    x = F.pad(x, (width, width, height, height)) if height or width else x
    rows, columns = weight.shape[2:]
    windows = x.unfold(2, rows, stride[0]).unfold(3, columns, stride[1])
    taps = windows.permute(1, 4, 5, 0, 2, 3).flatten(0, 2).flatten(1)  # (in x taps, B x places)
    found = weight.flatten(1) @ taps
    found = found if bias is None else found + bias[:, None].to(found.dtype)
    batch, _, *places = windows.shape[:4]
    return found.unflatten(1, (batch, *places)).transpose(0, 1).contiguous()


def fold(windows: Tensor, shape: list[int], dim: int, size: int, step: int) -> Tensor:
    """Return the gradient of `unfold`: every place gets the sum of its numbers in all windows.

    windows (..., size) has the windows along `dim`. It is written in operations that torch's
    compiler makes one of, which adds up in a fixed order.
    """
    dim, total = dim % len(shape), windows.new_zeros(())
    beyond = (0, 0) * (len(shape) - dim - 1)
    for place in range(size):
        apart = F.pad(windows[..., place].unsqueeze(dim + 1), (*beyond, 0, step - 1))
        line = apart.flatten(dim, dim + 1)
        total = total + F.pad(line, (*beyond, place, shape[dim] - place - line.shape[dim]))
    return total
