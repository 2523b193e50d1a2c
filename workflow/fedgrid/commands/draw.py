"""Draw a table or figure from its sources, in one or several formats.

    python -m fedgrid draw table1 --study fedsls --sources runs=runs/table1.csv --out table1.csv
    python -m fedgrid draw table1 --show
    python -m fedgrid draw claims --show results/claims/3.csv

A product is an entry of its study or of config.yaml, and a file of fedgrid/report/ draws it. --show
prints the table in a file, of a figure its numbers. Without a file it is results/table1.csv, which
Snakemake has made last, or with --study the table of this study. If runs are kept with the study,
the product's column `kept` says how many, and its caption ends with this sentence; the product's
file does not see the column.

If the runs allow no row, because only a part of the grid was asked for, the files say so: the .csv
has the reason in its only column `nothing`, and the others have it as their caption.
"""

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

from fedgrid.report import _product
from fedgrid.report._formats import WRITERS, write_product
from fedgrid.report._shown import find_entry, show_product
from fedgrid.runtime import cli, records
from fedgrid.runtime.names import UsageError, known
from fedgrid.store.kept import store_folder
from fedgrid.study.products import product_module
from fedgrid.study.reading import find_study, read_study
from fedgrid.study.records import Product

LAST = Path()  # --show without a file


def main(arguments: list[str] | None = None) -> records.Work | None:
    parser = cli.parser(__doc__)
    parser.add_argument("product", help="a product of the study, or a file of fedgrid/report/")
    parser.add_argument("--study", help="a study's name, or its .yaml")
    parser.add_argument(
        "--sources", nargs="*", default=[], metavar="NAME=CSV", help="what it is drawn from"
    )
    parser.add_argument("--entry", help="the product's entry as JSON, instead of the study's")
    parser.add_argument(
        "--scale", default="quick", help="the scale of the sources (default: quick)"
    )
    parser.add_argument("--out", type=Path, nargs="+", help=f"files: {', '.join(WRITERS)}")
    parser.add_argument(
        "--show", type=Path, nargs="?", const=LAST, metavar="CSV",
        help="only print the finished table in this file",
    )  # fmt: skip
    asked = parser.parse_args(arguments)
    if asked.show:
        print(show_product(asked.product, find_table(asked), asked.study))
        return None
    if not (asked.out and asked.study):
        parser.error("--show, or --study and --out are needed")
    path = find_study(asked.study)
    study = read_study(path)
    about = read_entry(asked.entry) if asked.entry else find_entry(asked.product, path.stem, study)
    product = _product.load_product(path.stem, asked.product, about)
    paths = sources(asked.sources, product)
    tables = {name: _product.read_table(path) for name, path in paths.items()}
    folder = store_folder(path.stem, asked.scale, path.parent)
    said = _product.describe_kept(asked.product, paths, tables, folder)
    tables = {name: _product.drop_kept(table) for name, table in tables.items()}
    product, table = _product.draw_or_explain(product, tables, study, asked)
    write_product(product, _product.add_kept_column(table, said), study, asked.out)
    code = ["report._formats", product_module(path.stem, asked.product, about)]
    return records.Work(asked.out, paths.values(), code=code)


def find_table(asked: Namespace) -> Path:
    if asked.show != LAST:
        return asked.show
    folder = f"results/studies/{asked.study}/{asked.scale}" if asked.study else "results"
    return Path(folder, f"{asked.product}.csv")


def read_entry(text: str) -> Product:
    """Return a product's entry from JSON; UsageError unless it is one."""
    try:
        found = json.loads(text)
        return found | {"with": dict(found.get("with", {}))}
    except (ValueError, TypeError, AttributeError) as problem:
        raise UsageError(f"--entry is not a product's entry in JSON: {problem}") from None


def sources(texts: list[str], product: SimpleNamespace) -> dict[str, Path]:
    """Return the paths in texts NAME=CSV; UsageError unless the product takes these names."""
    paths = dict(text.partition("=")[::2] for text in texts)
    if missing := sorted(product.needed - paths.keys()):
        raise UsageError(f"--sources lacks {', '.join(missing)}")
    for name in paths if product.possible is not None else ():
        known("source of this product", name, product.possible)
    return {name: Path(path) for name, path in paths.items()}


if __name__ == "__main__":
    cli.run(main)
