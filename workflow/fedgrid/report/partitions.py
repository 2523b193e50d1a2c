"""The number of samples by client and class, as the area of a dot.

The partitions are those of the first seed.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.study.records import Study

LARGEST = 60  # points squared: the area of the largest dot in a row of panels
MANY = 1000  # dots of a figure; above, dots are drawn as pixels, to keep the file small


def draw(counts: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per client and class with samples, of the first seed."""
    first = counts[counts["seed"] == counts["seed"].min()]
    columns = ["dataset", "partition", "seed", "client", "class", "samples", "clients", "recipe"]
    return tables.add_alpha(first[columns].assign(scale=scale))


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw a row per dataset, a column per partition; areas are comparable within a dataset.

    Axes and texts are always vector graphics, dots only if there are few.
    """
    datasets, partitions = table["dataset"].unique(), table["partition"].unique()
    figure, grid = figures.panels(len(datasets), len(partitions), sharex="row", sharey="row")
    for dataset, row in zip(datasets, grid, strict=True):
        part = table[table["dataset"] == dataset]
        for partition, axes in zip(partitions, row, strict=True):
            here = part[part["partition"] == partition]
            plot_dots(axes, here, part["samples"].max(), pixels=len(table) > MANY)
            axes.set_title(figures.write_setting(study, dataset, partition))
        row[0].set_ylabel("class")
        figures.use_whole_numbers(row[0].yaxis)
        places = [(axes, axes.get_subplotspec()) for axes in row]
        right = [axes for axes, place in places if place and place.is_last_col()]
        add_size_legend([*row, *right][-1], part["samples"].max())
    for axes in grid[-1]:
        axes.set_xlabel("client")
        figures.use_whole_numbers(axes.xaxis)
    return figure


def plot_dots(axes: Axes, table: pd.DataFrame, most: int, pixels: bool) -> None:
    """Draw one partition."""
    look: dict[str, Any] = dict(alpha=0.7, linewidths=0, color=figures.colours(["dot"])["dot"])
    look |= {"s": LARGEST * table["samples"] / most, "rasterized": pixels}
    axes.scatter(table["client"], table["class"], **look)


def add_size_legend(axes: Axes, most: int) -> None:
    """Add a legend of areas: about the largest, a fifth and a twenty-fifth of it."""
    for part in (most, most / 5, most / 25):
        samples = float(f"{part:.0e}")  # one significant digit
        axes.scatter([], [], s=LARGEST * samples / most, color="0.4", label=f"{samples:g}")
    axes.legend(title="samples", loc="center left", bbox_to_anchor=(1, 0.5), labelspacing=1)


def caption(table: pd.DataFrame) -> str:
    clients, seed = tables.join_values(table, "clients"), tables.join_values(table, "seed")
    return (
        f"Training samples of each class on each of {clients} clients; the dot's area is their "
        f"number. Recipe {tables.join_values(table, 'recipe')}, seed {seed} (1 seed), "
        f"{tables.join_values(table, 'scale')} scale."
    )
