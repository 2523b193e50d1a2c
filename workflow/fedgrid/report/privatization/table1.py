"""The benchmarks: clients, classes, samples of a client, and test samples (table 1).

Beside our numbers are those that the paper prints. The partitions are those of the first seed.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis import figures, tables
from fedgrid.report._texts import write_numbers
from fedgrid.runtime.code import source
from fedgrid.runtime.names import known
from fedgrid.study.records import Study

OPTIONS = {"printed": "published"}  # what they name (study/options.py)
NUMBERS = {  # by column, its heading
    "clients": "clients",
    "classes": "classes",
    "training": "training samples of a client",
    "test": "test samples of a client",
    "global_test": "global test samples",
}


def draw(sizes: pd.DataFrame, study: Study, scale: str, printed: str) -> pd.DataFrame:
    """Return a row per data set and partition; `printed` names the entry of `published`.

    A data set that is printed and has no partition has a row with the printed numbers alone.
    """
    first = sizes[sizes["seed"] == sizes["seed"].min()]
    groups = first.groupby(["dataset", "partition"], sort=False)
    table = pd.DataFrame([
        {"dataset": name, "partition": partition} | count_samples(part, name)
        for (name, partition), part in groups
    ])  # fmt: skip
    entries = study["published"]
    theirs = entries[known("entry of `published`", printed, entries)]
    values = pd.DataFrame.from_dict(theirs["values"], "index", columns=theirs["columns"])
    values = values.add_prefix("printed_").rename_axis("dataset").reset_index()
    table = table.merge(values, how="outer", on="dataset", sort=False)
    figures.add_labels(table, study, ["dataset"])
    return table.assign(seed=first["seed"].iloc[0], scale=scale).round(2)


def count_samples(clients: pd.DataFrame, dataset: str) -> dict:
    """Count clients, classes and samples of one partition.

    If the data set states the size of its test set, that is the number of global test samples.
    """
    in_file = source.literal(f"datasets.{dataset}", "TEST")
    return {
        "clients": len(clients),
        "classes": source.literal(f"datasets.{dataset}", "CLASSES"),
        "training": clients["training"].mean(),
        "test": clients["test"].mean(),
        "global_test": in_file or clients["test"].sum(),
    }


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per data set: ours and, behind it in brackets, the printed number."""
    named = table.assign(partition=table["partition"].astype(object).fillna(""))
    shown = tables.name_rows(named, False, ("dataset", "partition"))
    for name, head in NUMBERS.items():
        printed = table.get(f"printed_{name}", pd.Series(np.nan, table.index))
        ours, theirs = write_numbers(table[name], "{:,.10g}"), write_numbers(printed, "({:,.10g})")
        shown[head] = (ours + " " + theirs).str.strip()
    return shown.set_index(["dataset", "partition"])


def caption(table: pd.DataFrame) -> str:
    return (
        "The benchmarks; samples of a client are means over clients. In brackets is what the paper "
        f"prints. Partitions of seed {tables.join_values(table, 'seed')} (1 seed), "
        f"{tables.join_values(table, 'scale')} scale."
    )
