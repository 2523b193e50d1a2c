"""Turn uint8 images into normalised batches on the device, augmented in one gather.

The random numbers come with the batch (`schedule.py`), so that every backend sees the same images.
Padding is black, as if the crop were taken before normalisation; `crop-reflect` mirrors the image
at its borders instead. Cutout (DeVries and Taylor, 2017) comes after normalisation: its hole is the
mean colour.
"""

from typing import Any

import torch
from torch import Tensor

# Number of uniform random numbers that each augmentation needs.
DRAWS = {"crop": 2, "crop-reflect": 2, "flip": 1, "cutout": 2}
PADDING = 4  # pixels on each side, for the crop
HOLE = 16  # pixels, side of cutout's square


def draws(names: list[str]) -> int:
    """Return the number of uniform random numbers that an image needs."""
    return sum(DRAWS[name] for name in names)


def drawn(names: list[str], uniform: Tensor) -> dict[str, Tensor]:
    """Split the random numbers (B, draws(names)) by augmentation."""
    return dict(zip(names, uniform.split([DRAWS[name] for name in names], dim=1), strict=True))


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Scale images (B, channels, height, width) to floats of zero mean and unit deviation.

    The images are left as they are, also if they are floats.
    """
    return images.to(mean.dtype, copy=True).div_(255).sub_(mean).div_(std)


def augment(images: Tensor, names: list[str], uniform: Tensor) -> Tensor:
    """Crop to the same size after padding, and mirror left to right with probability 1/2.

    images uint8 (B, channels, height, width); uniform (B, draws(names)) in [0, 1).
    """
    if not {"crop", "crop-reflect", "flip"} & {*names}:
        return images
    height, width = images.shape[-2:]
    draw = drawn(names, uniform)
    rows = torch.arange(height, device=images.device).expand(len(images), height)
    columns = torch.arange(width, device=images.device).expand(len(images), width)
    if "flip" in names:
        columns = torch.where(draw["flip"] < 0.5, columns, width - 1 - columns)
    if "crop" in names:
        rows, columns = moved(rows, columns, draw["crop"])
        images = torch.nn.functional.pad(images, [PADDING] * 4)
    if "crop-reflect" in names:
        rows, columns = moved(rows, columns, draw["crop-reflect"])
        rows, columns = reflected(rows - PADDING, height), reflected(columns - PADDING, width)
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    picked = images[sample, :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()


def moved(rows: Tensor, columns: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and columns of a random crop in the padded image."""
    offset = (uniform * (2 * PADDING + 1)).long()
    return rows + offset[:, :1], columns + offset[:, 1:]


def reflected(places: Tensor, size: int) -> Tensor:
    """Mirror places outside 0..size-1 at the first and the last place."""
    return size - 1 - (size - 1 - places.abs()).abs()


def cut_out(x: Tensor, names: list[str], uniform: Tensor) -> Tensor:
    """Cut a square hole around a random pixel of images (B, channels, height, width)."""
    if "cutout" not in names:
        return x
    covered: Any = True
    for axis, centre in enumerate(drawn(names, uniform)["cutout"].T, start=2):
        size = x.shape[axis]
        first = (centre * size).long()[:, None] - HOLE // 2
        place = torch.arange(size, device=x.device)
        within = (place >= first) & (place < first + HOLE)
        covered = covered & within[:, None, :, None].transpose(2, axis)
    return x.masked_fill(covered, 0)
