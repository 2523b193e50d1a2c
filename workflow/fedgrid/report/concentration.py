"""How the score depends on how equal the aggregation weights are: by effective number of clients.

`line` has methods whose weights differ in one number, such as the power of sample counts, each with
its number. They show how the score changes with more equal or less equal weights. `points` are
methods that choose weights by an idea of their own, and `placebos` lists the placebos of each,
which are drawn hollow. The idea helps only if a method lies above the line at its own effective
number of clients: otherwise equally equal weights do as well.

The effective number is 1 / sum_k a_k^2 of the weights a_k of a round, scaled to sum to 1
(`engine/state.py`). It says how equal weights are, and not how large: FedAU divides by the
population, so that its weights do not sum to 1. A run's number is the mean over its evaluations
after round 0, each of which has the mean over the rounds since the one before.

The distance of a point is its score minus that of the line at the same effective number; between
two methods of the line it is straight. It is taken seed by seed, and is the mean over the seeds
with its 95 % interval (Student's). A seed counts only if its point lies between the ends of its own
line: `distance_seeds` says how many do. The distance is missing if a run that it needs diverged.

In each setting only those seeds count that have runs of all methods of the line in this setting.
"""

from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, metrics, tables, verdicts
from fedgrid.analysis.looks import find_colour
from fedgrid.analysis.scores import CELL, RUN, SETTING, mean_over_seeds, score_runs, strict_mean
from fedgrid.partitions import write_label
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

# What they name (study/options.py).
OPTIONS = {"line": "method", "points": "method", "placebos": "method", "metric": "metric"}
LINE, POINT, PLACEBO = "line", "method", "placebo"
EFFECTIVE = "effective_clients"
DISTANCE = ["distance", "distance_low", "distance_high", "distance_seeds", "distance_by_seed"]
DIGITS = 9  # of effective numbers that are compared
OUTSIDE = "not between the ends of the line"
LABEL = "sample counts to the power shown"
SHADES = ("0.3", "0.55", "0.75")  # of the lines, one per protocol
MARKS = ("s", "^", "D", "v", "P")  # of the placebos of a method
HEIGHT, LEAST = 2.5, 2.2  # inches of a panel
# Of a number below its point of the line.
NUMBER: dict[str, Any] = {"xytext": (0, -9), "textcoords": "offset points", "ha": "center"}
NUMBER |= {"fontsize": 6}
ROOM = 0.12  # the part of a panel above and below its points
Names = str | list[str]


# -- numbers --------------------------------------------------------------------------------------


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    line: dict[str, float],
    points: Names | tuple[()] = (),
    placebos: dict[str, Names] | None = None,
    metric: str = "accuracy",
) -> pd.DataFrame:
    """Return a row per setting and method: effective number, score, distance to the line.

    `line` has a number per method. Shares are in percent, and distances of them in points.
    Without a seed that has a line the table is empty.
    """
    roles = list_roles(line, listed(points), placebos or {})
    trained = runs[runs["round"] > 0].groupby(RUN, sort=False)[EFFECTIVE].mean()
    runs = score_runs(runs, metric).merge(trained.reset_index(), how="left", on=RUN)
    settings = [select_whole_lines(part, [*line]) for _, part in runs.groupby(SETTING, sort=False)]
    if not any(map(len, settings)):
        return pd.DataFrame(columns=["role", *CELL, EFFECTIVE, "mean", "scale"])
    parts = [place_methods(part, roles, metric) for part in settings if len(part)]
    table = pd.concat(parts, ignore_index=True).assign(scale=scale)
    figures.add_labels(table, study, ("method", "protocol"))
    return tables.add_alpha(table).round(4)


def list_roles(
    line: dict[str, float], points: list[str], placebos: dict[str, Names]
) -> pd.DataFrame:
    """Return a row per name: its role, its number on the line, or the method of a placebo."""
    rows = [(LINE, name, "", line[name]) for name in sorted(line, key=line.__getitem__)]
    for method in points:
        rows.append((POINT, method, method, np.nan))
        rows += [(PLACEBO, name, method, np.nan) for name in listed(placebos.get(method, []))]
    return pd.DataFrame(rows, columns=["role", "method", "of_method", "number"])


