"""Accuracy as a function of a number: a field of the protocol, or a method's hyper-parameter."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs

KEYS = [*CELL, "seed"]


def draw(study: dict, scale: str, fields: dict[str, str], **tables: pd.DataFrame) -> pd.DataFrame:
    """Return a row per field, series and value: percent over seeds.

    `fields` has a label for each field. A field `mu` has two tables: `mu`, the runs, and
    `mu_settings`, their settings.
    """
    along = [draw_field(field, tables[field], tables[f"{field}_settings"]) for field in fields]
    return pd.concat(along).assign(scale=scale)


def draw_field(field: str, runs: pd.DataFrame, settings: pd.DataFrame) -> pd.DataFrame:
    """Return a row per series and value of a field; participation becomes clients per round.

    A series is the runs of a method, or, for a hyper-parameter, of the method's file that has it.
    """
    rows = settings[settings["field"] == field]
    series = rows["of"].where(rows["of"].notna(), rows["method"])
    rows = rows.assign(at=rows["value"].astype(float), series=series)
    scores = score_runs(runs).merge(rows[[*KEYS, "at", "series"]], on=KEYS)
    by = ["series", "dataset", "partition", "at"]
    table = mean_over_seeds(scores, by).assign(field=field)
    table["final"] = mean_over_seeds(scores, by, "final")["mean"]
    table = table.sort_values("at", kind="stable").round(4)
    if field == "participation":
        table["at"] *= runs["clients"].iloc[0]
    return table


def plot(table: pd.DataFrame, study: dict, fields: dict[str, str], sharey: bool = False) -> Figure:
    """Draw a panel for every field, with its label below."""
    figure, (row,) = figures.panels(1, len(fields), width=2.6, sharey=sharey)
    look = figures.lines(table["series"])
    for axes, (field, label) in zip(row, fields.items(), strict=True):
        plot_series(axes, table[table["field"] == field], look, study)
        axes.set_xlabel(label)
    row[0].set_ylabel("test accuracy (%)")
    figures.legend(figure, row)
    return figure


def plot_series(axes: Axes, table: pd.DataFrame, look: dict[str, dict], study: dict) -> None:
    """Draw a line with marks for every series, and a cross at the bottom if a run diverged."""
    for series, of in table.groupby("series", sort=False):
        name = figures.label(study, series)
        axes.plot(of["at"], of["mean"], marker="o", markersize=3, label=name, **look[series])
        low, high = of["mean"] - of["std"], of["mean"] + of["std"]
        axes.fill_between(of["at"], low, high, color=look[series]["color"], alpha=0.12, lw=0)
        gone = of[of["diverged"] > 0]
        bottom = axes.get_xaxis_transform()
        axes.plot(gone["at"], 0 * gone["at"], "x", color=look[series]["color"], transform=bottom)


def caption(table: pd.DataFrame) -> str:
    """Describe the lines."""
    cross = " A cross marks a run that diverged." * bool(table["diverged"].any())
    return f"The {tables.counted(table)}, percent: {tables.scope(table)}.{cross}"
