"""Datasets, one file each; the file's name is the dataset's name.

A dataset's file has literal constants and `load(root: Path) -> Split`:

    TRAIN, TEST    numbers of images
    CLASSES        number of classes
    SHAPE          (channels, height, width)
    STATISTICS     name -> (mean, std) per channel, for images scaled to [0, 1]; "standard" is
                   the right one, others bear the name of the code that uses them
"""

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fedgrid import arrays, contract
from fedgrid.names import known, registered


class Split(NamedTuple):
    """Images are uint8 (N, channels, height, width), labels int64 (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(name: str, root: Path) -> Split:
    """The dataset `name` from the files under `root`, downloaded if missing, and checked."""
    split = _module(name).load(root)
    check(name, split)
    return split


def check(name: str, split: Split) -> None:
    """UsageError in one sentence if `split` is not what the constants of the dataset say."""
    module = _module(name)
    like = (module.SHAPE, module.CLASSES)
    arrays.check(f"{name}: train", split.train_images, split.train_labels, module.TRAIN, *like)
    arrays.check(f"{name}: test", split.test_images, split.test_labels, module.TEST, *like)


def describe(name: str) -> dict:
    """The constants of the dataset, as `meta.json` records them."""
    module = _module(name)
    return {
        "dataset": name,
        "sizes": {"train": module.TRAIN, "test": module.TEST},
        "classes": module.CLASSES,
        "shape": module.SHAPE,
        "statistics": module.STATISTICS,
    }


def _module(name: str) -> ModuleType:
    contract.dataset(known("dataset", name, registered("datasets")))
    return contract.imported(f"datasets.{name}")
