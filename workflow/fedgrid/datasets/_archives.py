"""Read many small image files from a folder, a .zip or a .tar.gz into one array, without unpacking.

Pillow (https://pillow.readthedocs.io) decodes one image after the other: at 0.15 ms per image,
threads would cost more than they gain.
"""

import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from fedgrid.datasets import Split, _pictures
from fedgrid.runtime.names import UsageError

Place = tuple[str, str, str]  # "train" or "test", class, file name


def contents(source: Path, place: Callable[[str], Any]) -> Iterator[tuple[Any, bytes]]:
    """Yield `place(name)` and the bytes of every file of `source` whose place is not None.

    Names are relative to `source`, with slashes. Files of folders and .zip files are sorted by
    place; a .tar.gz is a stream and keeps its order. Nothing is unpacked to disk, so names are
    harmless; links and devices in an archive are skipped. UsageError if it cannot be read.
    """
    with _readable(source):
        if source.is_dir():
            paths = (path for path in source.rglob("*") if path.is_file())
            yield from _sorted((p.relative_to(source).as_posix() for p in paths), place, source)
        elif source.suffix == ".zip":
            with ZipFile(source) as archive:
                yield from _sorted(archive.namelist(), place, archive)
        else:
            with tarfile.open(source, "r|gz") as archive:
                for member in archive:
                    if member.isfile() and (where := place(member.name)) is not None:
                        file: Any = archive.extractfile(member)
                        yield where, file.read()


# Errors of a damaged archive, or of a file in a folder.
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError, BadZipFile, RuntimeError)


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as problem:
        raise UsageError(f"{source} cannot be read ({problem}): delete or replace it") from problem


def _sorted(
    names: Iterable[str], place: Callable[[str], Any], source: Path | ZipFile
) -> Iterator[tuple[Any, bytes]]:
    placed = ((place(name), name) for name in names)
    for where, name in sorted(item for item in placed if item[0] is not None):
        yield where, source.read(name) if isinstance(source, ZipFile) else read(source / name)


def read(path: Path) -> bytes:
    """Return the bytes of a file; UsageError if it cannot be read."""
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
    count = sum(sizes)
    places, images = _decode_all(contents(source, place), count, shape, source)
    names = sorted({name for _, name, _ in places})
    if len(places) != count or len(names) != classes:
        raise UsageError(
            f"{source} holds {len(places)} images of {len(names)} classes, "
            f"expected {count} of {classes}"
        )
    held = Counter((part, name) for part, name, _ in places)
    for name in names:
        for part, size in zip(("train", "test"), sizes, strict=True):
            if held[part, name] != size // classes:
                raise UsageError(
                    f"{source} holds {held[part, name]} {part} images of {name}, expected "
                    f"{size // classes}: delete or complete it"
                )
    order = sorted(range(count), key=places.__getitem__)
    if order != list(range(count)):
        images, places = images[order], [places[i] for i in order]
    label = {name: i for i, name in enumerate(names)}
    labels = np.array([label[name] for _, name, _ in places], np.int64)
    tests = sum(part == "test" for part, _, _ in places)  # "test" sorts before "train"
    return Split(images[tests:], labels[tests:], images[:tests], labels[:tests])


def _decode_all(
    files: Iterable[tuple[Place, bytes]], count: int, shape: tuple[int, int, int], source: Path
) -> tuple[list[Place], np.ndarray]:
    """Return the places and the uint8 images (count, *shape), in the order of `files`."""
    places: list[Place] = []
    images = np.empty((count, *shape), np.uint8)
    for i, (place, data) in enumerate(files):
        if i == count:
            raise UsageError(f"{source} holds more than the {count} images expected")
        places.append(place)
        images[i] = decode("/".join(place), data, shape)
    return places, images


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
