"""Arrays of one's own in an .npz file: images, vectors or sequences of tokens.

The file has `x_train`, `y_train`, `x_test` and `y_test`, and may have `clients_train` and
`clients_test`, which client each sample belongs to. The shapes of x:

    uint8      (N, channels, height, width) or (N, height, width): images; if height and width
               differ, the entry says with `shape` whether these are images or signals
    floats     the same, or (N, D): vectors; they are stored as they are, in single precision
    integers   (N, length), with `tokens`: sequences of tokens below this number

Labels are whole numbers from 0 on, or any other numbers or texts, which are put in order; numbers
inside texts are ordered by their value.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from fedgrid.datasets import Split
from fedgrid.datasets._order import natural
from fedgrid.datasets._stream import AT_ONCE, Stream, at_once, parts_of
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
LABELS = ("y_train", "y_test")
CLIENTS = ("clients_train", "clients_test")
WRITERS = ("WRITERS", "TEST_WRITERS")  # the constants that say that these are there
UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
MOST_CHANNELS = 4  # of an image whose channels are its last axis by mistake


def load(name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> Split:
    """Return the samples of an entry; UsageError if its file does not have what it says."""
    file = own_data.place_of(name, "npz")
    where = f"datasets.{name}: {file}"
    found = read(where, file)
    labels = numbered(where, found["y_train"], found["y_test"], classes)
    parts = {part: stream(where, file, f"x_{part}", options) for part in PARTS}
    for part, y in zip(PARTS, labels, strict=True):
        if (count := parts[part].shape[0]) != len(y):
            raise UsageError(f"{where}: x_{part} has {count} samples and y_{part} {len(y)} labels")
        if parts[part].shape[1:] != shape:
            raise UsageError(
                f"{where}: the samples of x_{part} have the shape {parts[part].shape[1:]}, and "
                f"those of x_train {shape}"
            )
    (x, test), (y, test_y) = parts.values(), labels
    if not test.shape[0]:
        raise UsageError(f"{where}: x_test has no sample: a dataset needs samples to test on")
    if x.dtype != test.dtype:
        given_type = header(where, file, "x_train")[2]
        raise UsageError(f"{where}: x_train is {given_type}, and x_test is not")
    writers, test_writers = (
        clients_of(where, found, key, len(one)) for key, one in zip(CLIENTS, labels, strict=True)
    )
    given = ordered(found[CLIENTS[0]]) if CLIENTS[0] in found else None
    names = None if given is None else as_texts(given)
    return Split(x, y, test, test_y, writers, test_writers, names)


PARTS = ("train", "test")
Header = tuple[tuple[int, ...], bool, np.dtype]  # shape, whether in Fortran order, type
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def describe(name: str, file: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the constants of an entry; of the inputs, only the header is read."""
    where = f"datasets.{name}: {file}"
    shape, _, dtype = header(where, file, "x_train")
    if not all(shape):
        raise UsageError(f"{where}: x_train has the shape {shape}, which has no numbers")
    one = inputs(f"{where}: x_train", np.zeros((1, *shape[1:]), dtype), entry)
    if (said := entry.get("shape")) and tuple(said) not in (shape[1:], one.shape[1:]):
        raise UsageError(
            f"{where}: the samples of x_train have the shape {[*shape[1:]]}, and the entry says "
            f"{said}"
        )
    found = read(where, file, *LABELS)
    values = class_values(where, *found.values())
    classes = entry.get("classes") or len(values)
    about: dict[str, Any] = {"CLASSES": classes, "SHAPE": one.shape[1:]}
    if not stand_for_themselves(values, classes):
        about["CLASS_NAMES"] = class_names(where, values, classes)
    about |= {"TOKENS": entry["tokens"]} if "tokens" in entry else {}
    about |= {"FLOATS": True} if one.dtype == np.float32 else {}
    with opened(where, file) as there:
        given = [key in there.files for key in CLIENTS]
    if given == [False, True]:
        raise UsageError(f"{where} has {CLIENTS[1]} without {CLIENTS[0]}: add it")
    about |= {one: True for one, is_there in zip(WRITERS, given, strict=True) if is_there}
    return about