def select_whole_lines(runs: pd.DataFrame, line: list[str]) -> pd.DataFrame:
    """Keep the seeds that have runs of every method of the line that occurs in a setting."""
    on_line = runs[runs["method"].isin(line)]
    counts = on_line.groupby("seed")["method"].nunique()
    return runs[runs["seed"].isin(counts[counts == on_line["method"].nunique()].index)]


def place_methods(runs: pd.DataFrame, roles: pd.DataFrame, metric: str) -> pd.DataFrame:
    effective = mean_over_seeds(runs, CELL, EFFECTIVE).rename(columns={"mean": EFFECTIVE})
    means = mean_over_seeds(runs, CELL, metric).merge(effective[[*CELL, EFFECTIVE]], on=CELL)
    table = roles.merge(means, on="method")
    line = runs[runs["method"].isin(roles.loc[roles["role"] == LINE, "method"])]
    facts = [
        {} if role == LINE else measure_distances(line, runs[runs["method"] == name], metric)
        for role, name in zip(table["role"], table["method"], strict=True)
    ]
    return table.join(pd.DataFrame(facts, index=table.index, columns=DISTANCE))


def measure_distances(line: pd.DataFrame, runs: pd.DataFrame, metric: str) -> dict:
    """Measure how far runs are from the lines of their seeds; skip runs beyond the ends.

    The result has the values of DISTANCE, or says that no seed has a distance.
    """
    rows = []
    for run in runs.to_dict("records"):
        level = read_line(line[line["seed"] == run["seed"]], run[EFFECTIVE], metric)
        if level is not None:
            rows.append((run["seed"], run[metric] - level))
    if not rows:
        return {"distance_seeds": 0}
    by_seed = pd.DataFrame(rows, columns=["seed", "distance"])
    sample = by_seed["distance"]
    numbers = strict_mean(sample), *verdicts.confidence_interval(sample.to_numpy()), len(sample)
    texts = tables.write_seed_differences(by_seed, "distance")
    return dict(zip(DISTANCE, (*numbers, texts), strict=True))


def read_line(line: pd.DataFrame, at: float, metric: str) -> float | None:
    """Read the score of a seed's line at an effective number; None beyond the ends of the line.

    It is missing beside a run that diverged. Runs of the same effective number count as one point.
    """
    levels = line.groupby(line[EFFECTIVE].round(DIGITS))[metric].agg(strict_mean)
    at = round(at, DIGITS)
    if levels.empty or not levels.index[0] <= at <= levels.index[-1]:
        return None
    return float(np.interp(at, levels.index, levels))


# -- the figure -----------------------------------------------------------------------------------


def plot(table: pd.DataFrame, study: Study, line_label: str = LABEL) -> Figure:
    if table.empty:
        return figures.make_blank()
    table = add_looks(table, line_label)
    figure, grid = figures.setting_panels(table, study, height=HEIGHT, least=LEAST)
    for row in filter(None, grid):
        for axes, here in row:
            for name, part in here[here["role"] == LINE].groupby("name", sort=False):
                plot_line(axes, part, name)
            for point in here[here["role"] != LINE].to_dict("records"):
                plot_point(axes, point)
            axes.set_xlabel("effective number\nof clients")
            axes.margins(y=ROOM)
        figures.label_rows([axes for axes, _ in row], tables.write_axis_label(table))
    figures.legend(figure, [axes for row in grid for axes, _ in row], columns=4)
    return figure


