"""Images of one's own in a folder for each class, the layout of torchvision's ImageFolder.

The folder has `train/` and `test/` with a folder for each class in both, or the classes' folders
themselves, of which a share `test` of each class becomes the test set. An image is turned as its
camera says, scaled with a Lanczos filter until it covers `size`, and cut to it around its middle.
Classes and clients are numbered in the natural order of their names: "2" comes before "10".
"""

import csv
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgrid.datasets import Split
from fedgrid.datasets._order import natural
from fedgrid.datasets._stream import Stream, at_once
from fedgrid.federation import seeds
from fedgrid.runtime import cli
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, shown

if TYPE_CHECKING:
    from fedgrid.datasets._pictures import Picture

DEFAULTS = {"size": 32, "channels": 3, "test": 0.2}
IGNORED = ("thumbs.db", "desktop.ini")  # what systems leave in folders; so are hidden files
PARTS = ("train", "test")
OTHER_PARTS = ("training", "testing", "val", "valid", "validation")  # names of no class
TOLD = {  # what is not kept of a picture
    "transparent": "have transparent pixels, and are read as on white paper",
    "frames": "have several frames or pages, and only the first is read",
    "exif": "have EXIF data that cannot be read, and are not turned",
}
Found = list[tuple[Path, int]]  # images with their classes


