"""Pack a study of your paper with its kept runs, tables and figures, for those who review it.

    python -m fedgrid keep my_paper small
    python -m fedgrid bundle my_paper small

This works in the folder of a paper (`fedgrid new`). The tables and figures are drawn anew, from the
kept runs alone; those with runs that are not kept are left out. `store/bundled.py` says what the
archive has. A reviewer opens it with `fedgrid review`.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from fedgrid.runtime import cli, places
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, known
from fedgrid.store import bundled
from fedgrid.store.keeping import list_drawable
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.protocol import AXES
from fedgrid.study.reading import CONFIG, check_place, find_study, read_config
from fedgrid.study.records import Study

NARROWING = (*AXES, "sweep")  # keys of a configuration by which a grid has other runs


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("study", help="a study of your paper")
    parser.add_argument("scale", help="a scale of the study")
    parser.add_argument("--out", type=Path, help="default: <study>-<scale>.zip")
    parser.add_argument("--cores", default="all", help="for Snakemake")
    asked = parser.parse_args(arguments)
    asked.out = asked.out or Path(f"{asked.study}-{asked.scale}.zip")
    everything = read_grid(CONFIG)
    study = everything.studies.named(asked.study)
    known("scale", asked.scale, study["scales"])
    folder = check_asked(asked)
    drawable = list_drawable(everything, asked.study, asked.scale)
    if not drawable:
        raise UsageError(
            f"no product of {asked.study} has all of its runs kept at the {asked.scale} scale: run "
            f"`snakemake --cores all --config scale={asked.scale}`, and then `python -m fedgrid "
            f"keep {asked.study} {asked.scale}`"
        )
    data = describe_data(everything, asked.study, asked.scale)
    make_bundle(asked, folder, study, drawable, data)
    print(f"{asked.out} has {', '.join(drawable)}: {asked.out.stat().st_size / 1e3:,.0f} kB")
    if others := {*everything.products(asked.study, asked.scale)} - {*drawable}:
        print(f"not in it, because not all of their runs are kept: {', '.join(sorted(others))}")
    print(data or "look into it before you send it: it has all code and all studies of the folder")


def check_asked(asked: argparse.Namespace) -> Path:
    """Return the folder of the paper; UsageError if no bundle can be made as asked."""
    check_place(find_study(asked.study))
    if not (folder := places.paper()):
        raise UsageError(
            "a bundle can only be made in the folder of a paper: make one by `python -m fedgrid "
            "new NAME`"
        )
    config = read_config(CONFIG)
    if narrowed := [key for key in NARROWING if config.get(key)]:
        raise UsageError(
            f"config.yaml has `{narrowed[0]}`, and a bundle is of a whole study: remove the key"
        )
    if asked.out.suffix != ".zip":
        raise UsageError(f"--out {asked.out} is no archive: give a name that ends with .zip")
    return folder


def describe_data(everything: Grid, study: str, scale: str) -> str:
    """Say which data of the author's own a study's runs need; empty if there are none."""
    grids = everything.studies[study]["scales"][scale]["grids"]
    used = {run["dataset"] for grid in grids for run in everything.runs(study, scale, grid)}
    own = {name: entry for name, entry in own_data.entries().items() if name in used}
    listed = "; ".join(f"{name} {json.dumps(entry)}" for name, entry in own.items())
    return f"To train runs again, the data of the study are needed: {listed}." * bool(own)


def make_bundle(
    asked: argparse.Namespace, paper: Path, study: Study, drawable: list[str], data: str
) -> None:
    names = [f"{name}.{ext}" for name in drawable for ext in study["products"][name]["formats"]]
    with TemporaryDirectory() as temporary:
        bundle = Path(temporary) / asked.out.stem
        bundled.fill(bundle, paper, asked.study, asked.scale, data)
        bundled.draw(bundle, asked.study, asked.scale, names, asked.cores)
        bundled.take_products(bundle, asked.study, asked.scale, names)
        bundled.describe(bundle, study["title"])
        bundled.write_sums(bundle)
        bundled.pack(bundle, asked.out)


if __name__ == "__main__":
    cli.run(main)
