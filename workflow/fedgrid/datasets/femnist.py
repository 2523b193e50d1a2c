"""FEMNIST: digits and letters by their writers, 28x28 grey, 62 classes (LEAF, arXiv 1812.01097).

Nothing is downloaded. Under the root there must be all files of one of two layouts:

    femnist/all_data/*.json, or femnist/*.json   as LEAF's `preprocess.sh` makes them
    femnist/data/train-*.parquet                 of the Hugging Face dataset `flwrlabs/femnist`

If both are there, the JSON files are read. The labels are LEAF's: digits, upper case, lower case.
In both layouts the paper is assumed to be white and the ink black: LEAF has 1 for paper, and the
grey pictures have 255. Images whose mean is dark are refused.

The numbers of images and writers must be those of the whole dataset. LEAF's web page and its script
give different ones, and both are accepted. So the sizes of the split are known after reading only.

Images are in the order of the writers' names, and a writer's are in the order of the files. Of n
images of a writer, n / 5, rounded down, are test images, drawn at random, but at least one of two
or more, as in the code of Li et al. (arXiv 2107.11954). So every writer has a training image, and
one with two or more images has a test image. The test set is that of all writers. No hashes of the
decoded images are published, and the layouts differ: delete femnist.sha256 under the root before a
change of the layout.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.datasets import Split, _archives, _leaf
from fedgrid.federation import seeds
from fedgrid.runtime.files import whole
from fedgrid.runtime.names import UsageError, shown

TRAIN = None
TEST = None
CLASSES = 62
SHAPE = (1, 28, 28)
STATISTICS = {}
WRITERS = 3_597
TEST_WRITERS = True
HASHES = ()

GIVEN = ("femnist/all_data/*.json", "femnist/*.json", "femnist/data/train-*.parquet")
MISSING = (
    "FEMNIST is not in {}/femnist: put there the folder data of the Hugging Face dataset "
    "flwrlabs/femnist with its files train-*.parquet, or LEAF's folder all_data with the *.json "
    "files that `preprocess.sh -s niid --sf 1.0 -k 0 -t sample` in LEAF's data/femnist makes"
)
PIXELS = 28 * 28
COLUMNS = ["image", "writer_id", "character"]
TOTALS = {  # images and writers of the whole dataset, by layout
    "json": ((817_851, 3_597), (805_263, 3_550)),  # by LEAF's script, by LEAF's web page
    "parquet": ((814_277, 3_597),),
}

# Writers' names, images and labels of a part of the dataset.
Part = tuple[np.ndarray, np.ndarray, np.ndarray]


def load(root: Path) -> Split:
    """Read the layout that is there; UsageError for none, for a part of it, or for other files."""
    layout, paths = _leaf.find_files(root, GIVEN, MISSING)
    read = {"json": _read_json, "parquet": _read_parquet}[layout]
    parts = [part for path in paths for part in read(path)]
    owners, images, labels = map(np.concatenate, zip(*parts, strict=True))
    names, writers = np.unique(owners, return_inverse=True)
    _check(root / "femnist", layout, images, len(names))
    order = np.argsort(writers, kind="stable")
    return _split(names, writers[order].astype(np.int64), images[order], labels[order])


def _check(folder: Path, layout: str, images: np.ndarray, writers: int) -> None:
    """Raise a UsageError unless the dataset is whole and its paper is white."""
    if (len(images), writers) not in TOTALS[layout]:
        expected = " or ".join(f"{count} by {number}" for count, number in TOTALS[layout])
        raise UsageError(
            f"the {layout} files of {folder} hold {len(images)} images by {writers} writers, "
            f"expected {expected}: replace them by the files of the whole dataset"
        )
    if images.mean() < 128:
        raise UsageError(
            f"the {layout} files of {folder} have white ink on black paper, expected black ink on "
            "white paper: replace them by the original files"
        )


def _split(names: np.ndarray, writers: np.ndarray, images: np.ndarray, labels: np.ndarray) -> Split:
    """Return a fifth of each writer's images as test images; the writers are in order."""
    test, sizes = np.zeros(len(labels), bool), np.bincount(writers)
    lists = np.split(np.arange(len(labels)), sizes.cumsum()[:-1])
    for name, own, count in zip(names, lists, _leaf.test_sizes(sizes), strict=True):
        random = np.random.RandomState(seeds.seed("femnist", name) % 2**32)
        test[random.permutation(own)[:count]] = True
    both = writers[~test], writers[test]
    return Split(images[~test], labels[~test], images[test], labels[test], *both)


# -- LEAF's JSON ----------------------------------------------------------------------------------


def _read_json(path: Path) -> Iterator[Part]:
    """Yield the images of each writer of a file; UsageError if it is not as LEAF writes it."""
    with whole(f"FEMNIST's file {path}"):
        for where, writer, rows, labels in _leaf.read_users(path, "writer", "images"):
            yield np.full(len(rows), writer), _images(where, rows), _labels(where, labels)


def _images(what: str, rows: list[Any]) -> np.ndarray:
    """Return rows of pixels as images; UsageError, which begins with `what`, for bad ones."""
    if {*map(len, rows)} != {PIXELS}:
        wrong = next(len(row) for row in rows if len(row) != PIXELS)
        raise UsageError(
            f"{what} has an image of {wrong} pixels, expected {PIXELS}: replace the file"
        )
    values = np.asarray(rows, np.float64)
    if not (values.min() >= 0 and values.max() <= 1):  # nan is neither
        raise UsageError(f"{what} has pixels outside 0 to 1: replace the file")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, *SHAPE)


def _labels(what: str, labels: Any) -> np.ndarray:
    """Return labels as int64; UsageError, which begins with `what`, if one is no class."""
    for label in (labels := np.asarray(labels).tolist()):
        if type(label) is not int or not 0 <= label < CLASSES:
            raise UsageError(
                f"{what} has the label {shown(repr(label))}, expected a whole number from 0 to "
                f"{CLASSES - 1}: replace the file"
            )
    return np.array(labels, np.int64)


# -- parquet --------------------------------------------------------------------------------------


def _read_parquet(path: Path) -> Iterator[Part]:
    """Yield the images of a file; UsageError if it cannot be read."""
    with whole(f"FEMNIST's file {path}"):
        table = _leaf.read_table(
            path, COLUMNS, "put LEAF's *.json files into the folder all_data beside data"
        )
        pictures = [one["bytes"] if isinstance(one, dict) else one for one in table["image"]]
        images = np.empty((len(table), *SHAPE), np.uint8)
        for row, picture in enumerate(pictures):
            colour = _archives.decode(f"{path}: row {row}", picture, (3, *SHAPE[1:]))
            if (colour != colour[:1]).any():
                raise UsageError(f"{path}: row {row} is in colour, expected grey: replace the file")
            images[row] = colour[:1]
        yield table["writer_id"].to_numpy(str), images, _labels(str(path), table["character"])
