"""What FedSLS gains over FedAvg and FedAU, by partition; error bars over seeds; published bars.

The gain is the difference of the accuracies (percent) that runs of the same seed count with. The
published bars are differences of the means in FedSLS's table 1, and so have no error bars.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid import figures, tables

KEYS = ["dataset", "partition", "over"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per dataset, partition and method compared with: gains in points of percent."""
    shown = study["published"]["figure1"]
    pairs = tables.paired(tables.scores(runs), shown["method"], shown["over"])
    ours = tables.over_seeds(pairs, ["protocol", *KEYS])
    table = ours.merge(published(study, shown), how="outer", on=KEYS, sort=False)
    table = tables.with_alpha(table.assign(scale=scale)).round(4)
    order = [*dict.fromkeys([*ours["dataset"], *table["dataset"]]), *shown["over"]].index
    by = {"dataset": order, "alpha": lambda alpha: -alpha, "over": order}
    return table.sort_values(
        list(by), key=lambda column: column.map(by[column.name]), kind="stable"
    )


def published(study: dict, shown: dict) -> pd.DataFrame:
    """The gains in the printed table."""
    cells = tables.published_cells(study)
    cells = cells[cells["dataset"].isin(shown["dataset"])]
    ours = cells[cells["method"] == shown["method"]]
    theirs = cells[cells["method"].isin(shown["over"])].rename(columns={"method": "over"})
    both = theirs.merge(ours, on=["dataset", "partition"])
    return both.assign(published=both["published_y"] - both["published_x"])[[*KEYS, "published"]]


def plot(table: pd.DataFrame, study: dict) -> Figure:
    """A panel per dataset; groups of bars by partition, a colour per method compared with."""
    datasets, look = table["dataset"].unique(), figures.colours(table["over"])
    figure, (row,) = figures.panels(1, len(datasets), sharey=True)
    for axes, dataset in zip(row, datasets, strict=True):
        bars(axes, table[table["dataset"] == dataset], look, study)
        axes.set(title=figures.label(study, dataset))
        axes.axhline(0, color="black", linewidth=0.6)
    row[0].set_ylabel("gain of FedSLS in accuracy\n(points of percent)")
    figures.legend(figure, row, columns=4)
    return figure


def bars(axes: Axes, table: pd.DataFrame, look: dict[str, str], study: dict) -> None:
    """Ours filled, with the deviation over seeds; the published ones beside, hatched."""
    partitions = table["partition"].unique()
    width = 0.8 / (2 * len(look))
    for i, (over, colour) in enumerate(look.items()):
        of = table[table["over"] == over].groupby("partition").first().reindex(partitions)
        at, name = np.arange(len(partitions)) + 2 * i * width - 0.4, figures.label(study, over)
        if of["mean"].notna().any():
            ours = dict(color=colour, yerr=of["std"].fillna(0), error_kw={"lw": 0.8, "capsize": 2})
            axes.bar(at + width / 2, of["mean"], width, label=f"over {name}", **ours)
        lost = of["diverged"].fillna(0).to_numpy() > 0
        axes.plot(at[lost] + width / 2, 0 * at[lost], "x", color=colour)  # no mean: a run diverged
        if of["published"].notna().any():
            theirs = dict(facecolor="white", edgecolor=colour, hatch="////")
            axes.bar(
                at + 1.5 * width, of["published"], width, label=f"over {name}, published", **theirs
            )
    axes.set_xticks(range(len(partitions)), map(tables.written, partitions))


def caption(table: pd.DataFrame) -> str:
    """What the bars are."""
    return (
        "Accuracy of FedSLS minus that of the same seed's other run, mean and standard deviation: "
        f"{tables.scope(table)}. Hatched: differences of the published means (paper scale). A "
        "cross: a run diverged."
    )
