"""A decoded dataset on disk: `python -m fedgrid data` writes it, and later stages read it.

The files are numpy's `.npy` (NEP 1), opened as memory maps, so runs on a machine share the pages.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.runtime.code.contract import SCALED
from fedgrid.runtime.files import whole
from fedgrid.runtime.names import UsageError

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True)
class Data:
    """Images are uint8 (N, channels, height, width), labels int64 (N,); all are read-only.

    Images of one's own may be float32, and vectors are float32 (N, D, 1, 1). A dataset of texts has
    tokens (N, length) as its `images`, whole numbers below `tokens`.
    """

    train_images: np.memmap
    train_labels: np.ndarray
    test_images: np.memmap
    test_labels: np.ndarray
    meta: dict[str, Any]
    train_writers: np.ndarray | None = None  # int64 (N,), the writer of each training image
    test_writers: np.ndarray | None = None

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return self.meta["classes"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return channels, height and width of an image, or the length of a sequence."""
        return tuple(self.meta["shape"])

    @property
    def tokens(self) -> int:
        """Return the number of symbols that a token can be; 0 for images."""
        return self.meta.get("tokens", 0)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes by their numbers; none if they have only numbers."""
        return tuple(self.meta.get("class_names", ()))

    @property
    def writer_names(self) -> tuple[str, ...]:
        """Return the names of the writers by their numbers; none if they have only numbers."""
        return tuple(self.meta.get("writer_names", ()))


def open_data(folder: Path) -> Data:
    """Return the dataset in `folder`; UsageError if it is missing, damaged or inconsistent."""
    with whole(f"the dataset in {folder}"):
        meta = json.loads((folder / "meta.json").read_text())
        arrays: list[Any] = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS]
        train, test = (open_writers(folder, meta, part) for part in ("train", "test"))
        images, labels, tests, test_labels = arrays
        data = Data(images, labels, tests, test_labels, meta, train, test)
        for part in ("train", "test"):
            images, labels = (getattr(data, f"{part}_{kind}") for kind in ("images", "labels"))
            sizes = (meta["sizes"][part], data.shape, data.classes, data.tokens)
            floats = meta.get("floats", False)
            check_arrays(f"{folder}: {part}", images, labels, *sizes, floats)
    return data


def open_writers(folder: Path, meta: dict[str, Any], part: str) -> np.ndarray | None:
    """Return the writer of each image of a part, or None if the dataset does not have them."""
    if (file := f"{part}_writers.npy") not in meta.get("sha256", {}):
        return None
    writers = np.load(folder / file, mmap_mode="r")
    check_writers(f"{folder}: {part}", writers, meta["sizes"][part], meta.get("writer_names"))
    return writers


def read_statistics(data: Data, name: str, folder: Path) -> tuple[list[float], list[float]]:
    """Return the normalisation `name`: mean, and deviation above 0, per channel; none of tokens.

    SCALED needs no statistics: its means are 0 and its deviations 1.
    """
    if data.tokens:
        return [], []
    scaled = {SCALED: ([0.0] * data.shape[0], [1.0] * data.shape[0])}
    with whole(f"the dataset in {folder}"):
        found = scaled | data.meta["statistics"]
        mean, std = (list(map(float, values)) for values in found[name])
        right = len(mean) == len(std) == data.shape[0] and np.isfinite(mean + std).all()
        if not (right and min(std) > 0):
            raise ValueError(f"the normalisation {name} is {mean}, {std}")
    return mean, std


def check_arrays(
    what: str,
    images: np.ndarray,
    labels: np.ndarray,
    count: int,
    shape: tuple[int, ...],
    classes: int,
    tokens: int = 0,
    floats: bool = False,
) -> None:
    """Raise a UsageError that begins with `what` unless the arrays are as expected.

    `images` may hold tokens: whole numbers below `tokens`; or floats.
    """
    _expect(f"{what} images", images, "float32" if floats else "uint8", (count, *shape))
    _expect(f"{what} labels", labels, "int64", (count,))
    if count and not (labels.min() >= 0 and labels.max() < classes):
        raise UsageError(
            f"{what} labels run from {labels.min()} to {labels.max()}, "
            f"but must lie between 0 and {classes - 1}"
        )
    if count and tokens and images.max() >= tokens:
        raise UsageError(
            f"{what} images hold the token {images.max()}, but must lie between 0 and {tokens - 1}"
        )


def check_writers(
    what: str, writers: np.ndarray, count: int, names: Sequence[str] | None = None
) -> None:
    """Raise a UsageError that begins with `what` unless there is a writer of each image.

    With `names`, each writer must have one.
    """
    _expect(f"{what} writers", writers, "int64", (count,))
    if names and count and not (writers.min() >= 0 and writers.max() < len(names)):
        raise UsageError(
            f"{what} writers run from {writers.min()} to {writers.max()}, but there are "
            f"{len(names)} names of writers"
        )


def _expect(what: str, array: np.ndarray, dtype: str, shape: tuple[int, ...]) -> None:
    if (str(array.dtype), array.shape) != (dtype, shape):
        raise UsageError(f"{what} are {array.dtype} {array.shape}, expected {dtype} {shape}")
