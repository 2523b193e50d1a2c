"""Test accuracy, or another metric, over the rounds: mean over seeds, standard deviation as a band.

There is a panel per dataset and partition. A line ends before the round in which the first of its
runs diverged, because later means would lack that run.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import figures, looks, metrics, tables
from fedgrid.analysis.scores import CELL, add_metric_name, check_metric
from fedgrid.runtime.names import in_words
from fedgrid.study.paths import UNTESTED
from fedgrid.study.records import Study

OPTIONS = {"metric": "metric"}  # what they name (study/options.py)


def draw(runs: pd.DataFrame, study: Study, scale: str, metric: str = "accuracy") -> pd.DataFrame:
    """Return a row per method, setting and round that all seeds reached: means over seeds.

    Rounds without the metric are left out. Shares are in percent (`analysis/scores.py`).
    """
    check_metric(runs, metric)
    values = runs.assign(value=(100 if metrics.in_percent(metric) else 1) * runs[metric])
    values = values.sort_values("round", kind="stable")
    recorded = ~find_lost(values) & values["value"].notna()
    table = average_seeds(values[recorded], runs, [*CELL, "round"])
    ended = runs.groupby(CELL)["diverged"].any().rename("ended_early")
    table = table.merge(ended.reset_index(), on=CELL)
    table = runs[CELL].drop_duplicates().merge(table, on=CELL)  # in the order of the runs
    return add_metric_name(tables.add_alpha(table.assign(scale=scale)).round(4), metric)


def average_seeds(values: pd.DataFrame, runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Average `value` over seeds, in those groups that all seeds of the cell's runs have."""
    table = values.groupby(by, sort=False).agg(
        mean=("value", "mean"), std=("value", "std"), seeds=("seed", "nunique"),
        rounds=("rounds", "first"), **{n: (n, "first") for n in (UNTESTED,) if n in values},
    ).reset_index()  # fmt: skip
    all_seeds = runs.groupby(CELL)["seed"].nunique().rename("all_seeds")
    table = table.merge(all_seeds.reset_index(), on=CELL)
    return table[table["seeds"] == table.pop("all_seeds")]


def find_lost(runs: pd.DataFrame) -> pd.Series:
    """Mark the evaluations of a diverged model, whose weights are not finite."""
    last = runs.groupby([*CELL, "seed"])["round"].transform("max")
    return runs["diverged"] & (runs["round"] == last)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    names = [figures.label(study, name) for name in table["method"].unique()]
    figure, grid = figures.setting_panels(table, study, least=figures.find_room(names))
    look = looks.list_looks(table["method"], study)
    for row in filter(None, grid):
        for axes, here in row:
            plot_curves(axes, here, look, study)
        figures.name_rounds(axes for axes, _ in row)
        figures.label_rows([axes for axes, _ in row], tables.write_axis_label(table))
    figures.name_lines([axes for row in grid for axes, _ in row])
    return figure


def plot_curves(axes, table: pd.DataFrame, look: dict[str, dict], study: Study) -> None:
    """Draw a line for every method, and every protocol if there are several.

    A method of which one round alone is left has no line.
    """
    table = table[table.groupby(["method", "protocol"])["round"].transform("nunique") > 1]
    lines = len(table[["method", "protocol"]].drop_duplicates())
    for (method, protocol), line in table.groupby(["method", "protocol"], sort=False):
        name = figures.label(study, method)
        if table["protocol"].nunique() > 1:
            name += f" ({figures.label(study, protocol, 'protocol')})"
        band = figures.has_band(look[method], lines)
        figures.plot_band(axes, line, "round", look[method], band, label=name)


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "There is nothing to show: runs diverged before their first evaluation."
    words = metrics.describe_metric(metric := tables.find_metric(table))
    what = f"{words[0].upper()}{words[1:]}{tables.describe_untested(table, metric)}"
    what += tables.describe_spread(table)
    return f"{what}: {tables.describe_scope(table)}.{describe_lines(table)}"


def describe_bands(table: pd.DataFrame) -> str:
    lines = table.groupby(["dataset", "partition"])["method"].nunique().max()
    some = lines > figures.MANY and (table["seeds"] > 1).any()
    return f" In panels of more than {figures.MANY} lines only bold ones have a band." * bool(some)


def describe_lines(table: pd.DataFrame) -> str:
    """Say which lines have a band, and which end early."""
    lost = [*table.loc[table["ended_early"], "method"].drop_duplicates()]
    ends = f" A line ends early if a run diverged: {in_words(lost)}." if lost else ""
    return f"{describe_bands(table)}{ends}"