def read_by(file: Path) -> list[Path]:
    """Return the files that `load` reads."""
    return [file]


def opened(where: str, file: Path) -> Any:
    """Return an open .npz file; UsageError if it is none, or lacks an array."""
    try:
        there = np.load(file, allow_pickle=False)
    except UNREADABLE as problem:
        raise UsageError(f"{where} is no .npz file of numpy ({problem})") from None
    if not hasattr(there, "files"):
        raise UsageError(f"{where} is one array: write an .npz with {', '.join(ARRAYS)}")
    if missing := [key for key in ARRAYS if key not in there.files]:
        has = ", ".join(there.files) or "no array"
        raise UsageError(f"{where} lacks {missing[0]}: it has {has}, and needs {', '.join(ARRAYS)}")
    return there


def read(where: str, file: Path, *keys: str) -> dict[str, np.ndarray]:
    """Return arrays of the file by their names, or all that a dataset has beside its inputs."""
    with opened(where, file) as there:
        wanted = keys or [key for key in (*LABELS, *CLIENTS) if key in there.files]
        found = {}
        for key in wanted:
            try:
                found[key] = unicode(there[key])
            except UNREADABLE as problem:
                raise UsageError(f"{where}: {key} cannot be read ({problem})") from None
            check_texts(f"{where}: {key}", found[key])
        return found


def unicode(values: np.ndarray) -> np.ndarray:
    """Return bytes as texts, different ones as different texts; other arrays as they are."""
    if values.dtype.kind != "S":
        return values
    return np.char.decode(values, "utf-8", "backslashreplace")


def check_texts(where: str, values: np.ndarray) -> None:
    """Raise a UsageError for a text without characters: it is no name of a class or client."""
    if values.dtype.kind == "U" and len(empty := np.flatnonzero(np.char.strip(values) == "")):
        raise UsageError(
            f"{where} has an empty text for the sample {empty[0]}, counted from 0: give it a name, "
            "or remove the sample"
        )


# -- inputs ---------------------------------------------------------------------------------------


@contextmanager
def member(where: str, file: Path, key: str) -> Iterator[tuple[IO[bytes], Header]]:
    """Open an array of the file: what follows its header, and the header."""
    with opened(where, file) as there:
        try:
            content = there.zip.open(f"{key}.npy")
            about = HEADERS[np.lib.format.read_magic(content)](content)
        except KeyError:  # names of fields, which only arrays of records have
            raise UsageError(f"{where}: {key} has records: write plain arrays") from None
        except UNREADABLE as problem:
            raise UsageError(f"{where}: {key} cannot be read ({problem})") from None
        with content:
            yield content, about


def header(where: str, file: Path, key: str) -> Header:
    """Return the shape of an array, whether its first axis changes fastest, and its type."""
    with member(where, file, key) as (_, about):
        return about


def stream(where: str, file: Path, key: str, options: dict[str, Any]) -> Stream:
    """Return inputs as a dataset has them, which are still to read."""
    shape, fortran, dtype = header(where, file, key)
    one = inputs(f"{where}: {key}", np.zeros((1, *shape[1:]), dtype), options)
    read_parts = columnwise if fortran else rowwise

    def make(folder: Path) -> Iterator[np.ndarray]:
        start = 0
        for part in read_parts(where, file, key, folder):
            yield inputs(f"{where}: {key}", part, options, start)
            start += len(part)

    return Stream((shape[0], *one.shape[1:]), one.dtype, make)


def rowwise(where: str, file: Path, key: str, folder: Path) -> Iterator[np.ndarray]:
    """Yield the rows of an array in parts, one row after the other in the file."""
    with member(where, file, key) as (content, (shape, _, dtype)):
        step = at_once(shape, dtype.itemsize)
        for start in range(0, shape[0], step):
            part = (min(step, shape[0] - start), *shape[1:])
            yield np.frombuffer(
                take(where, key, content, prod(part) * dtype.itemsize), dtype
            ).reshape(part)


