"""The dictionary of columns, docs/columns.yaml, and what a file has that is not in it."""

import csv
import re
import sys
from pathlib import Path

from fedgrid.page.verdict_bar import WORDS
from fedgrid.study.options import WAYS
from written import DOCS

sys.path.insert(0, str(DOCS))
import hooks

ABOUT = hooks.dictionary()
FILES = {of["name"]: of["columns"] for of in ABOUT["files"]}
# What the marks in names of columns stand for.
FAMILIES = {"<k>": r"\d+", "<l>": r"\d+", "<class>": r".+", "<layer>": r"[\w.]+\.\w+"}
FAMILIES |= {"<metric>": "|".join(WAYS), "<name>": r"\w+", "<model>": "server|own"}
FAMILIES |= {"<statistic>": r"weighted|mean|spread|worst|best|decile\d", "<source>": r".+"}
FAMILIES |= {"<verdict>": "|".join(WORDS)}
# In collected tables and products, if there are any.
ANYWHERE = {"kept", "code_changed", "chosen", "chosen_by", "cited", "clients_without_tests"}
ANYWHERE |= {"nothing"}
OPTIONAL = {"of", "alpha"}  # of metrics other than accuracy; of Dirichlet partitions


def pattern(column: str) -> str:
    """A regular expression for the names of a column."""
    parts = re.split("(<[a-z]+>)", column)
    return "".join(f"({FAMILIES[p]})" if p in FAMILIES else re.escape(p) for p in parts)


def unknown(name: str, header: list[str]) -> list[str]:
    """The columns of a file that the dictionary does not have for it."""
    there = [pattern(one) for one in (*hooks.columns_of(name, FILES), *ANYWHERE, *OPTIONAL)]
    return [one for one in header if not any(re.fullmatch(p, one) for p in there)]


def header(path: Path) -> list[str]:
    """The names of the columns of a CSV."""
    with path.open(newline="") as file:
        return next(csv.reader(file))
