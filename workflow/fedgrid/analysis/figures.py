"""What all figures share: one style, colours, panels, captions, and reproducible files."""

import logging
import textwrap
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.partitions import write_label
from fedgrid.runtime.names import PACKAGE

WIDTH, HEIGHT = 2.3, 2.2  # inches of a panel: three panels fit the width of a page
RESOLUTION = 300  # pixels per inch of the rasterized parts of a figure
COLUMN = 3.4  # inches of the narrowest figure, the width of a text column
logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every glyph
UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}  # for reproducible bytes


def style() -> AbstractContextManager:
    """Return a context in which figures have the style of `report/paper.mplstyle`."""
    return matplotlib.style.context(PACKAGE / "report/paper.mplstyle")


def panels(
    rows: int, columns: int, width: float = WIDTH, height: float = HEIGHT, **shared
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of rows x columns panels, each `width` x `height` inches; at least one."""
    rows, columns = max(rows, 1), max(columns, 1)
    figure = Figure(figsize=(max(columns * width, COLUMN), rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def lines(names: Iterable[str]) -> dict[str, dict]:
    """Return a colour and a line style by name, in the order of the names."""
    return dict(zip(dict.fromkeys(names), cycle(matplotlib.rcParams["axes.prop_cycle"])))


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour by name, in the order of the names."""
    return {name: look["color"] for name, look in lines(names).items()}


def label(study: dict, name: str, axis: str = "") -> str:
    """Return the label of a name; for a protocol, the labels of protocols come first."""
    labels = study.get("labels", {})
    of_axis = labels.get("protocols", {}) if axis == "protocol" else {}
    return of_axis.get(name) or labels.get(name, name)


def setting(study: dict, dataset: str, partition: str) -> str:
    """Return a panel's title: `CIFAR-10, alpha=0.1`."""
    return f"{label(study, dataset)}, {write_label(partition)}"


def legend(figure: Figure, panels: Iterable[Axes], columns: int = 5) -> None:
    """Add one legend for all panels, above them; a name that several panels have occurs once."""
    found = {}
    for axes in panels:
        found |= {n: h for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = min(columns, len(found))
    if found:
        figure.legend(found.values(), found.keys(), loc="outside upper center", ncols=columns)


def explain(figure: Figure, caption: str) -> Figure:
    """Add a caption below a figure, as wide as the figure; return the figure."""
    width = figure.get_figwidth()
    text = textwrap.fill(caption, int(width * 19))
    figure.text(0.01, -0.02, text, size=7, color="0.3", va="top", ha="left")
    return figure


def save(figure: Figure, path: Path, form: str) -> None:
    """Save the figure as pdf or svg; the same figure gives the same bytes."""
    pixels = figure.findobj(lambda artist: artist.get_rasterized())
    resolution = RESOLUTION if pixels else "figure"
    figure.savefig(path, format=form, metadata=UNDATED[form], dpi=resolution)
