"""Write down what a product chose, so that other grids of its study run it with other seeds.

    python -m fedgrid choose baselines small tuning

This reads results/tuning.csv, the table of the product `tuning`, and writes its choices to
workflow/studies/chosen/baselines/small/tuning.yaml. Blocks of grids with `chosen: tuning` have
these runs. The command says which values a block with `extend` tries next. They are in its grid
from then on: make the product again and choose again, until nothing is added. Choices of methods
that the table does not have stay. Commit the file before the runs that report, so that nobody can
choose by their results.
"""

import argparse
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedgrid.runtime import cli, files
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.chosen import Choice, choices_file, next_values, read_choices
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.protocol import KINDS
from fedgrid.study.reading import CONFIG, check_place, find_study
from fedgrid.study.variants import split_name

NAMES = ("dataset", "partition", "protocol", "method")  # columns of a table with choices


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("study", help="a study's name")
    parser.add_argument("scale", help="a scale of the study")
    parser.add_argument("product", help="a product with a row for each choice")
    parser.add_argument("--table", type=Path, help="default: results/<product>.csv")
    parser.add_argument("--config", type=Path, default=CONFIG, help="which has your protocols")
    asked = parser.parse_args(arguments)
    everything = read_grid(asked.config)
    study = everything.studies.named(asked.study)
    known("scale", asked.scale, study["scales"])
    known("product", asked.product, study["products"])
    rows = read_rows(asked.table or Path(f"results/{asked.product}.csv"), asked.scale)
    path = choices_file(find_study(asked.study), asked.scale, asked.product)
    check_place(path)
    choices = merge_choices(read_choices(path), rows, everything)
    command = f"python -m fedgrid choose {asked.study} {asked.scale} {asked.product}"
    lines = [f"# Written by `{command}`.", *(f"- {json.dumps(choice)}" for choice in choices)]
    with files.replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(choices)} choices are in {path}")
    for sentence in describe_next(study, asked, choices):
        print(sentence)


def read_rows(path: Path, scale: str) -> list[dict[str, str]]:
    """Return the rows of a product's table; UsageError if it has no choices of this scale."""
    try:
        rows = [*csv.DictReader(path.read_text("utf-8").splitlines())]
    except OSError as problem:
        raise UsageError(f"{path} cannot be read ({problem}): make the product first") from None
    if not rows or not {*NAMES} <= rows[0].keys():
        raise UsageError(
            f"{path} has no choices, which are rows with the columns {', '.join(NAMES)}: name a "
            "product of `draw: tuned` or `draw: screened`"
        )
    if {row.get("scale", scale) for row in rows} != {scale}:
        raise UsageError(f"{path} is not of the {scale} scale: make it again at this scale")
    return rows


def merge_choices(before: list[Choice], rows: list[dict[str, str]], names: Grid) -> list[Choice]:
    """Return the choices in rows, and those before of methods that the rows do not have."""
    found = [(row, make_choice(row, names)) for row in rows]
    there = [cell_of(choice) for _, choice in found]
    stay = [choice for choice in before if cell_of(choice) not in there]
    chosen = [choice for row, choice in found if row.get("confirm") != "False"]
    return sorted([*stay, *chosen], key=cell_of)


def cell_of(choice: Choice) -> tuple[str, ...]:
    return tuple(str(choice[name]) for name in NAMES)


def make_choice(row: dict[str, str], names: Grid) -> Choice:
    """Return the choice in a row, with names and values apart, as a sweep has them."""
    protocol, of_protocol = split(row["protocol"], [*names.protocols], lambda name: KINDS)
    method, own = split(row["method"], names.methods(), names.hyper_parameters)
    given = {"protocol": of_protocol, method: own}
    tried = [text.split(": ") for text in row.get("tried", "").split("; ") if text]
    return {
        "dataset": row["dataset"],
        "partition": row["partition"],
        "protocol": protocol,
        "method": method,
        "values": {name: fields for name, fields in given.items() if fields},
        "tried": {field: [float(v) for v in values.split(", ")] for field, values in tried},
        "seeds": [int(seed) for seed in row.get("tried_with", "").split()],
    }


def split(name: str, bases: list[str], fields_of: Callable) -> tuple[str, dict[str, Any]]:
    """Return the base of a name, which can be the name itself, and the values that follow it."""
    found = None if name in bases else split_name(name, bases, fields_of)
    return found or (name, {})


def describe_next(study: Any, asked: argparse.Namespace, choices: list[Choice]) -> list[str]:
    grid = study["products"][asked.product]["from"].get("runs", "").partition("/")[2]
    bounds: dict[str, Any] = {}
    for block in study["scales"][asked.scale]["grids"].get(grid, []):
        bounds |= block.get("extend", {}).get(asked.product, {})
    said = [
        f"{field} {v:g} is to be tried for {c['method']} ({c['dataset']}, {c['partition']})"
        for field, limits in bounds.items()
        for c in choices
        for v in next_values(c, field, limits)
    ]
    return [*said, f"make {asked.product} again, and choose again"] if said else []


if __name__ == "__main__":
    cli.run(main)
