"""Figures with a row of panels per value of some columns, and a column per value of others."""

from itertools import chain, product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures


def draw_panels(
    table: pd.DataFrame, down: list[str], across: list[str], **size: Any
) -> tuple[Figure, list[list[Axes]], list[tuple[Axes, tuple, pd.DataFrame]]]:
    """Return a figure, its grid, and all panels: axes, values of `down` and `across`, their rows.

    Values are in the order of the table. A panel may have no rows; an empty table has no panels.
    """
    below, beside = (
        [*dict.fromkeys(table[names].itertuples(index=False, name=None))] or [()]
        for names in (down, across)
    )
    figure, grid = figures.panels(len(below), len(beside), **size)
    panels = []
    for (first, second), axes in zip(product(below, beside), chain(*grid), strict=True):
        if len(table):
            here = table[[*down, *across]] == [*first, *second]
            panels.append((axes, first + second, table[here.all(axis="columns")]))
    return figure, grid, panels
