"""FedSLS's gain over FedAvg and FedAU, by partition; error bars over seeds; published bars.

The gain is the difference of scores (percent) between runs of the same seed. The published bars are
differences of the means in FedSLS's table 1, and so have no error bars.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.looks import find_colour
from fedgrid.analysis.published import list_published_cells
from fedgrid.analysis.scores import mean_over_seeds, pair_runs, score_runs
from fedgrid.partitions import write_label
from fedgrid.study.records import Study

KEYS = ["dataset", "partition", "over"]


def draw(runs: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per dataset, partition and other method: gains in percentage points."""
    shown = study["published"]["figure1"]
    pairs = pair_runs(score_runs(runs), shown["method"], shown["over"])
    ours = mean_over_seeds(pairs, ["protocol", *KEYS])
    table = ours.merge(compute_published_gains(study, shown), how="outer", on=KEYS, sort=False)
    table = tables.add_alpha(table.assign(scale=scale)).round(4)
    order = [*dict.fromkeys([*ours["dataset"], *table["dataset"]]), *shown["over"]].index
    by = {"dataset": order, "alpha": lambda alpha: -alpha, "over": order}
    return table.sort_values([*by], key=lambda values: values.map(by[values.name]), kind="stable")


def compute_published_gains(study: Study, shown: dict) -> pd.DataFrame:
    cells = list_published_cells(study)
    cells = cells[cells["dataset"].isin(shown["dataset"])]
    ours = cells[cells["method"] == shown["method"]]
    theirs = cells[cells["method"].isin(shown["over"])].rename(columns={"method": "over"})
    both = theirs.merge(ours, on=["dataset", "partition"])
    return both.assign(published=both["published_y"] - both["published_x"])[[*KEYS, "published"]]


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw a panel per dataset; groups of bars by partition, a colour per other method."""
    datasets = list_datasets(table)
    look = {name: find_colour(name) for name in table["over"].unique()}
    figure, (row,) = figures.panels(1, len(datasets), sharey=True)
    for axes, dataset in zip(row, datasets, strict=True):
        plot_bars(axes, table[table["dataset"] == dataset], look, study)
        axes.set(title=figures.label(study, dataset))
        axes.axhline(0, color="black", linewidth=0.6)
    figures.label_rows(row, "gain of FedSLS\n(points of percent)")
    figures.legend(figure, row, columns=2)
    return figure


def list_datasets(table: pd.DataFrame) -> list[str]:
    """List the datasets with our own gains, or all if none has."""
    ours = table[table["seeds"].notna()]
    return [*(table if ours.empty else ours)["dataset"].unique()]


def plot_bars(axes: Axes, table: pd.DataFrame, look: dict[str, str], study: Study) -> None:
    """Draw our bars filled, with the deviation over seeds; published bars beside, hatched."""
    partitions = table["partition"].unique()
    each = 1 + table["published"].notna().any()  # bars of another method
    width = 0.8 / (each * len(look))
    for i, (over, colour) in enumerate(look.items()):
        part = table[table["over"] == over].groupby("partition").first().reindex(partitions)
        at, name = np.arange(len(partitions)) + each * i * width - 0.4, figures.label(study, over)
        if part["mean"].notna().any():
            ours: dict[str, Any] = dict(yerr=part["std"], error_kw={"lw": 0.8, "capsize": 2})
            ours |= dict(color=colour, alpha=0.55)  # an error bar is seen on a black bar, too
            axes.bar(at + width / 2, part["mean"], width, label=f"over {name}", **ours)
        lost = part["diverged"].fillna(0).to_numpy() > 0
        axes.plot(at[lost] + width / 2, 0 * at[lost], "x", color=colour)  # no mean: a run diverged
        if part["published"].notna().any():
            theirs: dict[str, Any] = dict(facecolor="white", edgecolor=colour, hatch="////")
            theirs["label"] = f"over {name}, published"
            axes.bar(at + 1.5 * width, part["published"], width, **theirs)
    axes.set_xticks(range(len(partitions)), map(write_label, partitions))


def caption(table: pd.DataFrame) -> str:
    lost = " A cross marks a run that diverged." * bool((table["diverged"] > 0).any())
    shown = table[table["dataset"].isin(list_datasets(table))]["published"].notna().any()
    hatched = " Hatched: differences of the published means (paper scale)." * bool(shown)
    return (
        f"The {tables.describe_score(table)} of FedSLS minus that of the other run of the same seed"
        f"{tables.describe_spread(table)}: {tables.describe_scope(table)}.{hatched}{lost}"
    )
