"""Laid-out tables for readers: the labels of names, and which numbers of a column are best."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from fedgrid.analysis.figures import label

NAMES = ("method", "method_", "dataset", "protocol", "placebo")  # levels with names of files
VALUE = re.compile(r"([A-Za-z_]+?)([-+]?[\d.]+(?:e[-+]?\d+)?|true|false)(?:-|$)")
Ranked = Callable[[tuple, tuple], bool]  # row, column -> whether the cell is compared with others


def written_name(study: dict, name: str, axis: str = "") -> str:
    """Return the label of a name; `fedprox-mu0.1` is that of fedprox, and its values after it."""
    if (found := label(study, name, axis)) != name:
        return found
    bases = [at for at, letter in enumerate(name) if letter == "-"]
    for at in reversed(bases):
        if (found := label(study, name[:at], axis)) != name[:at]:
            values = VALUE.findall(name[at + 1 :])
            if values:
                return f"{found} ({', '.join(f'{key}={value}' for key, value in values)})"
    return name


def levels_of(index: pd.Index) -> list[pd.Index]:
    """Return the levels of an index, one after the other."""
    return [index.get_level_values(level) for level in range(index.nlevels)]


def rank(cells: pd.DataFrame, ranked: Ranked, lowest: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return where the best and the second best numbers of each column are.

    A number is what a cell begins with. A column without two different numbers has no best.
    """
    values = cells.apply(lambda column: column.map(number)).astype(float)
    for at, column in enumerate(cells.columns):
        compared = [ranked(parts(row), parts(column)) for row in cells.index]
        values.isetitem(at, values.iloc[:, at].where(compared))
    places = values.rank(method="dense", ascending=lowest)
    several = places.max() > 1
    return places.eq(1) & several, places.eq(2) & several


def parts(name) -> tuple:
    """Return the names of a row or column, one for each level."""
    return name if isinstance(name, tuple) else (name,)


def number(text: str) -> float:
    """Return the number that a cell begins with; NaN for a text, such as that of a lost run."""
    found = re.match(r"[+-]?\d+(\.\d+)?(?= ±| \(|$)", text)
    return float(found[0]) if found else np.nan
