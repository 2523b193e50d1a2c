"""Decode a dataset once into memory-mapped arrays with their hashes and names."""

import csv
import hashlib
import json
import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory

FILES = ("*.npy", "classes.csv", "writers.csv")  # what a dataset may have beside meta.json

log = logging.getLogger(__name__)


def decode(name: str, root: Path, out: Path) -> list[Path]:
    """Decode a dataset of the folder `root` into the folder `out`; return the files.

    The last one, meta.json, marks the dataset as complete. UsageError if the dataset is missing or
    damaged.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as folder:
        sizes = _make(name, root, Path(folder))
        _move(Path(folder), out)
    log.info("%s: %d train, %d test", out, sizes["train"], sizes["test"])
    return [*(path for kind in FILES for path in sorted(out.glob(kind))), out / "meta.json"]


def _make(name: str, root: Path, folder: Path) -> dict[str, int]:
    """Write the dataset to a folder; return its sizes.

    Arrays are written first. All that is asked of them is then read from the files, as a part of
    them at a time, and the files are closed at the end.
    """
    from fedgrid import datasets
    from fedgrid.datasets import _digests as digests
    from fedgrid.datasets import _oddities
    from fedgrid.datasets._statistics import measured

    split = datasets.load(name, root, folder)
    module = datasets.module(name)
    described = datasets.describe(name, split)
    if module.STATISTICS:
        digests.compare(name, module.STATISTICS, measured(split.train_images))
    _oddities.warn(name, split, hasattr(module, "TOKENS"), described.get("class_names", ()))
    found = {array: _sha256(folder / f"{array}.npy") for array in split.arrays}
    digests.verify(module, name, root, found)
    hashes = {f"{array}.npy": digits for array, digits in found.items()}
    _describe(folder, described | {"sha256": hashes})
    return described["sizes"]


def _sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(folder: Path, meta: dict) -> None:
    """Write the names of classes and writers, and meta.json."""
    for kind, file in (("class", "classes.csv"), ("writer", "writers.csv")):
        if names := meta.get(f"{kind}_names"):
            _write_names(folder / file, kind, names)
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def _write_names(path: Path, kind: str, names: list[str]) -> None:
    """Write a .csv with the number and the name of each class or writer."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerows([(kind, "name"), *enumerate(names)])


def _move(folder: Path, out: Path) -> None:
    """Move the files one by one; meta.json, the last, marks the dataset as complete."""
    out.mkdir(exist_ok=True)
    (out / "meta.json").unlink(missing_ok=True)
    for path in (path for kind in FILES for path in out.glob(kind)):
        path.unlink()  # a version before may have had other arrays
    for path in (path for kind in FILES for path in sorted(folder.glob(kind))):
        os.replace(path, out / path.name)
    os.replace(folder / "meta.json", out / "meta.json")
