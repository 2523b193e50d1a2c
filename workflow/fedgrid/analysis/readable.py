"""Prepare tables for readers: replace names by labels, and find the best numbers of a column."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from fedgrid.analysis.figures import label
from fedgrid.study.records import Study

NAMES = ("method", "method_", "dataset", "protocol", "placebo")  # levels with names of files
SETTINGS = ("dataset", "partition", "setting", "seed")  # levels whose names make numbers unlike
NUMBER = r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
VALUE = re.compile(r"([A-Za-z_]+?)([-+]?[\d.]+(?:e[-+]?\d+)?|true|false)(?:-|$)")
Ranked = Callable[[tuple, tuple], bool]  # row, column -> whether the cell is compared with others


def write_name(study: Study, name: str, axis: str = "") -> str:
    """Return the label of a name; for `fedprox-mu0.1` this is `FedProx (mu=0.1)`."""
    if (written := label(study, name, axis)) != name:
        return written
    bases = [at for at, letter in enumerate(name) if letter == "-"]
    for at in reversed(bases):
        if (written := label(study, name[:at], axis)) != name[:at]:
            values = VALUE.findall(name[at + 1 :])
            if values:
                return f"{written} ({', '.join(f'{key}={value}' for key, value in values)})"
    return name


def write_steps(write: Callable[[str], str], text: str) -> str:
    """Write a name, or both names of a growth along an axis, such as `dir0.5 to dir0.1`."""
    return " to ".join(write(name) for name in text.split(" to ")) if text else ""


def list_levels(index: pd.Index) -> list[pd.Index]:
    return [index.get_level_values(level) for level in range(index.nlevels)]


def label_index(index: pd.Index, study: Study, write: Callable[[str], str]) -> pd.Index:
    """Replace the names in an index by their labels, written by `write`, as are its levels."""
    levels = [
        [
            write(write_name(study, str(value), str(name)) if name in NAMES else str(value))
            for value in level
        ]
        for name, level in zip(index.names, list_levels(index), strict=True)
    ]
    heads = [write(str(name or "").removesuffix("_")) for name in index.names]
    if index.nlevels == 1:
        return pd.Index(levels[0], name=heads[0] or None)
    return pd.MultiIndex.from_arrays(levels, names=heads)


def write_cells(wide: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of a table as texts; a missing value is empty."""
    return wide.astype(object).where(wide.notna(), "").map(str)


def find_best(
    cells: pd.DataFrame, ranked: Ranked, lowest: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mark the best and the second best number of each column, in two tables of booleans.

    The number at the beginning of a cell counts. If the rows' names have a dataset, partition or
    seed, only rows with the same are compared. If all numbers are equal, none is marked.
    """
    values = cells.apply(lambda column: column.map(read_number)).astype(float)
    for at, column in enumerate(cells.columns):
        compared = [ranked(as_levels(row), as_levels(column)) for row in cells.index]
        values.isetitem(at, values.iloc[:, at].where(compared))
    levels = zip(cells.index.names, list_levels(cells.index), strict=True)
    settings = [level.astype(str) for name, level in levels if name in SETTINGS]
    one = [pd.Index(np.zeros(len(cells)))]
    groups = pd.factorize(pd.MultiIndex.from_arrays(settings or one))[0]
    positions = values.reset_index(drop=True)
    places = positions.groupby(groups).rank(method="dense", ascending=lowest)
    several = places.groupby(groups).transform("max") > 1
    best, second = ((places.eq(place) & several).set_axis(cells.index) for place in (1, 2))
    return best, second


def as_levels(name) -> tuple:
    """Return the name of a row or column as a tuple with one entry per level."""
    return name if isinstance(name, tuple) else (name,)


def read_number(text: str) -> float:
    """Return the number that a cell begins with; NaN for a text, such as that of a lost run."""
    match = re.match(rf"{NUMBER}(?= ±| [(\[]|$)", text)
    return float(match[0]) if match else np.nan
