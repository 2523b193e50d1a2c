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

from pathlib import Path

from fedgrid.runtime import cli, records
from fedgrid.runtime.code import own_data
from fedgrid.stages.data import decode
from fedgrid.study.grid import read_names
from fedgrid.study.jobs import dataset_modules
from fedgrid.study.reading import CONFIG


def main(arguments: list[str] | None = None) -> records.Work:
    parser = cli.parser(__doc__)
    parser.add_argument("dataset", help="such as cifar10, or data of your own")
    parser.add_argument("--root", type=Path, default=cli.DATA, help="folder of the originals")
    parser.add_argument("--out", type=Path, help="default: results/data/<dataset>")
    asked = parser.parse_args(arguments)
    if asked.dataset not in own_data.list_datasets():
        read_names(CONFIG)  # a study may name it
    out = asked.out or Path("results/data") / asked.dataset
    made = decode(asked.dataset, asked.root, out)
    return records.Work(made, code=dataset_modules(asked.dataset))


if __name__ == "__main__":
    cli.run(main)
