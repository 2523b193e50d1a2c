"""Test accuracy over the rounds: the mean over seeds and its standard deviation as a band.

A panel per dataset and partition. A run that diverged ends where its loss was no longer finite.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid import figures, tables


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per method, setting and evaluated round: accuracy in percent, over seeds."""
    percent = runs.assign(accuracy=100 * runs["accuracy"]).sort_values("round", kind="stable")
    table = percent.groupby([*tables.CELL, "round"], sort=False).agg(
        mean=("accuracy", "mean"), std=("accuracy", "std"), seeds=("seed", "nunique"),
        rounds=("rounds", "first"),
    ).reset_index()  # fmt: skip
    table = table.iloc[table.groupby(tables.CELL, sort=False).ngroup().argsort(kind="stable")]
    return tables.with_alpha(table.assign(scale=scale)).round(4)


def plot(table: pd.DataFrame, study: dict) -> Figure:
    """Small panels that share axes: datasets below one another, partitions beside each other."""
    datasets, partitions = table["dataset"].unique(), table["partition"].unique()
    figure, grid = figures.panels(len(datasets), len(partitions), sharex="row", sharey="row")
    look = figures.lines(table["method"])
    for dataset, row in zip(datasets, grid, strict=True):
        for partition, axes in zip(partitions, row, strict=True):
            here = table[(table["dataset"] == dataset) & (table["partition"] == partition)]
            curves(axes, here, look, study)
            axes.set_title(figures.setting(study, dataset, partition))
        row[0].set_ylabel("test accuracy (%)")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    figures.legend(figure, grid[0])
    return figure


def curves(axes, table: pd.DataFrame, look: dict[str, dict], study: dict) -> None:
    """A line and its band for every method, and protocol if there are several."""
    for (method, protocol), of in table.groupby(["method", "protocol"], sort=False):
        name = figures.label(study, method)
        name += f" ({protocol})" if table["protocol"].nunique() > 1 else ""
        axes.plot(of["round"], of["mean"], label=name, **look[method])
        low, high = of["mean"] - of["std"], of["mean"] + of["std"]
        axes.fill_between(of["round"], low, high, color=look[method]["color"], alpha=0.12, lw=0)


def caption(table: pd.DataFrame) -> str:
    """What the lines are."""
    return f"Test accuracy, mean and standard deviation over seeds: {tables.scope(table)}."
