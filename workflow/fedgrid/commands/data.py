"""Decode a dataset once into memory-mapped arrays.

    python -m fedgrid data digits --root data --out results/data/digits

The files of the dataset are read from --root, and downloaded to it if they are missing.
--out receives train_images.npy, train_labels.npy, test_images.npy, test_labels.npy, with the
writers of images train_writers.npy and test_writers.npy and, last of all, meta.json: sizes,
classes, shape, normalisation constants and the arrays' sha256.
Normalisation constants are in units of images scaled to [0, 1]; they are recorded, not applied.
The images of a dataset of texts are sequences of tokens. They have no normalisation constants, and
meta.json has their number of symbols as `tokens`.
If classes or writers have names, meta.json has them, and classes.csv and writers.csv say which
number stands for which name.
"""

import argparse
import csv
import hashlib
import json
import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from fedgrid.runtime import cli, records

FILES = ("*.npy", "classes.csv", "writers.csv")  # what a dataset may have beside meta.json

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> records.Work:
    """Run the command; UsageError if the dataset is unknown, missing or damaged."""
    asked = _parser().parse_args(arguments)
    out = asked.out or Path("results/data") / asked.dataset
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as folder:
        sizes = _make(asked.dataset, asked.root, Path(folder))
        _move(Path(folder), out)
    log.info("%s: %d train, %d test", out, sizes["train"], sizes["test"])
    made = [path for kind in FILES for path in sorted(out.glob(kind))]
    return records.Work([*made, out / "meta.json"])


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(__doc__)
    parser.add_argument("dataset", help="a file of fedgrid/datasets, such as cifar10")
    parser.add_argument("--root", type=Path, default=cli.DATA, help="folder of the originals")
    parser.add_argument("--out", type=Path, help="default: results/data/<dataset>")
    return parser


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
    _oddities.warn(name, split, tokens=hasattr(module, "TOKENS"))
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


if __name__ == "__main__":
    cli.run(main)
