"""Arrays of one's own: images, vectors or sequences of tokens, in an .npz file or a folder of .npy.

There are `x_train`, `y_train`, `x_test` and `y_test`, and there may be `clients_train` and
`clients_test`, which client each sample belongs to. An array of an .npz is read into memory whole;
the files of a folder, such as x_train.npy, are memory maps. The shapes of x:

    uint8      (N, channels, height, width) or (N, height, width): images; if height and width
               differ, the entry says with `shape` whether these are images or signals
    floats     the same, or (N, D): vectors; they are stored as they are, in single precision
    integers   (N, length), with `tokens`: sequences of tokens below this number

Labels are whole numbers from 0 on, or any other numbers or texts, which are put in order; numbers
inside texts are ordered by their value.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgrid.datasets import Split
from fedgrid.datasets._order import natural
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError

PARTS = ("train", "test")
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
    there = opened(where, file)
    found = {key: named(where, there, key) for key in (*LABELS, *CLIENTS) if key in there}
    labels = numbered(where, found["y_train"], found["y_test"], classes)
    given = {part: read(where, there, f"x_{part}") for part in PARTS}
    x, test = (inputs(f"{where}: x_{part}", given[part], options) for part in PARTS)
    for part, images, y in zip(PARTS, (x, test), labels, strict=True):
        if len(images) != len(y):
            raise UsageError(
                f"{where}: x_{part} has {len(images)} samples and y_{part} {len(y)} labels"
            )
        if images.shape[1:] != shape:
            raise UsageError(
                f"{where}: the samples of x_{part} have the shape {images.shape[1:]}, and "
                f"those of x_train {shape}"
            )
    if not len(test):
        raise UsageError(f"{where}: x_test has no sample: a dataset needs samples to test on")
    if x.dtype != test.dtype:
        raise UsageError(f"{where}: x_train is {given['train'].dtype}, and x_test is not")
    writers, test_writers = (
        clients_of(where, found, key, len(y)) for key, y in zip(CLIENTS, labels, strict=True)
    )
    names = None if writers is None else as_texts(ordered(found[CLIENTS[0]]))
    return Split(x, labels[0], test, labels[1], writers, test_writers, names)


def describe(name: str, file: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the constants of an entry; of the inputs, only the header is read."""
    where = f"datasets.{name}: {file}"
    there = opened(where, file)
    shape, dtype = header(where, there, "x_train")
    if not all(shape):
        raise UsageError(f"{where}: x_train has the shape {shape}, which has no numbers")
    one = inputs(f"{where}: x_train", np.zeros((1, *shape[1:]), dtype), entry)
    if (said := entry.get("shape")) and tuple(said) not in (shape[1:], one.shape[1:]):
        raise UsageError(
            f"{where}: the samples of x_train have the shape {[*shape[1:]]}, and the entry says "
            f"{said}"
        )
    values = class_values(where, *(named(where, there, key) for key in LABELS))
    classes = entry.get("classes") or len(values)
    about: dict[str, Any] = {"CLASSES": classes, "SHAPE": one.shape[1:]}
    if not stand_for_themselves(values, classes):
        if len(values) > classes:
            raise UsageError(f"{where} has {len(values)} classes, and the entry says {classes}")
        unnamed = [f"unnamed {number}" for number in range(len(values), classes)]
        about["CLASS_NAMES"] = as_texts(values) + unnamed
    about |= {"TOKENS": entry["tokens"]} if "tokens" in entry else {}
    about |= {"FLOATS": True} if one.dtype == np.float32 else {}
    given = [key in there for key in CLIENTS]
    if given == [False, True]:
        raise UsageError(f"{where} has {CLIENTS[1]} without {CLIENTS[0]}: add it")
    return about | {one: True for one, is_there in zip(WRITERS, given, strict=True) if is_there}


def read_by(place: Path) -> list[Path]:
    """Return the files that `load` reads."""
    if not place.is_dir():
        return [place]
    return [file for key in (*ARRAYS, *CLIENTS) if (file := place / f"{key}.npy").exists()]


def opened(where: str, place: Path) -> Mapping[str, Any]:
    """Return the arrays by name; UsageError if one is missing. An .npz reads them when asked."""
    there: Any = {}
    for file in read_by(place):
        try:
            if place.is_dir():
                there[file.stem] = np.load(file, mmap_mode="r")
            else:
                there = np.load(file)
        except UNREADABLE as problem:
            kind = f"/{file.name} is no .npy" if place.is_dir() else " is no .npz"
            raise UsageError(f"{where}{kind} file of numpy ({problem})") from None
    if not isinstance(there, Mapping):
        raise UsageError(f"{where} is one array: write an .npz with {', '.join(ARRAYS)}")
    if missing := [key for key in ARRAYS if key not in there]:
        has = ", ".join(there) or "no array"
        raise UsageError(f"{where} lacks {missing[0]}: it has {has}, and needs {', '.join(ARRAYS)}")
    return there


