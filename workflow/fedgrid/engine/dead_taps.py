"""Convolutions without dead taps: taps that only ever meet padding.

On small images the last maps of a network can be smaller than its kernels. At 32x32 the last stage
of torchvision's ResNet-18 has single pixels, and only one of nine taps of a padded 3x3 kernel
meets the pixel. A dead tap changes no output and has no gradient. A model without it is the same
function, with less to train, send, average and save: ResNet-18 loses 6.9 of its 11.2 million
weights. The shapes alone decide which taps are dead.
"""

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

Kept = dict[str, tuple[slice, ...]]  # by name of a weight (out, in, height, width): its live part


def trim(model: nn.Module, shape: tuple[int, ...]) -> Kept:
    """Cut dead taps out of the model's convolutions, in place; return the kept part by weight.

    `shape` is the shape of an image, (channels, height, width).
    """
    kept = {}
    for name, convolution, size in met(model, shape):
        ranges = [live(size[d], *geometry(convolution, d)) for d in range(len(size))]
        exact = [one for one in ranges if one is not None]
        if exact == ranges and exact != [(0, k) for k in convolution.kernel_size]:
            kept[f"{name}.weight"] = cut(convolution, exact)
    return kept


def met(
    model: nn.Module, shape: tuple[int, ...]
) -> Iterator[tuple[str, nn.Conv2d, tuple[Any, ...]]]:
    """Yield each zero-padded convolution whose inputs all have one size: name, module, size.

    Two images are passed: BatchNorm without running statistics refuses a single value per channel.
    A model without such a convolution is not called, because it may take no images.
    """
    sizes: dict[str, set[Any]] = {}
    found = {name: module for name, module in model.named_modules() if padded(module)}
    if not found:
        return
    hooks = [
        module.register_forward_pre_hook(
            lambda _, inputs, name=name: sizes.setdefault(name, set()).add(inputs[0].shape[2:])
        )
        for name, module in found.items()
    ]
    was_training = model.training
    with torch.no_grad():  # another entry of the model may have another type
        model.eval()(next(iter(found.values())).weight.new_zeros((2, *shape)))
    model.train(was_training)
    for hook in hooks:
        hook.remove()
    for name, seen in sizes.items():
        if len(seen) == 1:
            yield name, found[name], tuple(*seen)


def padded(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution with a margin of zeros of a given size."""
    if not isinstance(module, nn.Conv2d) or isinstance(module.padding, str):
        return False
    return module.padding_mode == "zeros" and any(module.padding)


def geometry(convolution: nn.Conv2d, d: int) -> tuple[int, int, int, int]:
    """Return kernel size, stride, padding and dilation in one dimension."""
    c: Any = convolution
    return c.kernel_size[d], c.stride[d], c.padding[d], c.dilation[d]


def live(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> tuple[int, int] | None:
    """Return the taps [low, high) that meet a map of `size`; None if a cut would not be exact.

    Tap i of output o is at o * stride - padding + i * dilation.
    """
    outputs = range((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    taps = [
        i
        for i in range(kernel)
        if any(0 <= o * stride - padding + i * dilation < size for o in outputs)
    ]
    if not taps:
        return None
    low, high = taps[0], taps[-1] + 1
    left = padding - low * dilation
    same = (size + 2 * left - dilation * (high - low - 1) - 1) // stride + 1 == len(outputs)
    return (low, high) if left >= 0 and same else None


def cut(convolution: nn.Conv2d, ranges: list[tuple[int, int]]) -> tuple[slice, ...]:
    """Keep only the taps of `ranges`; return their place in the whole weight."""
    where = (slice(None), slice(None), *(slice(low, high) for low, high in ranges))
    starts = [low * d for (low, _), d in zip(ranges, convolution.dilation, strict=True)]
    margins: Any = convolution.padding
    convolution.padding = tuple(p - s for p, s in zip(margins, starts, strict=True))
    convolution.kernel_size = tuple(high - low for low, high in ranges)
    convolution.weight = nn.Parameter(convolution.weight.detach()[where].clone())
    return where


def whole(state: dict[str, Tensor], initial: dict[str, Tensor], kept: Kept) -> dict[str, Tensor]:
    """Return the whole model's state; dead taps have their values of the `initial` state."""
    full = dict(state)
    for name, where in kept.items():
        full[name] = initial[name].clone()
        full[name][where] = state[name]
    return full