def add_looks(table: pd.DataFrame, line_label: str) -> pd.DataFrame:
    """Add the name of each row in the legend, its colour and its mark.

    The name has the protocol if a dataset has several. A placebo has the colour of its method.
    """
    names = table["method_label"].mask(table["role"] == LINE, line_label)
    if tables.is_in_heading(table, "protocol"):
        names = names + " (" + table["protocol_label"] + ")"
    key, on_line = table["of_method"].fillna("") + " " + table["protocol"], table["role"] == LINE
    looks = dict(zip(key[on_line].unique(), cycle(SHADES)))
    looks |= {name: find_colour(name.partition(" ")[0]) for name in key[~on_line]}
    marks: dict[str, str] = {}
    for _, part in table[table["role"] == PLACEBO].groupby("of_method", sort=False):
        marks |= dict(zip(part["method"].unique(), cycle(MARKS)))
    hollow = table["method"].map(marks).where(table["role"] == PLACEBO).fillna("o")
    return table.assign(name=names, colour=key.map(looks), mark=hollow)


def plot_line(axes: Axes, line: pd.DataFrame, name: str) -> None:
    look = {"color": line["colour"].iloc[0]}
    figures.plot_band(axes, line, EFFECTIVE, look, marker=".", label=name, zorder=1)
    for number, *place in line[["number", EFFECTIVE, "mean"]].dropna().itertuples(index=False):
        colour = figures.darken(look["color"])
        axes.annotate(f"{number:g}", place, **NUMBER, color=colour, zorder=5)
    gone = line.loc[line["diverged"] > 0, EFFECTIVE]
    figures.plot_crosses(axes, gone, look["color"], axes.get_xaxis_transform())


def plot_point(axes: Axes, point: dict) -> None:
    colour, place = point["colour"], point[EFFECTIVE]
    inside = "white" if point["role"] == PLACEBO else colour
    axes.errorbar(
        place, point["mean"], np.nan_to_num(point["std"]), fmt=point["mark"], color=colour,
        markersize=4.5, markerfacecolor=inside, linewidth=0.8, label=point["name"],
    )  # fmt: skip
    gone = pd.Series([place] if point["diverged"] else [], dtype=float)
    figures.plot_crosses(axes, gone, colour, axes.get_xaxis_transform())


def write_distances(table: pd.DataFrame) -> list[str]:
    """Write a text for every method: `FedSLS +1.20 [0.40, 2.00]`, or why it has no distance."""
    points = table[table["role"] == POINT]
    names = points["method_label"]
    if tables.is_in_heading(table, "protocol"):
        names = names + " (" + points["protocol_label"] + ")"
    digits = 2 if metrics.in_percent(tables.find_metric(points)) else 3
    texts = []
    for name, row in zip(names, points[DISTANCE[:4]].itertuples(index=False), strict=True):
        mean, low, high, seeds = row
        written = tables.write_interval(mean, low, high, "+", digits)
        texts.append(f"{name} {written or ('diverged' if seeds else OUTSIDE)}")
    return texts


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "There is nothing to show: no seed has runs of the methods of the line."
    on_line, hollow = table["role"] == LINE, bool((table["role"] == PLACEBO).any())
    placebos = " A hollow mark is a placebo, in the colour of its method." * hollow
    cross = " A cross marks a method with a run that diverged." * bool(table["diverged"].any())
    points = table[table["role"] == POINT]
    some = points[points["distance_seeds"].between(1, points["seeds"] - 1)]
    names = ", ".join(some["method_label"].unique())
    few = f" Not every seed lies between the ends of its line for {names}." * bool(names)
    several, distances = table["dataset"].nunique() > 1, []
    for (dataset, partition), part in table.groupby(["dataset", "partition"], sort=False):
        place = f"{dataset}, " * several + write_label(partition)
        distances.append(f"{place}: {', '.join(write_distances(part))}")
    return (
        f"The {tables.describe_score_and_unit(table)} by the effective number of clients of the "
        f"weights{tables.describe_spread(table)}: {tables.describe_scope(table)}. The "
        f"line is of {', '.join(table.loc[on_line, 'method_label'].unique())}. Distance of "
        "a method above the line at its own effective number, mean over seeds with its 95 % "
        f"interval: {'; '.join(distances)}.{placebos}{few}{cross}"
    )
