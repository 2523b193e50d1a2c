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
from fedgrid.analysis.looks import BLACK, STYLES, find_colour
from fedgrid.analysis.scores import CELL
from fedgrid.report.convergence import average_seeds, find_lost
from fedgrid.report.privatization.ways import ACCURACIES
from fedgrid.runtime.names import NothingToDrawError
from fedgrid.study.records import Study

COEFFICIENT = re.compile(r"(alpha|beta)(_\d)+")
HEIGHT, LEAST = 1.6, 1.6  # inches of a panel


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
    table = average_seeds(long.dropna(subset="value"), runs, [*CELL, "curve", "round"])
    return table.assign(scale=scale).round(4)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    settings = [*table.groupby(["dataset", "partition", "protocol"], sort=False)]
    methods = table["method"].unique()
    size: dict[str, Any] = {"width": 2.5, "height": HEIGHT, "sharex": "col", "least": LEAST}
    figure, grid = figures.panels(2 * len(settings), len(methods), **size)
    coefficients = list_coefficient_looks(table)
    for at, ((dataset, partition, _), part) in enumerate(settings):
        for column, method in enumerate(methods):
            here = part[part["method"] == method]
            top, bottom = grid[2 * at][column], grid[2 * at + 1][column]
            accuracies = list_accuracy_looks(find_colour(method))
            plot_curves(top, here[here["curve"].isin(ACCURACIES)], accuracies)
            plot_curves(bottom, here[~here["curve"].isin(ACCURACIES)], coefficients)
            title = figures.write_setting(study, dataset, partition)
            top.set_title(f"{figures.label(study, method)}\n{title}")
        figures.label_rows(grid[2 * at], "accuracy (%)")
        figures.label_rows(grid[2 * at + 1], "coefficient")
    figures.name_rounds(grid[-1])
    for name, look in list_accuracy_looks(BLACK).items():
        grid[0][0].plot([], [], **look, label=name)
    figures.legend(figure, grid[0][:1])
    figures.name_lines([axes for row in grid[1::2] for axes in row])
    return figure


def list_accuracy_looks(colour: str) -> dict[str, dict]:
    styles = zip(ACCURACIES, STYLES, strict=False)
    return {name: {"color": colour, "linestyle": style} for name, style in styles}


def list_coefficient_looks(table: pd.DataFrame) -> dict[str, dict]:
    """Give each coefficient its look; its line style is of the part, which is its last index."""
    curves = [name for name in table["curve"].unique() if name not in ACCURACIES]
    colours = figures.colours(sorted({name.rpartition("_")[0] for name in curves}))
    looks = {}
    for name in curves:
        of, _, part = name.rpartition("_")
        looks[name] = {"color": colours[of], "linestyle": STYLES[int(part) % len(STYLES)]}
    return looks


def plot_curves(axes: Axes, table: pd.DataFrame, look: dict[str, dict]) -> None:
    for name, line in table.groupby("curve", sort=False):
        letter, *indices = name.split("_")
        shown = rf"$\{letter}_{{{','.join(indices)}}}$" if indices else None
        figures.plot_band(axes, line, "round", look[name], label=shown)


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "There is nothing to show: runs diverged before their first evaluation."
    return (
        "Upper panels: accuracy of the server's model (aggregation) and mean accuracy of clients' "
        "own models (personalisation, dashed). Lower panels: the server's coefficients before the "
        "softmax; the last index is 0 for the shared part (solid), 1 for the private one (dashed)"
        f"{tables.describe_spread(table)}: {tables.describe_scope(table)}."
    )
