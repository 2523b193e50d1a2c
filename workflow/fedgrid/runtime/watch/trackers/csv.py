"""metrics.running.csv: the evaluations so far, beside the metrics.csv that the run will have.

A row is appended. The file is replaced if a row brings a new column, and when a run resumes. It
has no incomplete line at any time.
"""

import csv
import io
from pathlib import Path
from typing import Any

from fedgrid.runtime import files
from fedgrid.runtime.watch.trackers import Run

PACKAGE = ""
RUNNING = "metrics.running.csv"


def tracker(run: Run, rows: list[dict[str, Any]]) -> "Running":
    return Running(run.out / RUNNING, rows)


def discard(out: Path) -> None:
    """Delete the file: the run has finished."""
    (out / RUNNING).unlink(missing_ok=True)


class Running:
    def __init__(self, path: Path, rows: list[dict[str, Any]]):
        self.path, self.rows = path, list(rows)
        self.columns: list[str] = []
        self.replace()

    def write(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.columns and row.keys() <= {*self.columns} and self.path.exists():
            self.append(text(self.columns, [row]))
        else:
            self.replace()

    def append(self, line: str) -> None:
        """Add a line, or nothing if the disk is full."""
        with self.path.open("ab", buffering=0) as file:
            before, content = file.tell(), line.encode()
            try:
                complete = file.write(content) == len(content)
            except OSError:
                file.truncate(before)
                raise
            if not complete:
                file.truncate(before)
                raise OSError(f"{self.path} cannot be written")

    def replace(self) -> None:
        """Write all rows; without a row there is no file."""
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        if not self.rows:
            return self.path.unlink(missing_ok=True)
        header = {name: name for name in self.columns}
        content = text(self.columns, [header, *self.rows])
        with files.replacing(self.path, sync=False) as temporary:
            temporary.write_text(content, encoding="utf-8", errors="backslashreplace")

    def close(self) -> None:
        """Keep the file: a run that stopped can resume."""


def text(columns: list[str], rows: list[dict[str, Any]]) -> str:
    """Return the lines of rows; missing values are empty."""
    lines = io.StringIO()
    csv.DictWriter(lines, columns, lineterminator="\n").writerows(rows)
    return lines.getvalue()
