"""Finished runs that are kept with a study as small tables, in workflow/studies/reference/.

The folder <study>/<scale>/ has `index.csv`, with a row per kept item: a run, or a file that runs
share, such as a partition. Beside it there is a table for each kind of collected table. Its column
`id` names the item that a row belongs to; the other columns are those of the item's own table. An
empty cell means that the item's table has no such column, and `nan` is a missing number. The
Snakefile imports this: no pandas.

An item stands for a run of today only if both have the same content: the settings that the stage
depends on. The index has a hash of the content, and a hash of the item's rows of each kind.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from fedgrid.runtime.hashes import hash_facts
from fedgrid.runtime.names import UsageError, list_some, shown
from fedgrid.runtime.places import HOME
from fedgrid.runtime.resolved import Run
from fedgrid.store.identity import hash_content, list_changed_code
from fedgrid.study.paths import COLLECTED, collected_path
from fedgrid.study.reading import study_files

INDEX = "index.csv"
MAKERS = ("fedgrid", "code", "device", "threads", "torch")  # versions, code and machine of a run
COLUMNS = ("id", "path", "content", "kinds", *MAKERS, "seconds", "rounds", "diverged")
FILES = "method_files"  # the fingerprints of a method's files; runs kept earlier have none
DATA = "data"  # the hash of data of one's own (`source.data_of`); empty for others
OPTIONAL = (FILES, DATA)  # columns of an index that has something in them
SHOWN = 3  # runs that a sentence names
CHANGED = "code_changed"  # the column with what has changed in the code since a kept run was made
MEND = "restore the folder from the repository, or delete it and keep the runs again"

FORMS = {  # of values that are read as more than text
    "id": re.compile("[0-9]+"),
    "kinds": re.compile("([a-z]+=[0-9a-f]+( [a-z]+=[0-9a-f]+)*)?"),
    "seconds": re.compile(r"([0-9.]+(e[+-]?[0-9]+)?)?"),
    FILES: re.compile(r"(\w+=[0-9a-f]+( \w+=[0-9a-f]+)*)?"),
    DATA: re.compile("([0-9a-f]+)?"),
}

Entry = dict[str, str]  # a row of the index
Rows = list[dict[str, str]]  # the rows of an item in the table of a kind


def store_folder(study: str, scale: str, studies: Path | None = None) -> Path:
    """Return the folder of the kept runs of a study; it is beside the study's file."""
    places = {file.stem: file.parent for file in study_files()} if studies is None else {}
    return (studies or places.get(study, HOME / "studies")) / "reference" / study / scale


def item_path(kind: str, run: Run) -> str:
    """Return the path of the item of a resolved run, relative to results/: a run's is a folder."""
    protocol = {**run["protocol"], "cells": run["cells"]}
    return folder_of_run(collected_path(kind, run["name"], protocol))


def folder_of_run(path: str) -> str:
    """Return the folder of a run's file; any other path is returned as it is."""
    return path.rpartition("/")[0] if path.startswith("runs/") else path


# -- the index ------------------------------------------------------------------------------------


def read_index(folder: Path) -> dict[str, Entry]:
    """Return the entries of a folder's index by path; none if there is no such folder.

    UsageError if the index is missing or damaged.
    """
    path = folder / INDEX
    if not folder.exists():
        return {}
    rows = [dict.fromkeys(OPTIONAL, "") | row for row in read_rows(path, COLUMNS)]
    for column in ("id", "path"):
        counted = Counter(row[column] for row in rows)
        if twice := {value for value, times in counted.items() if times > 1}:
            raise UsageError(f"{path} has the {column} {shown(min(twice))} twice: {MEND}")
    for column, form in FORMS.items():
        if wrong := [row[column] for row in rows if not form.fullmatch(row[column])]:
            raise UsageError(f"{path}: the {column} `{shown(wrong[0])}` is damaged: {MEND}")
    return {row["path"]: row for row in rows}


