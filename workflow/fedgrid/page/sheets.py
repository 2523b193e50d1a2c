"""CSV files whose rows the pages show: each number on a page names its row and column."""

import csv
import math
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from fedgrid.analysis.symbols import write_symbols
from fedgrid.runtime import files

MINUS = "\N{MINUS SIGN}"
DIVERGED = {math.inf: "the other runs diverged", -math.inf: "its runs diverged"}


class Row:
    """A row of a CSV file, whose cells are texts."""

    def __init__(self, file: str, line: int, values: dict[str, str]):
        self.file, self.values = file, values
        self.label = f"{file}:{line}"  # also its anchor in the page of rows

    def __getitem__(self, column: str) -> str:
        """Return the text of a cell; empty if the file has no such column."""
        return self.values.get(column, "")

    def list_endings(self, start: str) -> list[str]:
        """Return what follows `start` in names of columns: `best` of `verdict_best`."""
        return [name.removeprefix(start) for name in self.values if name.startswith(start)]

    def read_number(self, column: str) -> float:
        """Return the number in a cell; NaN if it is empty."""
        return float(self[column] or "nan")

    def is_finite(self, column: str) -> bool:
        return math.isfinite(self.read_number(column))

    def mark_number(self, column: str, form: str = "{:g}") -> Markup:
        """Write a number; an infinite one is replaced by words, an empty cell by ""."""
        value = self.read_number(column)
        if math.isnan(value):
            return Markup("")
        return self.mark(column, DIVERGED.get(value) or form.format(value).replace("-", MINUS))

    def mark_text(self, column: str) -> Markup:
        return self.mark(column, write_symbols(self[column]))

    def mark(self, column: str, text: str) -> Markup:
        """Write a text, and note the row and the column from which it is taken."""
        return Markup('<span data-row="{}" data-column="{}">{}</span>').format(
            self.label, column, text
        )

    def link_text(self, column: str) -> Markup:
        """Write the text of a cell as a link to its row, from a page in the folder of the files."""
        return Markup('<a href="{}#{}" data-column="{}">{}</a>').format(
            name_page(self.file), self.label, column, write_symbols(self[column])
        )


def name_page(file: str) -> str:
    """Return the name of the page that shows the rows of a file, together with similar files."""
    study, _, kind = file.partition("_")
    return f"{study if kind else 'all'}_rows.html"


class Sheet:
    """A CSV file that is written from a table, and its rows read back from the file."""

    def __init__(self, path: Path, table: pd.DataFrame):
        self.name = path.name
        with files.replacing(path, sync=False) as temporary:
            table.to_csv(temporary, index=False)
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            self.columns = list(lines.fieldnames or [])
            self.rows = [Row(path.name, at, values) for at, values in enumerate(lines, start=2)]

    def find_rows(self, **wanted: str) -> list[Row]:
        return [row for row in self.rows if all(row[name] == text for name, text in wanted.items())]
