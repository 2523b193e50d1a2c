"""From uint8 images to normalised batches on the device, augmented in one gather.

The random numbers come with the batch (`schedule.py`), so that every backend sees the same images.
Padding is black, as when the crop is taken before normalisation.
"""

import torch
from torch import Tensor

DRAWS = {"crop": 2, "flip": 1}  # uniform random numbers that each augmentation takes
PADDING = 4  # pixels at each side, for the crop


def draws(names: list[str]) -> int:
    """How many uniform random numbers an image needs."""
    return sum(DRAWS[name] for name in names)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 (B, channels, height, width) -> float, with zero mean and unit deviation."""
    return images.to(mean.dtype).div_(255).sub_(mean).div_(std)


def augment(images: Tensor, names: list[str], uniform: Tensor) -> Tensor:
    """Crop to the same size after padding, mirror left to right with probability 1/2.

    images uint8 (B, channels, height, width); uniform (B, draws(names)) in [0, 1).
    """
    if not names:
        return images
    height, width = images.shape[-2:]
    draw = dict(zip(names, uniform.split([DRAWS[name] for name in names], dim=1), strict=True))
    rows = torch.arange(height, device=images.device).expand(len(images), height)
    columns = torch.arange(width, device=images.device).expand(len(images), width)
    if "flip" in names:
        columns = torch.where(draw["flip"] < 0.5, columns, width - 1 - columns)
    if "crop" in names:
        offset = (draw["crop"] * (2 * PADDING + 1)).long()
        rows, columns = rows + offset[:, :1], columns + offset[:, 1:]
        images = torch.nn.functional.pad(images, [PADDING] * 4)
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    picked = images[sample, :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous()
