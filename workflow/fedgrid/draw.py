"""Draw a table or figure from the collected runs of its grid.

    python -m fedgrid.draw table1 runs.csv --study workflow/studies/fedsls.yaml --out table1.csv
    python -m fedgrid.draw table1 --show table1.csv

A product is a file of fedgrid/report/ with `draw(runs, study, scale)`, which gives a table or a
figure, and for a table `tex(table)` and `text(table)`: the same for papers and for people. --show
prints a table that has been made.
"""

from importlib import import_module
from pathlib import Path

from fedgrid import cli, files, grid
from fedgrid.names import UsageError, known, registered


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = cli.parser(__doc__)
    parser.add_argument("product", help=f"one of {', '.join(registered('report'))}")
    parser.add_argument("runs", type=Path, nargs="?", help="what fedgrid.collect wrote")
    parser.add_argument("--study", type=Path, help="the study's .yaml, for its published values")
    parser.add_argument("--scale", default="quick", help="which scale the runs are of")
    parser.add_argument("--out", type=Path, help="a .csv or .tex file")
    parser.add_argument("--show", type=Path, help="print this table and do nothing else")
    asked = parser.parse_args(arguments)
    known("product", asked.product, registered("report"))
    report = import_module(f"fedgrid.report.{asked.product}")
    if asked.show:
        print(shown(report, asked.show))
    elif not asked.runs or not asked.out:
        parser.error("runs and --out are needed, or --show")
    else:
        study = grid.read_study(asked.study) if asked.study else {}
        table = report.draw(read(asked.runs), study, asked.scale)
        in_csv = asked.out.suffix == ".csv"
        write(table.to_csv(index=False) if in_csv else report.tex(table), asked.out)


def shown(report, path: Path) -> str:
    """A table that has been made, for people."""
    try:
        return report.text(read(path))
    except KeyError as column:
        raise UsageError(f"{path} is another table: it has no column {column}") from None


def read(path: Path):
    """A table of a .csv file."""
    import pandas as pd

    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path} cannot be read as a table ({problem})") from problem


def write(text: str, path: Path) -> None:
    """A text under its final name."""
    with files.replacing(path) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    cli.run(main)
