"""Warnings about data that can be read, and are probably not what was meant."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from fedgrid.datasets import Split
from fedgrid.datasets._statistics import measured
from fedgrid.datasets._stream import parts_of
from fedgrid.runtime import cli
from fedgrid.runtime.names import shown

COPIES = 0.5  # share of samples that are copies of others, from which a warning is given
KNOWN = 0.01  # share of test samples that are training samples
SHIFT = 1.5  # difference of the means of training and test samples, in deviations
RATIO = 1.9  # of the deviations of training and test samples
SURE = 4  # standard errors that are added to these limits
LIMIT = 6  # deviations from the mean, beyond which a value counts as this
LEAST = 1e-9  # variance that is told from none
LISTED = 5  # channels or classes that a warning names
SIDE = 8  # of the grid of pixels on which images are compared


def warn(name: str, split: Split, tokens: bool, names: Sequence[str] = ()) -> None:
    """Warn of what is odd in a dataset, in a sentence each; `tokens` have no channels.

    Classes are called by their `names`, or by their numbers.
    """
    found = [*equal_samples(split, tokens)]
    if not tokens:
        found += [*scales(split), *constants(split.train_images), *untested(split, names)]
    for sentence in found:
        cli.warn(f"{name}: {sentence}")


def equal_samples(split: Split, tokens: bool) -> Iterator[str]:
    """Tell of many equal samples, of test samples that are trained on, and of different labels.

    Texts say the same before different characters, so equal samples of tokens may have two labels.
    """
    labels, train = np.concatenate([split.train_labels, split.test_labels]), len(split.train_labels)
    images = chain(split.train_images, split.test_images)
    both = np.fromiter((hash(x.tobytes()) for x in images), np.int64, len(labels))
    _, first, group = np.unique(both, return_index=True, return_inverse=True)
    copies, known = len(both) - len(first), int((first[group[train:]] < train).sum())
    if copies > COPIES * len(both):
        yield (
            f"{counted(copies, len(both), 'samples')} are exact copies of others: check the files, "
            "because something may have made them equal"
        )
    if known >= KNOWN * (len(both) - train):
        yield (
            f"{counted(known, len(both) - train, 'test samples')} are training samples, too: check "
            "them, because a test on training samples says little"
        )
    odd = np.isin(group, group[labels != labels[first][group]])
    if (total := int(odd.sum())) and not tokens:
        test = int(odd[train:].sum())
        yield (
            f"{counted(total, len(both), 'samples')} are equal to samples with another label: "
            f"correct the labels of these {total - test} training samples and {test} test samples"
        )


def counted(some: int, of: int, what: str) -> str:
    return f"{some} of the {of} {what} ({float(f'{100 * some / of:.2g}'):g} %)"


def scales(split: Split) -> Iterator[str]:
    """Tell of test samples on another scale than the training samples, or inverted.

    Training samples are weighed as if their classes had the shares of the test set, in which only
    classes with training samples count.
    """
    classes = 1 + int(max(split.train_labels.max(), split.test_labels.max()))
    units = measured(split.train_images)
    train = by_class(split.train_images, split.train_labels, classes, *units)
    test = by_class(split.test_images, split.test_labels, classes, *units)
    count = np.where(train.number > 0, test.number, 0)
    if not count.any():
        return
    if far := other_channels(train, test, count):
        yield (
            "the test samples are on another scale than the training samples, by the mean or the "
            f"deviation of {len(far)} of {split.train_images.shape[1]} channels "
            f"({from_0(far)}): scale both parts alike"
        )
    elif inverted(train, test, count):
        yield (
            "the test samples look inverted: where the training samples of a class are above the "
            "mean, its test samples are below: scale both parts alike"
        )


def constants(images: np.ndarray) -> Iterator[str]:
    """Tell of channels that have one value in all training samples."""
    axes = (0, 2, 3)
    if constant := np.flatnonzero(images.min(axes) == images.max(axes)).tolist():
        yield (
            f"of the {images.shape[1]} channels of the training samples, {len(constant)} never "
            f"change ({from_0(constant)}) and say nothing: check the files, or leave these "
            "channels out"
        )


def untested(split: Split, names: Sequence[str]) -> Iterator[str]:
    """Tell of classes that have training samples and no test sample."""
    if absent := sorted({*split.train_labels.tolist()} - {*split.test_labels.tolist()}):
        which = listed([names[one] for one in absent]) if names else from_0(absent)
        yield (
            f"the test set has no sample of {len(absent)} classes ({which}), so nothing is known "
            "of them: add some"
        )


class Moments(NamedTuple):
    """What is known of a part by class, in deviations from the mean of the training samples.

    Of images the places are those of a grid of at most SIDE by SIDE pixels.
    """

    number: np.ndarray  # of samples, (classes,)
    powers: np.ndarray  # means of the powers 1 to 4, (4, classes, channels, places)

    def channels(self, weights: np.ndarray) -> np.ndarray:
        """Return mean, variance and kurtosis of each channel, with these weights of the classes."""
        mean, two, three, four = np.tensordot(weights, self.powers, (0, 1)).mean(2)
        variance = np.maximum(two - mean**2, LEAST)
        fourth = four - 4 * mean * three + 6 * mean**2 * two - 3 * mean**4
        return np.stack([mean, variance, np.maximum(fourth / variance**2, 1)])


def by_class(
    images: np.ndarray,
    labels: np.ndarray,
    classes: int,
    means: list[float],
    deviations: list[float],
) -> Moments:
    """Return the moments of a part; those of a class without samples are 0."""
    center, unit = (255 * np.array(one)[:, None, None] for one in (means, deviations))
    unit[unit == 0] = 1
    high, wide = (-(-side // SIDE) for side in images.shape[2:])
    number, start = np.bincount(labels, minlength=classes), 0
    sums = np.zeros((4, classes, images.shape[1], images[0, 0, ::high, ::wide].size))
    for part in parts_of(images):
        is_of_class = np.arange(classes)[:, None] == labels[start : start + len(part)]
        start += len(part)
        x = (part[:, :, ::high, ::wide] - center) / unit
        x = np.clip(x, -LIMIT, LIMIT).reshape(*part.shape[:2], -1)
        for power, of in enumerate(sums, 1):
            of += np.tensordot(is_of_class.astype(float), x**power, 1)
    return Moments(number, sums / np.maximum(number, 1)[:, None, None])


def other_channels(train: Moments, test: Moments, count: np.ndarray) -> list[int]:
    """Return the channels with another mean or deviation in the test samples (`count` by class).

    Of a channel that is constant in a part, the deviations are not compared. Few samples, and rare
    values far from the others, make the limits wider.
    """
    own, there = (one.channels(count / count.sum()) for one in (test, train))
    shift, ratio = np.abs(own[0] - there[0]), np.abs(np.log(own[1] / there[1]))
    error = np.sqrt((np.maximum(own[2], there[2]) - 1) * (1 / count.sum() + 1 / train.number.sum()))
    is_moved = shift > np.sqrt(there[1]) * (SHIFT + SURE / np.sqrt(count.sum()))
    is_wider = (own[1] > LEAST) & (ratio > 2 * np.log(RATIO) + SURE * error)
    return np.flatnonzero((there[1] > LEAST) & (is_moved | is_wider)).tolist()


def inverted(train: Moments, test: Moments, count: np.ndarray) -> bool:
    """Whether the means of classes lie on the other side of the mean in the test samples.

    The slope of these means over those of training is 1 if the parts are alike.
    """
    shares = count / count.sum()
    there, own = (one.powers[0] for one in (train, test))
    there, own = (one - np.tensordot(shares, one, (0, 0)).mean(1)[:, None] for one in (there, own))
    weight = shares[:, None, None]
    errors = (weight * np.abs(there)).sum((1, 2)) / np.sqrt(np.maximum(count, 1))
    return bool((weight * there * own).sum() < -SURE * np.sqrt((errors**2).sum()))


def from_0(numbers: list[int]) -> str:
    return f"{listed([*map(str, numbers)])}, counted from 0"


def listed(names: list[str]) -> str:
    return ", ".join(map(shown, names[:LISTED])) + " and others" * (len(names) > LISTED)
