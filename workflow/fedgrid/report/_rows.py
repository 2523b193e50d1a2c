"""The names of a table's rows as readers see them: labels, and partitions as in papers."""

import pandas as pd

from fedgrid.partitions import write_label

AXES = ("method", "dataset", "partition", "protocol")


def name_rows(table: pd.DataFrame, several: bool, axes: tuple[str, ...] = AXES) -> pd.DataFrame:
    """Return a column of names for each axis; the protocol's only if there are `several`."""
    labels = {axis: f"{axis}_label" for axis in axes if several or axis != "protocol"}
    named = table.assign(partition_label=table["partition"].map(write_label))
    return named[[*labels.values()]].set_axis([*labels], axis="columns")


def has_several(table: pd.DataFrame) -> bool:
    """Whether a table has several protocols."""
    return bool(table["protocol"].nunique() > 1)
