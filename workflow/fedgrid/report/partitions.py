"""The number of samples by client and class, as the area of a dot.

The partitions are those of the first seed.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.report._panels import draw_panels
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
    most = table.groupby("dataset", sort=False)["samples"].max()
    size = {"sharex": "row", "sharey": "row"}
    figure, grid, panels = draw_panels(table, ["dataset"], ["partition"], **size)
    colour = figures.colours(["dot"])["dot"]
    for axes, (dataset, partition), here in panels:
        axes.scatter(
            here["client"], here["class"], s=LARGEST * here["samples"] / most[dataset], alpha=0.7,
            linewidths=0, color=colour, rasterized=len(table) > MANY,
        )  # fmt: skip
        axes.set_title(figures.write_setting(study, dataset, partition))
    for row, samples in zip(grid, most, strict=True):
        row[0].set_ylabel("class")
        figures.use_whole_numbers(row[0].yaxis)
        places = [(axes, axes.get_subplotspec()) for axes in row]
        right = [axes for axes, place in places if place and place.is_last_col()]
        add_size_legend([*row, *right][-1], samples)
    for axes in grid[-1]:
        axes.set_xlabel("client")
        figures.use_whole_numbers(axes.xaxis)
    return figure


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
