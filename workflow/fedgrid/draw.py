"""Draw a table or figure from its sources, in every format that is asked for.

    python -m fedgrid.draw table1 --study fedsls --sources runs=runs/table1.csv --out table1.csv
    python -m fedgrid.draw table1 --study fedsls --show table1.csv

A product is a file of fedgrid/report/, see there. --show prints one that has been made.
"""

import re
import traceback
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from fedgrid import cli, contract, files, grid, records, report
from fedgrid.names import UsageError, known


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = cli.parser(__doc__)
    parser.add_argument("product", help="a file of fedgrid/report/ or of the study's folder there")
    parser.add_argument("--study", required=True, help="a study's name, or its .yaml")
    parser.add_argument("--sources", nargs="*", default=[], metavar="NAME=CSV")
    parser.add_argument("--scale", default="quick", help="which scale the sources are of")
    parser.add_argument("--out", type=Path, nargs="+", help=f"files: {', '.join(WRITERS)}")
    parser.add_argument("--show", type=Path, help="print this .csv for people, and nothing else")
    asked = parser.parse_args(arguments)
    path = grid.find_study(asked.study)
    study = grid.read_study(path)
    product = contract.imported(report.module(path.stem, asked.product))
    if asked.show:
        print(text(product, asked.show))
    elif not asked.out:
        parser.error("--out is needed, or --show")
    else:
        wanted = report.sources(path.stem, asked.product)
        tables = given(asked.sources, wanted)
        try:
            table = product.draw(**tables, study=study, scale=asked.scale)
        except KeyError as problem:
            if not missing_column(problem, tables.values()):
                raise
            raise UsageError(f"a source of {asked.product} has no column {problem}") from None
        write(product, table, study, asked.out)


def missing_column(problem: KeyError, tables: Iterable) -> bool:
    """Whether pandas has missed a column, and one that a table lacks: other keys are not theirs."""
    *_, innermost = traceback.walk_tb(problem.__traceback__)
    asked_of_pandas = innermost[0].f_globals["__name__"].startswith("pandas.")
    return asked_of_pandas and any(problem.args[0] not in table for table in tables)


def given(sources: list[str], wanted: list[str]) -> dict:
    """The tables of NAME=CSV, by name; UsageError unless they are those that are wanted."""
    paths = dict(text.partition("=")[::2] for text in sources)
    if missing := [name for name in wanted if name not in paths]:
        raise UsageError(f"--sources lacks {', '.join(missing)}")
    for name in paths:
        known("source of this product", name, wanted)
    records.NOTES.inputs += [Path(paths[name]) for name in wanted]
    return {name: read(Path(paths[name])) for name in wanted}


def text(product, path: Path) -> str:
    """A product that has been made, for people."""
    table = read(path)
    try:
        body = laid_out(product, table).to_string(na_rep="") if len(table) else ""
        return f"{product.caption(table)}\n\n{body}".strip()
    except KeyError as problem:
        if problem.args[0] in table:
            raise
        raise UsageError(f"{path} is another table: it has no column {problem}") from None


def read(path: Path):
    """A table of a .csv file."""
    import pandas as pd

    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path} cannot be read as a table ({problem})") from problem


def laid_out(product, table):
    """The table as people want to see it."""
    return product.wide(table) if hasattr(product, "wide") else table.set_index(table.columns[0])


# -- formats ------------------------------------------------------------------------------------


def write(product, table, study: dict, paths: list[Path]) -> None:
    """The product in every format, each under its final name once it is whole."""
    for path in paths:
        known("format", path.suffix, WRITERS)
        if path.suffix in report.FIGURES and not hasattr(product, "plot"):
            raise UsageError(f"{path} cannot be drawn: the product is a table and has no `plot`")
        with files.replacing(path) as temporary:
            WRITERS[path.suffix](product, table, temporary, study)


def as_csv(product, table, path: Path, study: dict) -> None:
    """All numbers."""
    table.to_csv(path, index=False)


def as_tex(product, table, path: Path, study: dict) -> None:
    """For a paper; needs the package booktabs."""
    body = laid_out(product, table).to_latex(multicolumn_format="c", escape=True, na_rep="")
    body = re.sub(r"(\S+) ± (\S+)", r"$\1 \\pm \2$", body)
    path.write_text(f"% {product.caption(table)}\n{body}")


def as_html(product, table, path: Path, study: dict) -> None:
    """For the report: a page that needs no other file."""
    body = laid_out(product, table).to_html(border=0, na_rep="")
    path.write_text(PAGE.format(caption=product.caption(table), body=body))


def as_figure(product, table, path: Path, study: dict, form: str) -> None:
    """For print (pdf) and for screens (svg)."""
    from fedgrid import figures

    with figures.style():
        figure = figures.explain(product.plot(table, study), product.caption(table))
        figures.save(figure, path, form)


WRITERS = {
    ".csv": as_csv,
    ".tex": as_tex,
    ".html": as_html,
    ".pdf": partial(as_figure, form="pdf"),
    ".svg": partial(as_figure, form="svg"),
}

PAGE = """<!doctype html>
<meta charset="utf-8">
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; color: #222; margin: 1.5em; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .25em .7em; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
tbody th {{ font-weight: normal; }}
thead th {{ border-bottom: 1px solid #222; }}
</style>
<p>{caption}</p>
{body}
"""


if __name__ == "__main__":
    cli.run(main)
