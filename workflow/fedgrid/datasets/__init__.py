"""Datasets, one file each; the file's name is the dataset's name.

A dataset's file has literal constants and `load(root: Path) -> Split`:

    TRAIN, TEST    numbers of images
    CLASSES        number of classes
    SHAPE          (channels, height, width)
    STATISTICS     name -> (mean, std) per channel, for images scaled to [0, 1]; "standard" is the
                   correct one, others have the name of the code that uses them

It may have, for `runtime/digests.py`:

    HASHES         the first eight digits of the SHA-256 of the arrays' files, in the order of
                   `stored.ARRAYS`; () to use those of the first reading
    LOSSY          True if images are JPEG files, which decoders may read differently
"""

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fedgrid.federation.stored import check_arrays
from fedgrid.runtime import contract
from fedgrid.runtime.names import known, registered


class Split(NamedTuple):
    """Images are uint8 (N, channels, height, width), labels int64 (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(name: str, root: Path) -> Split:
    """Return the dataset `name` from the files under `root`, downloaded if missing, and checked."""
    split = module(name).load(root)
    check(name, split)
    return split


def check(name: str, split: Split) -> None:
    """Raise a UsageError if `split` does not fit the constants of the dataset."""
    file = module(name)
    like = (file.SHAPE, file.CLASSES)
    check_arrays(f"{name}: train", split.train_images, split.train_labels, file.TRAIN, *like)
    check_arrays(f"{name}: test", split.test_images, split.test_labels, file.TEST, *like)


def describe(name: str) -> dict:
    """Return the constants of the dataset, as `meta.json` records them."""
    file = module(name)
    return {
        "dataset": name,
        "sizes": {"train": file.TRAIN, "test": file.TEST},
        "classes": file.CLASSES,
        "shape": file.SHAPE,
        "statistics": file.STATISTICS,
    }


def module(name: str) -> ModuleType:
    """Return the module of a dataset, checked; UsageError if it is missing or incomplete."""
    contract.dataset(known("dataset", name, registered("datasets")))
    return contract.imported(f"datasets.{name}")