def read(where: str, there: Mapping[str, Any], key: str) -> np.ndarray:
    try:
        return there[key]
    except UNREADABLE as problem:
        raise UsageError(f"{where}: {key} cannot be read ({problem})") from None
    except MemoryError as problem:
        raise UsageError(
            f"{where}: {key} does not fit into memory ({problem}): unpack the .npz, and name the "
            "folder of its .npy files in its place"
        ) from None


def header(where: str, there: Any, key: str) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the type of an array, of which an .npz file is not read further."""
    if isinstance(there, dict):
        return there[key].shape, there[key].dtype
    try:
        with there.zip.open(f"{key}.npy") as content:
            version = np.lib.format.read_magic(content)
            later = np.lib.format.read_array_header_2_0
            read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else later
            shape, _, dtype = read_header(content)
            return shape, dtype
    except UNREADABLE as problem:
        raise UsageError(f"{where}: {key} cannot be read ({problem})") from None


def named(where: str, there: Mapping[str, Any], key: str) -> np.ndarray:
    """Return labels or clients, bytes as texts; UsageError for a text that is no name."""
    values = read(where, there, key)
    if values.dtype.kind == "S":  # different bytes are different texts
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "U" and len(empty := np.flatnonzero(np.char.strip(values) == "")):
        raise UsageError(
            f"{where}: {key} has an empty text for the sample {empty[0]}, counted from 0: give it "
            "a name, or remove the sample"
        )
    return values


# -- inputs ---------------------------------------------------------------------------------------


def inputs(where: str, x: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """Return inputs as a dataset has them: uint8 or float32 images, vectors, or tokens."""
    if "tokens" in options:
        return sequences(where, x, options["tokens"])
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise UsageError(
            f"{where} is {x.dtype}: images are uint8 or floats, vectors are floats, and sequences "
            "of tokens need `tokens`, the number of symbols"
        )
    if x.dtype.kind == "f":
        x = finite(where, x)
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
    if last is None and x.shape[1] > MOST_CHANNELS >= x.shape[3]:
        raise UsageError(
            f"{where} has samples of the shape {x.shape[1:]}, which looks like (height, width, "
            "channels): set `channels_last: true`, or false if the first of these are the channels"
        )
    return np.moveaxis(x, 3, 1) if last else x


def sequences(where: str, x: np.ndarray, tokens: int) -> np.ndarray:
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


def finite(where: str, x: np.ndarray) -> np.ndarray:
    """Return floats in single precision; UsageError for numbers that are not finite there."""
    with np.errstate(over="ignore"):
        single = x.astype(np.float32, copy=False)
    if single.size and not np.isfinite([single.min(), single.max()]).all():
        wrong = np.argwhere(~np.isfinite(single))[0]
        value = x[tuple(wrong)]
        said = "too large for single precision" if np.isfinite(value) else "not finite"
        raise UsageError(
            f"{where} has the number {value:.3g}, which is {said}, in the sample {wrong[0]}, "
            "counted from 0: replace the number, or remove the sample"
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
    if odd := sorted({*test.tolist()} - {*train.tolist()}, key=str):
        raise UsageError(f"{where}: the class {odd[0]} is in y_test and not in y_train")
    if stand_for_themselves(values, classes):
        return [train.astype(np.int64), test.astype(np.int64)]
    return [places(values, train), places(values, test)]


def stand_for_themselves(values: np.ndarray, classes: int) -> bool:
    """Whether the values of the classes are whole numbers from 0 to `classes` - 1."""
    return values.dtype.kind in "iu" and values[0] >= 0 and values[-1] < classes


def ordered(values: np.ndarray) -> np.ndarray:
    """Return the different values in order; numbers inside texts count by their value."""
    found = np.unique(values)
    if found.dtype.kind == "U":
        found[:] = sorted(found.tolist(), key=natural)
    return found


def places(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the place of each number or text among different values, int64."""
    order = np.argsort(values)
    return order[np.searchsorted(values, of, sorter=order)].astype(np.int64)


def as_texts(values: np.ndarray) -> list[str]:
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
    if odd := sorted({*found[key].tolist()} - {*values.tolist()}, key=str):
        raise UsageError(f"{where}: the client {odd[0]} of {key} is not in {CLIENTS[0]}")
    return places(values, found[key])
