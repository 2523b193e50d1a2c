"""Datasets, one file each; the file's name is the dataset's name.

A dataset's file has literal constants and `load(root: Path) -> Split`:

    TRAIN, TEST    numbers of images; None if only reading the files shows them
    CLASSES        number of classes
    SHAPE          (channels, height, width); with TOKENS (length,)
    STATISTICS     name -> (mean, std) per channel, for images scaled to [0, 1]; "standard" is the
                   correct one, others have the name of the code that uses them; {} to measure
                   the standard one when the files are read; {} with TOKENS

It may have:

    TOKENS         number of symbols, from 2 to 256: the inputs are not images but sequences of
                   tokens, whole numbers below it; `Split` and all files call them images, too
    WRITERS        the number of writers, if `load` gives the writer of each training image; True
                   if only reading the files shows it. Where TRAIN is None, the number is that of
                   the published files
    TEST_WRITERS   True if it also gives the writer of each test image
    CLASS_NAMES    a list of the names of the classes, in the order of their numbers: results
                   have them in place of the numbers
    GIVEN          patterns of files under the root, which nothing downloads: those of one pattern
                   must be there
    MISSING        with GIVEN, the sentence that says so; {} stands for the root

Of data of one's own (`_npz.py`):

    FLOATS         True if the inputs are float32 instead of uint8

It may have, for `datasets/_digests.py`:

    HASHES         the first eight digits of the SHA-256 of the arrays' files, in the order of
                   `Split`; () to use those of the first reading
    LOSSY          True if images are JPEG files, which decoders may read differently
"""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fedgrid.datasets._statistics import rounded
from fedgrid.datasets._stream import Stream, save
from fedgrid.federation.stored import check_arrays, check_writers
from fedgrid.runtime.code import contract, own_data
from fedgrid.runtime.names import UsageError, known
from fedgrid.runtime.places import search

__path__ = search("datasets")  # with the folder of one's own paper


class Split(NamedTuple):
    """Images are uint8 (N, channels, height, width), labels and writers int64 (N,).

    With TOKENS, images are uint8 (N, length). Images of one's own are made when they are written.
    """

    train_images: Any  # an array, or the Stream of one
    train_labels: np.ndarray
    test_images: Any
    test_labels: np.ndarray
    train_writers: np.ndarray | None = None  # who wrote each training image, if this is known
    test_writers: np.ndarray | None = None
    writer_names: list[str] | None = None  # the name of each writer by its number, if it has one

    @property
    def arrays(self) -> dict[str, np.ndarray | Stream]:
        """Return the arrays that are there, by name, in their order."""
        found = self._asdict()
        del found["writer_names"]
        return {name: array for name, array in found.items() if array is not None}


def load(name: str, root: Path, folder: Path | None = None) -> Split:
    """Return the dataset `name` from the files under `root`, downloaded if missing, and checked.

    With `folder`, each array is written to a .npy file there, and is a memory map of it. Data of
    one's own need a folder, because they may be larger than memory.
    """
    split = module(name).load(root)
    if folder:
        files = {key: save(array, folder / f"{key}.npy") for key, array in split.arrays.items()}
        split = split._replace(**files)
    check(name, split)
    return split


def check(name: str, split: Split) -> None:
    """Raise a UsageError if `split` does not fit the constants of the dataset."""
    file = module(name)
    like = (file.SHAPE, file.CLASSES, getattr(file, "TOKENS", 0), getattr(file, "FLOATS", False))
    for part, stated in (("train", file.TRAIN), ("test", file.TEST)):
        images, labels = (getattr(split, f"{part}_{kind}") for kind in ("images", "labels"))
        check_arrays(f"{name}: {part}", images, labels, stated or len(labels), *like)
    for part, constant in (("train", "WRITERS"), ("test", "TEST_WRITERS")):
        writers = getattr(split, f"{part}_writers")
        if (writers is not None) != bool(getattr(file, constant, False)):
            raise UsageError(
                f"datasets/{name}.py: `load` must give `{part}_writers` if the file has "
                f"`{constant}`, and only then"
            )
        if writers is not None:
            count = len(getattr(split, f"{part}_labels"))
            check_writers(f"{name}: {part}", writers, count, split.writer_names)


def describe(name: str, split: Split) -> dict[str, Any]:
    """Return what `meta.json` records of the dataset; what its file leaves open is measured."""
    file = module(name)
    tokens = getattr(file, "TOKENS", None)
    described = {
        "dataset": name,
        "sizes": {"train": len(split.train_labels), "test": len(split.test_labels)},
        "classes": file.CLASSES,
        "shape": file.SHAPE,
        "statistics": file.STATISTICS,
        "tokens": tokens,
        "floats": getattr(file, "FLOATS", False),
        "class_names": [*getattr(file, "CLASS_NAMES", ())],
        "writer_names": split.writer_names,
    }
    if not file.STATISTICS and not tokens:
        described["statistics"] = {"standard": rounded(split.train_images)}
    return {key: value for key, value in described.items() if value or key == "statistics"}


def module(name: str) -> ModuleType:
    """Return the module of a dataset, checked; UsageError if it is missing or incomplete."""
    contract.dataset(known("dataset", name, own_data.list_datasets()))
    return contract.imported(f"datasets.{name}")
