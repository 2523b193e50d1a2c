"""Read many small image files from a folder, a .zip or a .tar.gz into one array, without unpacking.

All files are read into memory. Pillow (https://pillow.readthedocs.io) then decodes one image after
the other: at 0.15 ms per image, threads would cost more than they gain.
"""

import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from fedgrid.datasets import Split, _pictures
from fedgrid.runtime.names import UsageError

Place = tuple[str, str, str]  # "train" or "test", class, file name
# Errors of a damaged archive, or of a file in a folder.
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError, BadZipFile, RuntimeError)


def contents(source: Path, place: Callable[[str], Any]) -> list[tuple[Any, bytes]]:
    """Return `place(name)` and the bytes of every file of `source` whose place is not None.

    They are sorted by place. Names are relative to `source`, with slashes. Nothing is unpacked to
    disk, so names are harmless. UsageError if it cannot be read.
    """
    found = []
    try:
        for name, read in _files(source):
            if (where := place(name)) is not None:
                found.append((where, read()))
    except UNREADABLE as problem:
        raise UsageError(f"{source} cannot be read ({problem}): delete or replace it") from problem
    return sorted(found, key=itemgetter(0))


def _files(source: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name of each file, and what reads it; links and devices of a .tar.gz are none."""
    if source.is_dir():
        for path in source.rglob("*"):
            if path.is_file():
                yield path.relative_to(source).as_posix(), partial(_read, path)
    elif source.suffix == ".zip":
        with ZipFile(source) as archive:
            for name in archive.namelist():
                yield name, partial(archive.read, name)
    else:
        with tarfile.open(source, "r|gz") as tar:
            for member in tar:
                if member.isfile():
                    content: Any = tar.extractfile(member)
                    yield member.name, content.read


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from problem


def load(
    source: Path,
    place: Callable[[str], Place | None],
    sizes: tuple[int, int],
    classes: int,
    shape: tuple[int, int, int],
) -> Split:
    """Decode the images of `source`; the label is the rank of the class's name.

    `sizes` are the numbers of training and test images, equal for all classes. Images are ordered
    by place, so every layout of the same files gives the same arrays. UsageError for a wrong number
    of images or classes, or a file that is not an image of this shape.
    """
    files, count = contents(source, place), sum(sizes)
    if len(files) > count:
        raise UsageError(f"{source} holds more than the {count} images expected")
    held = Counter((part, name) for (part, name, _), _ in files)
    names = sorted({name for _, name in held})
    if len(files) != count or len(names) != classes:
        raise UsageError(
            f"{source} holds {len(files)} images of {len(names)} classes, "
            f"expected {count} of {classes}"
        )
    for name in names:
        for part, size in zip(("train", "test"), sizes, strict=True):
            if held[part, name] != size // classes:
                raise UsageError(
                    f"{source} holds {held[part, name]} {part} images of {name}, expected "
                    f"{size // classes}: delete or complete it"
                )
    images, number = np.empty((count, *shape), np.uint8), {name: i for i, name in enumerate(names)}
    for i, (where, data) in enumerate(files):
        images[i] = decode("/".join(where), data, shape)
    labels = np.array([number[name] for (_, name, _), _ in files], np.int64)
    tests = sizes[1]  # "test" sorts before "train"
    return Split(images[tests:], labels[tests:], images[:tests], labels[:tests])


def decode(name: str, data: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """Return an image as (channels, height, width); grey images get three equal channels."""
    try:
        with _pictures.opened(data) as image:
            found = (3, image.height, image.width)
            if found != shape:  # checked before decoding: a small file may claim to have gigabytes
                raise UsageError(f"{name} has the shape {found}, expected {shape}")
            return np.asarray(_pictures.on_white(image)[0].convert("RGB")).transpose(2, 0, 1)
    except UsageError:
        raise
    except _pictures.UNREADABLE as problem:
        raise UsageError(f"{name} is not a readable image: {problem}") from problem
