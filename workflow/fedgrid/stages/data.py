"""Decode a dataset once into memory-mapped arrays with their hashes and names."""

import csv
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
    with TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as temporary:
        folder = Path(temporary)
        meta = _make(name, root, folder)
        _write_names(folder / "classes.csv", "class", meta.get("class_names"))
        _write_names(folder / "writers.csv", "writer", meta.get("writer_names"))
        (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
        _move(folder, out)
    log.info("%s: %d train, %d test", out, meta["sizes"]["train"], meta["sizes"]["test"])
    return [*(path for kind in FILES for path in sorted(out.glob(kind))), out / "meta.json"]


def _make(name: str, root: Path, folder: Path) -> dict:
    """Write the arrays to a folder; return the content of meta.json.

    Arrays are written first. All that is asked of them is then read from the files, as a part of
    them at a time, and the files are closed at the end.
    """
    from fedgrid import datasets
    from fedgrid.datasets import _digests, _oddities
    from fedgrid.datasets._statistics import measured
    from fedgrid.runtime.files import checksum

    split, module = datasets.load(name, root, folder), datasets.module(name)
    described = datasets.describe(name, split)
    if module.STATISTICS:
        _digests.compare(name, module.STATISTICS, measured(split.train_images))
    _oddities.warn(name, split, hasattr(module, "TOKENS"), described.get("class_names", ()))
    found = {array: checksum(folder / f"{array}.npy") for array in split.arrays}
    _digests.verify(module, name, root, found)
    return described | {"sha256": {f"{array}.npy": digits for array, digits in found.items()}}


def _write_names(path: Path, kind: str, names: list[str] | None) -> None:
    """Write a .csv with the number and the name of each class or writer, if they have names."""
    if not names:
        return
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