def describe(name: str, folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the constants of an entry; UsageError if the folders are not those of classes."""
    size, channels = (entry.get(key, DEFAULTS[key]) for key in ("size", "channels"))
    height, width = size if isinstance(size, list) else (size, size)
    classes = class_names(name, folder)
    about = {"CLASSES": len(classes), "SHAPE": (channels, height, width), "CLASS_NAMES": classes}
    return about | ({"WRITERS": True} if entry.get("clients") else {})


def read_by(folder: Path) -> list[Path]:
    """Return the files that `load` reads."""
    places = [path / name for path in parts_of(folder).values() for name in folders_of(path)]
    return [file for place in places for file in files_of(place)]


def load(name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> Split:
    """Return the images of an entry; UsageError for a file that is no image, and for no image."""
    folder = own_data.place_of(name, "folder")
    names, parts = class_names(name, folder), parts_of(folder)
    there: dict[str, Found] = {
        part: [(file, i) for i, one in enumerate(names) for file in files_of(path / one)]
        for part, path in parts.items()
    }
    if "test" not in there:
        share = options.get("test", DEFAULTS["test"])
        there = dict(zip(PARTS, held_out(name, there["train"], share), strict=True))
    tell_left_out(name, folder, parts)
    arrays: list[Any] = []
    for part, found in there.items():
        paths, labels = [path for path, _ in found], np.array([i for _, i in found], np.int64)
        if missing := sorted({*range(classes)} - {*labels.tolist()}):
            raise UsageError(
                f"datasets.{name}: the class {shown(names[missing[0]])} of {folder} has no image "
                f"for the {part} set"
            )
        whole = (len(found), *shape)
        arrays += [Stream(whole, np.dtype(np.uint8), decoded(name, paths, whole)), labels]
    if not options.get("clients"):
        return Split(*arrays)
    files = [path.relative_to(parts["train"]).as_posix() for path, _ in there["train"]]
    clients = read_clients(name, own_data.place_of(name, "clients"), files)
    number = {client: i for i, client in enumerate(sorted({*clients}, key=natural))}
    writers = np.array([number[client] for client in clients], np.int64)
    return Split(*arrays)._replace(train_writers=writers, writer_names=[*number])


def held_out(name: str, found: Found, share: float) -> tuple[Found, Found]:
    """Return the training images and the test images: of each class a share, at least one."""
    labels, random = np.array([label for _, label in found]), seeds.generator("own test", name)
    chosen: set[int] = set()
    for label in np.unique(labels):
        ids = random.permutation(np.flatnonzero(labels == label))
        chosen |= {*ids[: max(1, round(share * len(ids)))].tolist()}
    train = [one for i, one in enumerate(found) if i not in chosen]
    return train, [found[i] for i in sorted(chosen)]


def decoded(name: str, paths: list[Path], shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield images in parts; the pictures of a part are decoded several at a time.

    A warning says how many have what is not kept (TOLD).
    """
    marked: dict[str, list[Path]] = {mark: [] for mark in TOLD}
    step = at_once(shape, 1)
    with ThreadPoolExecutor() as pool, warnings.catch_warnings():
        warnings.filterwarnings("error", "Corrupt EXIF data")  # of Pillow, which names no file
        for start in range(0, len(paths), step):
            part = paths[start : start + step]
            pictures = [*pool.map(partial(read_image, name, shape[1:]), part)]
            for mark, those in marked.items():
                those += [p for p, one in zip(part, pictures, strict=True) if getattr(one, mark)]
            yield np.stack([picture.pixels for picture in pictures])
    for mark, those in marked.items():
        tell(name, those, TOLD[mark])


def tell(name: str, those: list[Path], what: str) -> None:
    if those:
        cli.warn(f"datasets.{name}: images {what}: {len(those)}, such as {shown(those[0])}")


def tell_left_out(name: str, folder: Path, parts: dict[str, Path]) -> None:
    """Warn of images beside the folders of classes, and of folders beside train and test."""
    from PIL import Image

    known = Image.registered_extensions()
    beside = [path for part in parts.values() for path in sorted(part.iterdir())]
    loose = [path for path in beside if path.is_file() and path.suffix.lower() in known]
    tell(name, loose, "are in no folder of a class, and are left out")
    if "test" in parts and (others := sorted({*folders_of(folder)} - {*PARTS})):
        cli.warn(
            f"datasets.{name}: beside train and test there is {shown(others[0])} in {folder}, "
            f"which is left out{f', as {len(others) - 1} others are' if others[1:] else ''}"
        )


def read_image(name: str, shape: tuple[int, ...], path: Path) -> "Picture":
    """Return a file's picture of this shape; UsageError for a file that cannot be one."""
    from fedgrid.datasets import _pictures  # which needs Pillow, and the Snakefile imports this

    try:
        return _pictures.read(path.read_bytes(), shape[0], (shape[1], shape[2]))
    except _pictures.UNREADABLE as problem:
        raise UsageError(
            f"datasets.{name}: {shown(path)} cannot be read as an image ({shown(problem)}): remove "
            "it, or move it out of the folder"
        ) from None


def read_clients(name: str, file: Path, images: list[str]) -> list[str]:
    """Return the name of each training image's client, from a .csv with `file` and `client`."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            first = next(csv.reader(lines), [])
            columns = [column.strip() for column in first]
            rows = [*csv.DictReader(lines, columns, skipinitialspace=columns != first)]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UsageError(f"datasets.{name}: {file} cannot be read ({problem})") from None
    if not rows or not {"file", "client"} <= {*columns}:
        raise UsageError(
            f"datasets.{name}: {file} needs the columns file and client, with a comma between "
            f"them, and rows: its first line is {shown(','.join(first)) or 'empty'}"
        )
    of: dict[str, str] = {}
    for row in rows:
        image, client = Path(row["file"] or "").as_posix(), row["client"]
        if client and of.setdefault(image, client) != client:
            raise UsageError(f"datasets.{name}: {file} has two clients for {shown(image)}")
    if missing := [image for image in images if image not in of]:
        raise UsageError(
            f"datasets.{name}: {file} has no client for {shown(missing[0])}: it needs a row for "
            "each training image, with its path below the training folder"
        )
    return [of[image] for image in images]


# -- folders and files -----------------------------------------------------------------------


def parts_of(folder: Path) -> dict[str, Path]:
    """Return the folders of training and test images; without a `test`, both are in one folder."""
    there = {part: folder / part for part in PARTS}
    return there if all(path.is_dir() for path in there.values()) else {"train": folder}


def class_names(name: str, folder: Path) -> list[str]:
    """Return the classes of a folder in the order of their labels.

    UsageError for fewer than two, and if the training and the test images have other ones.
    """
    parts = parts_of(folder)
    train, test = folders_of(parts["train"]), folders_of(parts.get("test", folder))
    if odd := sorted({*train} ^ {*test}):
        raise UsageError(
            f"datasets.{name}: the class {shown(odd[0])} is in only one of {folder}/train and "
            f"{folder}/test: both need a folder for each class"
        )
    if len(train) < 2:
        raise UsageError(
            f"datasets.{name}: in {parts['train']} the number of class folders is "
            f"{len(train)}: a dataset needs a folder for each class, and at least two"
        )
    if {one.lower() for one in train} <= {*PARTS, *OTHER_PARTS}:
        raise UsageError(
            f"datasets.{name}: {shown(' and '.join(train))} in {folder} look like parts of a "
            "dataset, not like classes: call the parts train and test"
        )
    return train


def folders_of(folder: Path) -> list[str]:
    """Return the names of the folders in a folder in natural order, without hidden ones."""
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    return sorted((name for name in names if not name.startswith(".")), key=natural)


def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder in the order of their names, without what systems leave.

    Links to folders are followed; a folder that is met again is passed over.
    """
    found, seen = [], set()
    for where, folders, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(where))
        inside = [one for one in sorted(folders) if not one.startswith(".")]
        folders[:] = [one for one in inside if os.path.realpath(Path(where, one)) not in seen]
        found += [Path(where, one) for one in names]
    return sorted(
        path for path in found if path.name[0] != "." and path.name.lower() not in IGNORED
    )
