"""Datasets, one file each; the file's name is the dataset's name.

A dataset's file has literal constants and `load(root: Path) -> Split`:

    TRAIN, TEST    numbers of images; None if only reading the files shows them
    CLASSES        number of classes
    SHAPE          (channels, height, width)
    STATISTICS     name -> (mean, std) per channel, for images scaled to [0, 1]; "standard" is the
                   correct one, others have the name of the code that uses them; {} to measure
                   the standard one when the files are read

It may have:

    WRITERS        True if `load` gives the writer of each training image

It may have, for `runtime/digests.py`:

    HASHES         the first eight digits of the SHA-256 of the arrays' files, in the order of
                   `Split`; () to use those of the first reading
    LOSSY          True if images are JPEG files, which decoders may read differently
"""

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fedgrid.datasets._statistics import rounded
from fedgrid.federation.stored import check_arrays, check_writers
from fedgrid.runtime import contract
from fedgrid.runtime.names import UsageError, known, registered


class Split(NamedTuple):
    """Images are uint8 (N, channels, height, width), labels and writers int64 (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    train_writers: np.ndarray | None = None  # who wrote each training image, if this is known


def load(name: str, root: Path) -> Split:
    """Return the dataset `name` from the files under `root`, downloaded if missing, and checked."""
    split = module(name).load(root)
    check(name, split)
    return split


def check(name: str, split: Split) -> None:
    """Raise a UsageError if `split` does not fit the constants of the dataset."""
    file = module(name)
    like = (file.SHAPE, file.CLASSES)
    train, test = (split.train_images, split.train_labels), (split.test_images, split.test_labels)
    check_arrays(f"{name}: train", *train, file.TRAIN or len(split.train_labels), *like)
    check_arrays(f"{name}: test", *test, file.TEST or len(split.test_labels), *like)
    if (split.train_writers is not None) != getattr(file, "WRITERS", False):
        raise UsageError(
            f"datasets/{name}.py: `load` must give `train_writers` if the file has "
            "`WRITERS = True`, and only then"
        )
    if split.train_writers is not None:
        check_writers(f"{name}: train", split.train_writers, len(split.train_labels))


def describe(name: str, split: Split) -> dict:
    """Return what `meta.json` records of the dataset; what its file leaves open is measured."""
    file = module(name)
    return {
        "dataset": name,
        "sizes": {"train": len(split.train_labels), "test": len(split.test_labels)},
        "classes": file.CLASSES,
        "shape": file.SHAPE,
        "statistics": file.STATISTICS or {"standard": rounded(split.train_images)},
    }


def module(name: str) -> ModuleType:
    """Return the module of a dataset, checked; UsageError if it is missing or incomplete."""
    contract.dataset(known("dataset", name, registered("datasets")))
    return contract.imported(f"datasets.{name}")
