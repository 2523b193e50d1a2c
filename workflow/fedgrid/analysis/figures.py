"""What all figures share: one style, colours, panels, captions, and reproducible files."""

import logging
import textwrap
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.partitions import write_label
from fedgrid.runtime.names import PACKAGE
from fedgrid.study.records import Study

WIDTH, HEIGHT = 2.3, 2.2  # inches of a panel: three panels fit the width of a page
RESOLUTION = 300  # pixels per inch of the rasterized parts of a figure
ROW = 4  # panels of different datasets in a row, at most
COLUMN = 3.4  # inches of the narrowest figure, the width of a text column
logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every glyph
UNDATED = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}  # for reproducible bytes


def use_style() -> AbstractContextManager:
    """Draw figures with the style of `report/paper.mplstyle`, in a `with` statement."""
    return matplotlib.style.context(PACKAGE / "report/paper.mplstyle")


def panels(
    rows: int, columns: int, width: float = WIDTH, height: float = HEIGHT, **shared
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of rows x columns panels, each `width` x `height` inches; at least one."""
    rows, columns = max(rows, 1), max(columns, 1)
    figure = Figure(figsize=(max(columns * width, COLUMN), rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def make_blank() -> Figure:
    """Return an empty figure, for a product that has a caption and nothing to draw."""
    figure, ((axes,),) = panels(1, 1)
    axes.set_axis_off()
    return figure


def lines(names: Iterable[str]) -> dict[str, dict]:
    """Give each name its own colour and line style, in the order of the names."""
    return dict(zip(dict.fromkeys(names), cycle(matplotlib.rcParams["axes.prop_cycle"])))


def colours(names: Iterable[str]) -> dict[str, str]:
    """Give each name its own colour, in the order of the names."""
    return {name: look["color"] for name, look in lines(names).items()}


def label(study: Study, name: str, axis: str = "") -> str:
    """Return the study's label of a name, or the name if it has none.

    `labels.protocols` of the study is used for the axis `protocol` first.
    """
    labels = study.get("labels", {})
    of_axis = labels.get("protocols", {}) if axis == "protocol" else {}
    return of_axis.get(name) or labels.get(name, name)


def write_setting(study: Study, dataset: str, partition: str) -> str:
    """Return a panel's title: `CIFAR-10, alpha=0.1`."""
    return f"{label(study, dataset)}, {write_label(partition)}"


def arrange_panels(table: pd.DataFrame) -> list[list[tuple[str, str]]]:
    """Arrange panels in rows: a row per dataset, a column per partition.

    If each dataset has a single partition that no other has, up to ROW panels share a row.
    """
    settings = [*dict.fromkeys(zip(table["dataset"], table["partition"], strict=True))]
    datasets, partitions = table["dataset"].unique(), table["partition"].unique()
    if len(settings) == len(datasets) and len(partitions) > 1:
        return [settings[at : at + ROW] for at in range(0, len(settings), ROW)]
    return [[(dataset, name) for name in partitions] for dataset in datasets] or [[]]


def setting_panels(
    table: pd.DataFrame, study: Study, **size: float
) -> tuple[Figure, list[list[tuple[Axes, pd.DataFrame]]]]:
    """Return a figure with a panel per dataset and partition, and each panel with its rows.

    Panels in a row share their axes if they are of one dataset.
    """
    places = arrange_panels(table)
    together = all(len({dataset for dataset, _ in row}) == 1 for row in places)
    shared: dict[str, Any] = {"sharex": "row", "sharey": "row"} if together else {}
    figure, grid = panels(len(places), len(places[0]), **size, **shared)
    filled: list[list[tuple[Axes, pd.DataFrame]]] = []
    for row, settings in zip(grid, places, strict=True):
        filled.append([])
        for axes, place in zip(row, settings, strict=False):
            axes.set_title(write_setting(study, *place))
            here = (table["dataset"] == place[0]) & (table["partition"] == place[1])
            filled[-1].append((axes, table[here]))
        for axes in row[len(settings) :] if settings else ():
            axes.set_visible(False)
    return figure, filled


def plot_band(axes: Axes, line: pd.DataFrame, along: str, look: dict, **style) -> None:
    """Draw the means against the column `along` as a line, with their deviation as a band."""
    axes.plot(line[along], line["mean"], **style, **look)
    low, high = line["mean"] - line["std"], line["mean"] + line["std"]
    axes.fill_between(line[along], low, high, color=look["color"], alpha=0.12, lw=0)


def plot_crosses(axes: Axes, places: pd.Series, colour: str, transform, **label: Any) -> None:
    """Draw crosses on the lower edge of a panel; the edge does not cut them off."""
    style = {"color": colour, "transform": transform, "clip_on": False, "in_layout": False}
    axes.plot(places, 0 * places, "x", **style, **label)


def legend(
    figure: Figure, panels: Iterable[Axes], columns: int = 5, order: Iterable[str] = ()
) -> None:
    """Add one legend above all panels, in which every name occurs once; those in `order` first."""
    handles: dict = dict.fromkeys(order)
    for axes in panels:
        handles |= {n: h for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles = {name: handle for name, handle in handles.items() if handle is not None}
    columns = min(columns, len(handles))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def add_caption(figure: Figure, caption: str) -> Figure:
    """Add a caption below a figure, as wide as the figure; return the figure."""
    width = figure.get_figwidth()
    text = textwrap.fill(caption, int(width * 19))
    figure.text(0.01, -0.02, text, size=7, color="0.3", va="top", ha="left")
    return figure


def save_figure(figure: Figure, path: Path, form: str) -> None:
    """Save the figure as pdf, svg or png; the same figure gives the same bytes."""
    pixels = form == "png" or figure.findobj(lambda artist: artist.get_rasterized())
    resolution = RESOLUTION if pixels else "figure"
    figure.savefig(path, format=form, metadata=UNDATED[form], dpi=resolution)
