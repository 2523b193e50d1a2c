"""Accuracy along one number: a field of the protocol, or a hyper-parameter of the method."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid import figures, tables

KEYS = [*tables.CELL, "seed"]


def draw(runs: pd.DataFrame, settings: pd.DataFrame, field: str) -> pd.DataFrame:
    """A row per value and series: percent over seeds.

    A series are the runs of a method, or, along a hyper-parameter, of the file that has it.
    """
    rows = settings[settings["field"] == field]
    series = rows["of"].where(rows["of"].notna(), rows["method"])
    rows = rows.assign(at=rows["value"].astype(float), series=series)
    scores = tables.scores(runs).merge(rows[[*KEYS, "at", "series"]], on=KEYS)
    by = ["series", "dataset", "partition", "at"]
    table = tables.over_seeds(scores, by).assign(field=field)
    table["final"] = tables.over_seeds(scores, by, "final")["mean"]
    return table.sort_values("at", kind="stable").round(4)


def panels(table: pd.DataFrame, study: dict, fields: dict[str, str], **shared) -> Figure:
    """A panel beside the other for every field, with its label below."""
    figure, (row,) = figures.panels(1, len(fields), width=2.6, **shared)
    look = figures.lines(table["series"])
    for axes, (field, label) in zip(row, fields.items(), strict=True):
        plot(axes, table[table["field"] == field], look, study)
        axes.set_xlabel(label)
    row[0].set_ylabel("test accuracy (%)")
    figures.legend(figure, row)
    return figure


def plot(axes: Axes, table: pd.DataFrame, look: dict[str, dict], study: dict) -> None:
    """A line with marks for every series; a cross at the bottom where a run diverged."""
    for series, of in table.groupby("series", sort=False):
        name = figures.label(study, series)
        axes.plot(of["at"], of["mean"], marker="o", markersize=3, label=name, **look[series])
        low, high = of["mean"] - of["std"], of["mean"] + of["std"]
        axes.fill_between(of["at"], low, high, color=look[series]["color"], alpha=0.12, lw=0)
        gone = of[of["diverged"] > 0]
        bottom = axes.get_xaxis_transform()
        axes.plot(gone["at"], 0 * gone["at"], "x", color=look[series]["color"], transform=bottom)


def caption(table: pd.DataFrame) -> str:
    """What the lines are."""
    cross = " A cross: a run diverged." * bool(table["diverged"].any())
    return f"The {tables.counted(table)}, percent: {tables.scope(table)}.{cross}"
