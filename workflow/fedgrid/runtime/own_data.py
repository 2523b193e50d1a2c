"""Data of one's own: entries of a configuration, each of which stands for a file of datasets/.

    datasets:
      flowers: {folder: /data/flowers, size: 32}
      spectra: {npz: spectra.npz}

The text of the file is made of the entry: its constants, and a `load` that leads to
`datasets/_folder.py` or `datasets/_npz.py`. Its constant CONTENT is a hash of the names, sizes and
times of the files, so that other files make other results; the place of the files is no part of it.
The Snakefile imports this: no torch, and numpy for .npz files only.
"""

import json
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from fedgrid.runtime.names import PACKAGE, UsageError, shown

VARIABLE = "FEDGRID_OWN_DATA"  # the entries as JSON: what the Snakefile tells its jobs
CONFIG = Path("config.yaml")
KINDS = ("folder", "npz")
DEFAULTS = {"size": 32, "channels": 3, "test": 0.2}  # of a folder of images
IGNORED = ("thumbs.db", "desktop.ini")  # what systems leave in folders; so are hidden files
TEXT = '''"""{about}"""
from fedgrid.datasets import _{kind}
TRAIN = None
TEST = None
CLASSES = {classes}
SHAPE = {shape}
STATISTICS = {{}}
{more}CONTENT = "{content}"
OPTIONS = {options}
def load(root):
    """Return the samples."""
    return _{kind}.load("{name}", SHAPE, CLASSES, OPTIONS)
'''


def entries() -> dict[str, dict]:
    """Return the entries by name: those of the Snakefile, or else of this folder's config.yaml."""
    if (given := os.environ.get(VARIABLE)) is not None:
        return json.loads(given)
    if not CONFIG.exists() or "datasets" not in (text := CONFIG.read_text()):
        return {}
    import yaml

    read = yaml.safe_load(text)
    return (read.get("datasets") or {}) if isinstance(read, dict) else {}


def give(config: dict) -> dict:
    """Make a configuration's entries known; return it with names in place of `folder:PATH`.

    UsageError for an entry that has the name of a file of datasets/.
    """
    there = dict(config.get("datasets") or {})
    asked = config.get("dataset")
    asked = asked.split(",") if isinstance(asked, str) else asked
    if isinstance(asked, list):
        asked = [named(str(one), there) for one in asked]
    for name in there:
        if (PACKAGE / "datasets" / f"{name}.py").exists():
            raise UsageError(
                f"datasets.{name} of the configuration has the name of a dataset of fedgrid: give "
                "it another name"
            )
    os.environ[VARIABLE] = json.dumps(there, sort_keys=True)
    return config | {"datasets": there} | ({"dataset": asked} if asked else {})


def named(text: str, there: dict[str, dict]) -> str:
    """Return the name of a dataset in `folder:PATH` or `npz:PATH`, which gets an entry."""
    kind, colon, place = text.partition(":")
    if not colon or kind not in KINDS:
        return text
    stem = Path(place).name if kind == "folder" else Path(place).stem
    name = re.sub(r"[^\w.=@]", "_", stem).lstrip(".") or kind
    entry = {kind: place}
    if there.setdefault(name, entry) != entry:
        raise UsageError(
            f"the dataset {shown(text)} has the name {name}, as another one has: write an entry "
            "with another name under `datasets`"
        )
    return name


def text(name: str) -> str:
    """Return the text of the file that an entry stands for; UsageError if it does not fit."""
    entry = entries()[name]
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1:
        raise UsageError(f"datasets.{name} needs either `folder` or `npz`, a path")
    kind, place = kinds[0], Path(os.path.expanduser(entry[kinds[0]]))
    if not (place.is_dir() if kind == "folder" else place.is_file()):
        what = "folder" if kind == "folder" else "file"
        raise UsageError(f"datasets.{name}: there is no {what} {place}")
    facts = of_folder(name, entry, place) if kind == "folder" else of_npz(name, entry, place)
    clients = entry.get("clients")
    more = [f"{key} = {value}\n" for key, value in facts.pop("more").items()]
    said = [content(place), content(Path(clients)) if clients else ""]
    return TEXT.format(
        **facts, about=f"Own data: {name}.", kind=kind, more="".join(more), name=name,
        content=sha256("".join(said).encode()).hexdigest()[:12],
        options={key: value for key, value in sorted(entry.items()) if key not in KINDS},
    )  # fmt: skip


