"""The automatic ways over the rounds: both accuracies, and the learned coefficients (figure 10).

Of each data set and method, the upper panel has the accuracies, the lower one the coefficients as
they are learned, before a softmax turns two of them into weights.
"""

import re
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.scores import CELL
from fedgrid.report.convergence import find_lost
from fedgrid.report.privatization.ways import ACCURACIES
from fedgrid.runtime.names import NothingToDrawError
from fedgrid.study.records import Study

COEFFICIENT = re.compile(r"(alpha|beta)(_\d)+")
HEIGHT = 1.6  # inches of a panel


def draw(runs: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per method, setting, round and curve, which is an accuracy or a coefficient."""
    coefficients = [name for name in runs if COEFFICIENT.fullmatch(name)]
    if not coefficients:
        raise NothingToDrawError(
            "no run of the grid has coefficients: name methods that learn them, such as autocs"
        )
    percent = {name: 100 * runs[column] for name, column in ACCURACIES.items()}
    recorded = runs.assign(**percent)[~find_lost(runs)]
    facts = [*CELL, "round", "rounds", "seed"]
    long = recorded.melt(facts, [*ACCURACIES, *coefficients], "curve", "value")
    table = long.dropna(subset="value").groupby([*CELL, "curve", "round"], sort=False).agg(
        mean=("value", "mean"), std=("value", "std"), seeds=("seed", "nunique"),
        rounds=("rounds", "first"),
    ).reset_index()  # fmt: skip
    seeds = runs.groupby(CELL)["seed"].nunique().rename("all_seeds")
    table = table.merge(seeds.reset_index(), on=CELL)
    table = table[table["seeds"] == table.pop("all_seeds")]
    return table.assign(scale=scale).round(4)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw two rows of panels per setting, a column per method."""
    settings = [*table.groupby(["dataset", "partition", "protocol"], sort=False)]
    methods = table["method"].unique()
    size: dict[str, Any] = {"width": 2.5, "height": HEIGHT, "sharex": "col"}
    figure, grid = figures.panels(2 * len(settings), len(methods), **size)
    look = figures.lines([*ACCURACIES, *sorted({*table["curve"]} - {*ACCURACIES})])
    for at, ((dataset, partition, _), part) in enumerate(settings):
        for column, method in enumerate(methods):
            here = part[part["method"] == method]
            top, bottom = grid[2 * at][column], grid[2 * at + 1][column]
            plot_curves(top, here[here["curve"].isin(ACCURACIES)], look)
            plot_curves(bottom, here[~here["curve"].isin(ACCURACIES)], look)
            title = figures.write_setting(study, dataset, partition)
            top.set_title(f"{figures.label(study, method)}\n{title}")
        figures.label_rows(grid[2 * at], "accuracy (%)")
        figures.label_rows(grid[2 * at + 1], "coefficient")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    figures.name_lines([axes for row in grid for axes in row])
    return figure


def plot_curves(axes: Axes, table: pd.DataFrame, look: dict[str, dict]) -> None:
    """Draw a line and its band for every curve."""
    for name, line in table.groupby("curve", sort=False):
        figures.plot_band(axes, line, "round", look[name], label=name)


def caption(table: pd.DataFrame) -> str:
    """Describe the lines."""
    if table.empty:
        return "There is nothing to show: runs diverged before their first evaluation."
    return (
        "Upper panels: accuracy of the server's model (aggregation) and mean accuracy of clients' "
        "own models (personalisation). Lower panels: the server's coefficients before the softmax; "
        "index 0 is of the shared part, 1 of the private one. Mean and standard deviation over "
        f"seeds: {tables.describe_scope(table)}."
    )
