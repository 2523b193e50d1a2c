"""Warnings about data that can be read, and are probably not what was meant."""

from collections.abc import Iterator

import numpy as np

from fedgrid.datasets import Split
from fedgrid.datasets._statistics import measured
from fedgrid.runtime import cli

MANY = 0.5  # share of copies above which a warning is given
SCALE = 20  # of the deviations of training and test samples


def warn(name: str, split: Split, tokens: bool) -> None:
    """Warn of what is odd in a dataset, in a sentence each; `tokens` have no channels."""
    checks = (equal_samples,) if tokens else (equal_samples, scales, constants, untested)
    for sentence in (one for check in checks for one in check(split)):
        cli.warn(f"{name}: {sentence}")


def equal_samples(split: Split) -> Iterator[str]:
    """Tell of many equal samples, or of a test set that was trained on."""
    train, test = numbered(split.train_images, split.test_images)
    both = np.concatenate([train, test])
    copies, known = len(both) - len(np.unique(both)), int(np.isin(test, train).sum())
    if copies > MANY * len(both):
        yield (
            f"{copies} of the {len(both)} samples are exact copies of others: check the files, "
            "because something may have made them equal"
        )
    elif known > MANY * len(test):
        yield (
            f"{known} of the {len(test)} test samples are training samples, too: check the files, "
            "because a test on training samples says little"
        )


def scales(split: Split) -> Iterator[str]:
    """Tell of test samples on another scale than the training samples."""
    if other_scale(split.train_images, split.test_images):
        yield (
            "the test samples are on another scale than the training samples, by the deviations "
            "of their channels: scale both parts alike"
        )


def constants(split: Split) -> Iterator[str]:
    """Tell of channels that never change."""
    if constant := constant_channels(split.train_images):
        yield (
            f"of the {split.train_images.shape[1]} channels of the training samples, "
            f"{len(constant)} never change ({listed(constant)}, counted from 0) and say nothing: "
            "check the files, or leave these channels out"
        )


def untested(split: Split) -> Iterator[str]:
    """Tell of classes that have training samples and no test sample."""
    if absent := sorted({*split.train_labels.tolist()} - {*split.test_labels.tolist()}):
        yield (
            f"the test set has no sample of {len(absent)} classes ({listed(absent)}, counted from "
            "0), so nothing is known of them: add some"
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

    Channels that are constant in a part are passed over.
    """
    constant = {*constant_channels(train), *constant_channels(test)}
    pairs = zip(measured(train)[1], measured(test)[1], strict=True)
    ratios = [max(a / b, b / a) for c, (a, b) in enumerate(pairs) if c not in constant]
    return bool(ratios) and float(np.median(ratios)) > SCALE


def listed(numbers: list[int], most: int = 5) -> str:
    """Return the first numbers as a text."""
    return ", ".join(map(str, numbers[:most])) + " and others" * (len(numbers) > most)