def read_rows(path: Path, columns: Iterable[str]) -> Rows:
    """Return the rows of a table; UsageError if it cannot be read or lacks one of the columns."""
    try:
        table = csv.DictReader(StringIO(path.read_text("utf-8"), newline=""), strict=True)
        rows = [*table]
    except (OSError, ValueError, csv.Error) as problem:
        raise UsageError(f"{path} cannot be read ({problem}): {MEND}") from None
    if lacking := [name for name in columns if name not in (table.fieldnames or ())]:
        raise UsageError(f"{path} has no column `{lacking[0]}`: {MEND}")
    if any(None in row or None in row.values() for row in rows):
        raise UsageError(f"{path} has a row with too few or too many values: {MEND}")
    return rows


def read_hashes(entry: Entry) -> dict[str, str]:
    return read_pairs(entry["kinds"])


def read_pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


def write_pairs(hashes: dict[str, str]) -> str:
    return " ".join(f"{name}={digest}" for name, digest in hashes.items())


def find_kept(index: dict[str, Entry], kind: str, run: Run) -> Entry | None:
    """Return the entry that stands for what a resolved run leaves of a kind, or None."""
    entry = index.get(item_path(kind, run)) if index else None
    if entry and kind in read_hashes(entry) and entry["content"] == hash_content(kind, run):
        return entry
    return None


def find_other(index: dict[str, Entry], kind: str, run: Run) -> str:
    """Return what the entry of a run's path was made with instead: other data, other settings.

    It is empty if there is no such entry, or if it stands for the run.
    """
    entry = index.get(item_path(kind, run)) if index else None
    if not entry or kind not in read_hashes(entry) or find_kept(index, kind, run):
        return ""
    then: Any = {**run, DATA: entry[DATA]}
    if entry[DATA] and hash_content(kind, then) == entry["content"]:
        return f"trained on other data than {run['dataset']} has now"
    return "made with other settings"


def describe_others(study: str, scale: str, others: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason why kept runs are not used; `others` has it by run."""
    return [
        f"kept runs of {study} at the {scale} scale that were {reason} are not used: "
        f"{list_some(sorted(name for name, one in others.items() if one == reason), SHOWN)}"
        for reason in sorted({*others.values()})
    ]


def find_changed_code(entry: Entry, run: Run) -> str:
    """Return what has changed in the code since a kept run was made (`list_changed_code`).

    Of files that runs share no code is kept, and nothing is said.
    """
    if not entry["code"]:
        return ""
    return list_changed_code(entry["code"], read_pairs(entry[FILES]), run)


def list_facts(entry: Entry, kind: str) -> list[str]:
    """Return what a table of a kind depends on, of a kept item: its rows, and what made them."""
    return [entry["content"], read_hashes(entry)[kind], *(entry[name] for name in MAKERS)]


# -- the tables of kinds --------------------------------------------------------------------------


def read_items(folder: Path, kind: str, index: dict[str, Entry]) -> dict[str, Rows]:
    """Return the rows of each item of a kind by the item's id.

    UsageError if the kind's file is missing or damaged, or does not fit the index.
    """
    path = folder / f"{kind}.csv"
    found: dict[str, Rows] = {}
    for row in read_rows(path, ["id"]):
        found.setdefault(row.pop("id"), []).append(row)
    wanted = {e["id"]: read_hashes(e)[kind] for e in index.values() if kind in read_hashes(e)}
    if unknown := sorted(found.keys() - wanted.keys()):
        raise UsageError(f"{path} has the id {shown(unknown[0])}, which {INDEX} does not: {MEND}")
    for of, expected in wanted.items():
        if of not in found:
            raise UsageError(f"{path} has no rows of the id {of}, which {INDEX} has: {MEND}")
        found[of] = select_own_columns(found[of])
        if hash_rows(found[of]) != expected:
            raise UsageError(f"{path}: the rows of the id {of} are not those kept: {MEND}")
    return found


def select_own_columns(rows: Rows) -> Rows:
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    return [{name: row[name] for name in columns} for row in rows]


def hash_rows(rows: Rows) -> str:
    """Return a hash of an item's rows, whatever the order of their columns."""
    return hash_facts(select_own_columns(rows))


def file_of_item(kind: str, item: str) -> str:
    """Return the path of an item's file of a kind, relative to results/."""
    return f"{item}/{Path(COLLECTED[kind]).name}" if item.startswith("runs/") else item