def columnwise(where: str, file: Path, key: str, folder: Path) -> Iterator[np.ndarray]:
    """Yield the rows of an array of which each is spread over the whole file (Fortran order)."""
    with (
        member(where, file, key) as (content, (shape, _, dtype)),
        TemporaryFile(dir=folder) as copy,
    ):
        left = prod(shape) * dtype.itemsize
        while left:
            left -= copy.write(take(where, key, content, min(left, AT_ONCE)))
        copy.flush()
        yield from parts_of(np.memmap(copy, dtype, "r", shape=shape, order="F"))


def take(where: str, key: str, content: IO[bytes], count: int) -> bytes:
    """Return the next bytes of an array; UsageError if there are not so many."""
    try:
        taken = content.read(count)
        if len(taken) < count:
            raise EOFError("it is cut off")
    except UNREADABLE as problem:
        raise UsageError(f"{where}: {key} cannot be read ({problem})") from None
    return taken


def inputs(where: str, x: np.ndarray, options: dict[str, Any], start: int = 0) -> np.ndarray:
    """Return inputs as a dataset has them: uint8 or float32 images, vectors, or tokens.

    `start` is the number of the first sample, for a message.
    """
    if "tokens" in options:
        return sequences(where, x, options["tokens"])
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise UsageError(
            f"{where} is {x.dtype}: images are uint8 or floats, vectors are floats, and sequences "
            "of tokens need `tokens`, the number of symbols"
        )
    if x.dtype.kind == "f":
        x = finite(where, x, start)
    if x.ndim == 2 and x.dtype != np.uint8:
        return x[:, :, None, None]
    if x.ndim == 3:
        return two_axes(where, x, options.get("shape"))
    if x.ndim != 4 or not x.size:
        raise UsageError(
            f"{where} has samples of the shape {x.shape[1:]}: images are (channels, height, width) "
            "or (height, width), and vectors are floats (D,)"
        )
    return channels_first(where, x, options.get("channels_last"))


def two_axes(where: str, x: np.ndarray, shape: list[int] | None) -> np.ndarray:
    """Return grey images, or signals (channels, 1, length) of an entry that says this shape."""
    first, second = x.shape[1:]
    if shape == [first, 1, second]:
        return x[:, :, None]
    if first == second or shape == [1, first, second]:
        return x[:, None]
    raise UsageError(
        f"{where} has samples of the shape {x.shape[1:]}, which may be grey images or signals: set "
        f"`shape: [1, {first}, {second}]` for images of this height and width, or `shape: "
        f"[{first}, 1, {second}]` for signals of {first} channels"
    )


def channels_first(where: str, x: np.ndarray, last: bool | None) -> np.ndarray:
    """Return images with the channels before height and width."""
    if last is None and x.shape[1] > MOST_CHANNELS >= x.shape[3]:
        raise UsageError(
            f"{where} has samples of the shape {x.shape[1:]}, which looks like (height, width, "
            "channels): set `channels_last: true`, or false if the first of these are the channels"
        )
    return np.moveaxis(x, 3, 1) if last else x


def sequences(where: str, x: np.ndarray, tokens: int) -> np.ndarray:
    """Return sequences of tokens as uint8 (N, length)."""
    if x.ndim != 2 or x.dtype.kind not in "iu":
        raise UsageError(
            f"{where} has samples of {x.dtype} of the shape {x.shape[1:]}: sequences of tokens are "
            "whole numbers (length,)"
        )
    if x.size and not (x.min() >= 0 and x.max() < tokens):
        raise UsageError(
            f"{where} has tokens from {x.min()} to {x.max()}: they must be from 0 to {tokens - 1}, "
            "or `tokens` must be larger"
        )
    return x.astype(np.uint8)


