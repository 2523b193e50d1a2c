"""Warnings about data that can be read, and are probably not what was meant."""

import numpy as np

from fedgrid.datasets import Split
from fedgrid.runtime import cli

MANY = 0.5  # share of copies above which a warning is given
SCALE = 20  # of the deviations of training and test samples


def warn(name: str, split: Split, tokens: bool) -> None:
    """Warn of equal samples, of constant channels, and of a test set that is odd.

    It is odd if it was trained on, or is on another scale.
    """
    train, test = numbered(split.train_images, split.test_images)
    both = np.concatenate([train, test])
    copies, known = len(both) - len(np.unique(both)), int(np.isin(test, train).sum())
    if copies > MANY * len(both):
        cli.warn(
            f"{name}: {copies} of the {len(both)} samples are exact copies of others: check the "
            "files, because something may have made them equal"
        )
    elif known > MANY * len(test):
        cli.warn(
            f"{name}: {known} of the {len(test)} test samples are training samples, too: check the "
            "files, because a test on training samples says little"
        )
    if not tokens and other_scale(split.train_images, split.test_images):
        cli.warn(
            f"{name}: the test samples are on another scale than the training samples, by the "
            "deviations of their channels: scale both parts alike"
        )
    if not tokens and (constant := constant_channels(split.train_images)):
        cli.warn(
            f"{name}: of the {split.train_images.shape[1]} channels of the training samples, "
            f"{len(constant)} never change ({listed(constant)}, counted from 0) and say nothing: "
            "check the files, or leave these channels out"
        )


def numbered(*parts: np.ndarray) -> list[np.ndarray]:
    """Return a number for each sample of all parts; equal samples have equal numbers."""
    return [np.fromiter((hash(x.tobytes()) for x in part), np.int64, len(part)) for part in parts]


def constant_channels(images: np.ndarray) -> list[int]:
    """Return the channels that have one value in all images (N, channels, height, width)."""
    axes = (0, 2, 3)
    return np.flatnonzero(images.min(axes) == images.max(axes)).tolist()


def other_scale(train: np.ndarray, test: np.ndarray) -> bool:
    """Whether most channels of the parts differ in their deviation by a factor above SCALE.

    Constant channels are passed over.
    """
    one, other = (part.std((0, 2, 3), dtype=np.float64) for part in (train, test))
    varying = (one > 0) & (other > 0)
    ratios = np.abs(np.log(other[varying] / one[varying]))
    return bool(len(ratios)) and bool(np.median(ratios) > np.log(SCALE))


def listed(numbers: list[int], most: int = 5) -> str:
    """Return the first numbers as a text."""
    return ", ".join(map(str, numbers[:most])) + " and others" * (len(numbers) > most)