def place_of(name: str, kind: str) -> Path:
    """Return the path of an entry's folder or file."""
    return Path(os.path.expanduser(entries()[name][kind]))


def content(place: Path) -> str:
    """Return a hash of the names, sizes and times of a file, or of all files of a folder."""
    files = files_of(place) if place.is_dir() else [place]
    try:
        states = [(file, file.stat()) for file in files]
    except OSError as problem:
        raise UsageError(f"{problem.filename} cannot be read ({problem.strerror})") from None
    lines = [f"{f.relative_to(place)} {s.st_size} {s.st_mtime_ns}" for f, s in states]
    return sha256("\n".join(lines).encode()).hexdigest()


def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder in the order of their names, without what systems leave."""
    return sorted(
        Path(where, file)
        for where, folders, names in os.walk(folder)
        for file in names
        if not (file.startswith(".") or file.lower() in IGNORED)
    )


# -- folders --------------------------------------------------------------------------------------


def of_folder(name: str, entry: dict, folder: Path) -> dict[str, Any]:
    """Return the constants of a folder of images, with a folder for each class."""
    size = entry.get("size", DEFAULTS["size"])
    height, width = size if isinstance(size, list) else (size, size)
    channels = entry.get("channels", DEFAULTS["channels"])
    classes = class_names(name, folder)
    more = {"CLASS_NAMES": classes} | ({"WRITERS": True} if entry.get("clients") else {})
    return {"classes": len(classes), "shape": (channels, height, width), "more": more}


def parts_of(folder: Path) -> dict[str, Path]:
    """Return the folders of training and test images; without a `test`, both are in one folder."""
    there = {part: folder / part for part in ("train", "test")}
    return there if all(path.is_dir() for path in there.values()) else {"train": folder}


def class_names(name: str, folder: Path) -> list[str]:
    """Return the classes of a folder in the order of their labels.

    UsageError for fewer than two, and if the training and the test images have other ones.
    """
    found = {part: [*folders_of(path)] for part, path in parts_of(folder).items()}
    train, test = found["train"], found.get("test", found["train"])
    if train != test:
        odd = sorted({*train} ^ {*test})[0]
        raise UsageError(
            f"datasets.{name}: the class {shown(odd)} is in only one of {folder}/train and "
            f"{folder}/test: both need a folder for each class"
        )
    if len(train) < 2:
        raise UsageError(
            f"datasets.{name}: {folder} has {len(train)} folders with images, and each class needs "
            "one: give it at least two"
        )
    return train


def folders_of(folder: Path) -> Iterator[str]:
    """Yield the names of the folders in a folder, in order, without hidden ones."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield path.name


# -- files of arrays ------------------------------------------------------------------------------


def of_npz(name: str, entry: dict, file: Path) -> dict[str, Any]:
    """Return the constants of an .npz file, from the labels and the shape of its arrays."""
    reader = import_module("fedgrid.datasets._npz")  # of an upper layer, and it imports numpy
    shape, classes, names = reader.describe(f"datasets.{name}: {file}", file, entry)
    tokens = {"TOKENS": entry["tokens"]} if "tokens" in entry else {}
    writers = {constant: True for constant, given in zip(WRITERS, names, strict=True) if given}
    return {"classes": classes, "shape": shape, "more": tokens | writers}


WRITERS = ("WRITERS", "TEST_WRITERS")