def finite(where: str, x: np.ndarray, start: int) -> np.ndarray:
    """Return floats in single precision; UsageError for numbers that are not finite there."""
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    if len(wrong := np.argwhere(~np.isfinite(single))):
        value = x[tuple(wrong[0])]
        said = "too large for single precision" if np.isfinite(value) else "not finite"
        raise UsageError(
            f"{where} has the number {value:.3g}, which is {said}, in the sample "
            f"{start + wrong[0][0]}, counted from 0: replace the number, or remove the sample"
        )
    return single


# -- labels and clients ---------------------------------------------------------------------------


def class_values(where: str, *labels: np.ndarray) -> np.ndarray:
    """Return the values of the classes in order; whole numbers from 0 on stand for themselves."""
    for y in labels:
        if y.ndim != 1 or y.dtype.kind not in "iubU":
            raise UsageError(
                f"{where}: labels are {y.dtype} {y.shape}, and must be whole numbers or texts (N,)"
            )
    if len({y.dtype.kind == "U" for y in labels}) > 1:
        raise UsageError(f"{where}: the labels of one part are texts, and those of the other not")
    values = ordered(np.concatenate(labels))
    if len(values) < 2:
        raise UsageError(f"{where} has {len(values)} classes: it needs at least two")
    return values


def numbered(where: str, train: np.ndarray, test: np.ndarray, classes: int) -> list[np.ndarray]:
    """Return labels as numbers from 0 on: themselves if they fit, or else their place in order."""
    values = class_values(where, train, test)
    as_is = stand_for_themselves(values, classes)
    if odd := sorted({*ordered(test).tolist()} - {*ordered(train).tolist()}, key=str):
        raise UsageError(f"{where}: the class {odd[0]} is in y_test and not in y_train")
    given = (train, test)
    return [y.astype(np.int64) if as_is else places(values, y) for y in given]


def stand_for_themselves(values: np.ndarray, classes: int) -> bool:
    """Whether the values of the classes are whole numbers from 0 to `classes` - 1."""
    return values.dtype.kind in "iu" and values[0] >= 0 and values[-1] < classes


def class_names(where: str, values: np.ndarray, classes: int) -> list[str]:
    """Return a name for each class; UsageError if there are more values than classes.

    The entry may say that there are more classes than values.
    """
    if len(values) > classes:
        raise UsageError(f"{where} has {len(values)} classes, and the entry says {classes}")
    return as_texts(values) + [f"unnamed {number}" for number in range(len(values), classes)]


def ordered(values: np.ndarray) -> np.ndarray:
    """Return the different values in order; numbers inside texts count by their value."""
    found = np.unique(values)
    if found.dtype.kind != "U":
        return found
    return found[sorted(range(len(found)), key=[*map(natural, as_texts(found))].__getitem__)]


def places(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the place of each number or text among different values, int64."""
    order = np.argsort(values)
    return order[np.searchsorted(values, of, sorter=order)].astype(np.int64)


def as_texts(values: np.ndarray) -> list[str]:
    """Return values as texts."""
    return [str(one) for one in values.tolist()]


def clients_of(where: str, found: dict[str, Any], key: str, count: int) -> np.ndarray | None:
    """Return the number of each sample's client, by the order of all values; None if not given."""
    if key not in found:
        return None
    for name in (key, CLIENTS[0]):
        if found[name].ndim != 1 or found[name].dtype.kind not in "iuU":
            raise UsageError(
                f"{where}: {name} is {found[name].dtype} {found[name].shape}, and must be whole "
                "numbers or texts (N,)"
            )
    if len(found[key]) != count:
        raise UsageError(f"{where}: {key} has {len(found[key])} values for {count} samples")
    values = ordered(found[CLIENTS[0]])
    if odd := sorted({*ordered(found[key]).tolist()} - {*values.tolist()}, key=str):
        raise UsageError(f"{where}: the client {odd[0]} of {key} is not in {CLIENTS[0]}")
    return places(values, found[key])
