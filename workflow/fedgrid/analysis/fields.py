"""Values of the fields of runs: of their protocols, and of the hyper-parameters of their methods.

A field is named as in its protocol or method file: `lr`, `mu`. If a protocol and a method have
fields of the same name, its file is written before it: `fedprox.mu`, `protocol.momentum`. Methods
of one family are combined from the same files, and differ in hyper-parameters only.
"""

import json
from typing import Any

import pandas as pd

from fedgrid.analysis.scores import RUN
from fedgrid.partitions import label_names
from fedgrid.runtime.names import UsageError, known, name_family

ABSENT = "-"  # in tables, the value of a run that does not have the field


def read_fields(settings: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row per run and a column `file.field` per field, with texts."""
    named = settings[settings["field"].fillna("") != ""]
    of = named["of"].astype(object).fillna("").replace("", "protocol")
    # Values are JSON texts, of which pandas has read `null` as a missing number.
    parsed = [None if pd.isna(text) else json.loads(str(text)) for text in named["value"]]
    named = named.assign(whole=of + "." + named["field"], value=[*map(write_value, parsed)])
    return named.pivot(index=RUN, columns="whole", values="value")


def write_value(value: Any) -> str:
    """Return a value as a text; equal numbers have the same text."""
    if value is None:
        return "none"  # pandas reads `null` and `None` as a missing text
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value)
    return f"{value:.12g}"


def shorten_name(fields: pd.DataFrame, whole: str) -> str:
    """Return the name of a field without its file, if no other field has this name.

    A partition's number counts as a field: `feddyn.alpha` is not the alpha of a partition.
    """
    name = whole.partition(".")[2]
    is_taken = len(find_columns(fields, name)) > 1 or name in label_names()
    return whole if is_taken else name


def find_columns(fields: pd.DataFrame, name: str) -> list[str]:
    """Return the columns of a field by its name, with or without its file."""
    return [whole for whole in fields if name in (whole, whole.partition(".")[2])]


def select_field(fields: pd.DataFrame, name: str) -> pd.Series:
    """Return the values of a field by run; a run without the field has a missing value."""
    short = {whole.partition(".")[2] for whole in fields}
    known("field of these runs", name, short if "." not in name else {*fields})
    columns = find_columns(fields, name)
    if (fields[columns].notna().sum(axis=1) > 1).any():
        raise UsageError(f"a run has several fields called `{name}`: write {' or '.join(columns)}")
    return fields[columns].bfill(axis=1).iloc[:, 0].astype(object)


def order_values(values: pd.Series) -> list[str]:
    """Order the different values of a field: numbers ascending, texts as they occur."""
    unique = [*dict.fromkeys(values)]
    present = [text for text in unique if text != ABSENT]
    numbers = pd.to_numeric(pd.Series(present, dtype=object), errors="coerce")
    if numbers.notna().all():
        present = [present[i] for i in numbers.argsort(kind="stable")]
    return [ABSENT] * (ABSENT in unique) + present


def find_differing(fields: pd.DataFrame) -> list[str]:
    return [name for name in fields if fields[name].nunique(dropna=False) > 1]


def write_fields(fields: pd.DataFrame, names: list[str]) -> pd.Series:
    """Return the values of some fields of every run as one text: `mu=0.1, lr=0.3`."""
    present = fields.dropna(axis="columns", how="all")
    short = {name: shorten_name(present, name) for name in names}
    texts = [
        ", ".join(f"{short[name]}={row[name]}" for name in names if pd.notna(row[name]))
        for row in fields.to_dict("records")
    ]
    return pd.Series(texts, fields.index, dtype=object)


def select_runs(fields: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the fields of runs, a row per row of `runs`; UsageError if a run has no settings."""
    names = pd.MultiIndex.from_frame(runs[RUN])
    if len(without := names.difference(fields.index, sort=False)):
        run = " ".join(map(str, without[0]))
        raise UsageError(f"`settings` lacks the run {run}: name the same grid for both sources")
    return fields.loc[names]


def find_families(settings: pd.DataFrame) -> dict[str, str]:
    """Return the family of every method, by the names of its files (`study/resolving.py`)."""
    of_method = settings[settings["of"].astype(object).fillna("") != ""]
    files = of_method.groupby("method", sort=False)["of"].agg(name_family)
    return {method: files.get(method, method) for method in settings["method"].unique()}


def name_groups(families: dict[str, str]) -> dict[str, str]:
    """Return the family of every method, and the method's own name if it is alone in its family."""
    members = pd.Series(families).value_counts()
    return {m: m if members[family] == 1 else family for m, family in families.items()}
