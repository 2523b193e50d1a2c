"""What all figures share: one style, sizes, panels, names of lines, and reproducible files."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from fedgrid.analysis.looks import BOLD
from fedgrid.analysis.scores import CELL
from fedgrid.analysis.symbols import write_symbols
from fedgrid.partitions import write_label
from fedgrid.runtime import cli
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.records import Study

WIDTH, HEIGHT = 2.3, 2.0  # inches of a panel
NARROWEST = 0.62  # of its width that a panel has at least
INNER = 1.25  # inches of a panel without the names at its right, at least
PAGE = {"column": 3.25, "text": 6.75}  # inches: one column of a conference paper, and two
RESOLUTION = 300  # pixels per inch of the rasterized parts of a figure
FONT = "DejaVu Sans"
MOST = 20  # ticks with numbers at a logarithmic axis
ROW = 4  # panels of different datasets in a row, at most
COLUMN = PAGE["column"]
LABEL, LINE = 7, 8  # points: the size of a label at the end of a line, and the room for it
LETTER, KEY, ENTRY = 0.052, 0.47, 0.16  # inches: a letter, the sign of a legend's entry, its height
SPAN = 8  # largest value by the smallest, beyond which an axis is logarithmic
DARKER = 0.97  # of a colour, in a step
CONTRAST = 4.5  # of text to white, at least (WCAG 2.2, level AA)
MANY = 4  # lines in a panel, beyond which only bold ones have a band
logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every glyph
# For reproducible bytes.
UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
ABOUT = {"pdf": "Subject", "svg": "Description", "png": "Description"}  # has the caption


def use_style(size: str | None = None, text: str = "") -> AbstractContextManager:
    """Draw figures with Matplotlib's defaults and `report/paper.mplstyle` alone, in a `with` block.

    No setting of the process or of the user's own files counts. `size` is a name of PAGE. Without
    it a figure that fits a column has its width, and any other that of the text. `text` has the
    letters of the figure.
    """
    wide = {"figure.figsize": (PAGE[size], HEIGHT)} if size else {}
    style: list[Any] = [PACKAGE / "report/paper.mplstyle", wide | find_fonts(text)]
    return matplotlib.style.context(style, after_reset=True)


def find_fonts(text: str) -> dict[str, Any]:
    """Return the settings for letters that FONT lacks and other fonts of this machine have.

    A warning names the letters that no font has. Type 3 is for fonts that are not TrueType.
    """
    fonts: dict[str, set[str]] = {}
    lacking = {letter for letter in text if letter.isprintable() and not letter.isascii()}
    if lacking := lacking - read_letters(font_manager.findfont(FONT)):
        for font in sorted(font_manager.fontManager.ttflist, key=lambda font: font.name):
            if font.style == "normal" and (has := lacking & read_letters(font.fname)):
                fonts[font.name] = has
                lacking -= has
    if lacking:
        cli.warn(
            f"no font of this machine has the letters {''.join(sorted(lacking))}, so figures show "
            "boxes for them: install a font that has them, such as Noto Sans CJK, or write labels "
            "in other letters"
        )
    return {"font.family": [FONT, *fonts], "pdf.fonttype": 3} if fonts else {}


@cache
def read_letters(path: str) -> set[str]:
    """Return the letters for which a font has outlines; none of a font that stands for all."""
    font = font_manager.get_font(path)
    if not font.scalable or "LastResort" in path:
        return set()
    return {*map(chr, font.get_charmap())}


def find_fit(columns: int, width: float, least: float = 0) -> tuple[float, int]:
    """Return the width of a figure, and how many of its columns fit into a row.

    A panel is about `width` inches wide, and at least `least`.
    """
    given = matplotlib.rcParams["figure.figsize"][0]
    page = given or (COLUMN if columns * width <= COLUMN else PAGE["text"])
    return page, min(columns, max(1, int(page / max(NARROWEST * width, least))))


def find_room(names: Iterable[str]) -> float:
    """Return the inches that a panel needs at least with these names at the ends of its lines."""
    return INNER + LETTER * max(map(len, names), default=0)


def panels(
    rows: int,
    columns: int,
    width: float = WIDTH,
    height: float = HEIGHT,
    sharex: bool | str = False,
    sharey: bool | str = False,
    least: float = 0,
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of rows x columns panels of about `width` x `height` inches; at least one.

    If a row does not fit into the figure, the columns that do not fit are below the others. `least`
    is the width that a panel needs.
    """
    rows, columns = max(rows, 1), max(columns, 1)
    page, fit = find_fit(columns, width, least)
    blocks = -(-columns // fit)
    figure = Figure(figsize=(page, blocks * rows * height), layout="constrained")
    places = figure.subplots(blocks * rows, fit, squeeze=False)
    grid = [[places[at // fit * rows + row][at % fit] for at in range(columns)]
            for row in range(rows)]  # fmt: skip
    for axes in {*places.flat} - {axes for row in grid for axes in row}:
        axes.remove()
    share_axes(grid, fit, sharex, sharey)
    return figure, grid


def share_axes(grid: list[list[Axes]], fit: int, sharex: bool | str, sharey: bool | str) -> None:
    """Share axes within rows or columns; inner panels have no numbers. `fit` stand in a row."""
    for row, every in enumerate(grid):
        for at, axes in enumerate(every):
            for name, share in (("x", sharex), ("y", sharey)):
                first = {"row": every[0], "col": grid[0][at]}.get(str(share), grid[0][0])
                if share and first is not axes:
                    getattr(axes, f"share{name}")(first)
            axes.tick_params(
                labelleft=not sharey or sharey == "col" or at % fit == 0,
                labelbottom=not sharex or sharex == "row" or row == len(grid) - 1,
            )


def label_rows(row: Iterable[Axes], text: str, formula: bool = False) -> None:
    """Name the vertical axis of the panels of a row that are at the left of the figure.

    In a `formula` what stands between dollars is set as mathematics.
    """
    for axes in row:
        place = axes.get_subplotspec()
        if place and place.is_first_col():
            axes.set_ylabel(text, parse_math=formula)


def name_rounds(panels: Iterable[Axes]) -> None:
    for axes in panels:
        axes.set_xlabel("round")
        use_whole_numbers(axes.xaxis)


def use_whole_numbers(axis: Any) -> None:
    axis.get_major_locator().set_params(integer=True)


def use_scale(axis: Any, values: pd.Series) -> bool:
    """Make an axis logarithmic, and return True, if its values need it.

    They do if all are positive and the largest is more than SPAN times the smallest.
    """
    needed = bool(0 < values.min() * SPAN < values.max())
    if needed:
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    return needed


def darken(colour: str) -> str:
    """Return a colour for text on white: the given one, or a darker one of enough contrast.

    The contrast is that of WCAG 2.2, from relative luminances.
    """
    while compute_contrast(colour) < CONTRAST:
        red, green, blue = to_rgb(colour)
        colour = to_hex((DARKER * red, DARKER * green, DARKER * blue))
    return colour


def compute_contrast(colour: str) -> float:
    """Return the contrast of a colour to white, from 1 to 21."""
    parts = np.array(to_rgb(colour))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05))


def make_blank() -> Figure:
    """Return an empty figure, for a product that has a caption and nothing to draw."""
    figure, ((axes,),) = panels(1, 1)
    axes.set_axis_off()
    return figure


def lines(names: Iterable[str]) -> dict[str, dict]:
    """Give each name that is no method its own colour and line style, in the order of the names."""
    return dict(zip(dict.fromkeys(names), cycle(matplotlib.rcParams["axes.prop_cycle"])))


def colours(names: Iterable[str]) -> dict[str, str]:
    return {name: look["color"] for name, look in lines(names).items()}


def label(study: Study, name: str, axis: str = "") -> str:
    """Return the study's label of a name, or NAME in the file of a method, or the name.

    `labels.protocols` of the study is used for the axis `protocol` first.
    """
    labels = study.get("labels", {})
    of_axis = labels.get("protocols", {}) if axis == "protocol" else {}
    if written := of_axis.get(name) or labels.get(name):
        return written
    if axis in ("dataset", "protocol") or name not in registered("methods"):
        return name
    return source.literal(f"methods.{name}", "NAME", name)


def add_labels(table: pd.DataFrame, study: Study, axes: Iterable[str]) -> None:
    for axis in axes:
        table[f"{axis}_label"] = [label(study, name, axis) for name in table[axis]]


def tell_apart(study: Study, table: pd.DataFrame) -> Study:
    """Return a study in which all that a table has beside each other has a label of its own.

    If two methods, protocols or data sets of one setting have one label, their names follow it.
    """
    cells = table[[axis for axis in CELL if axis in table]].drop_duplicates()
    if cells.empty:
        return study
    shown = [cells[axis].map(partial(label, study, axis=axis)) for axis in cells]
    labels = {**study.get("labels", {})}
    protocols = {**labels.get("protocols", {})}
    for _, same in cells.groupby(shown, sort=False):
        for axis in same.columns[same.nunique() > 1]:
            of_axis = protocols if axis == "protocol" else labels
            names = {name: label(study, name, axis) for name in same[axis].unique()}
            of_axis |= {name: f"{text} ({name})" for name, text in names.items() if text != name}
    return {**study, "labels": labels | {"protocols": protocols}}


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

    Panels in a row share their axes if they are of one dataset. A panel has room for a label for
    each of its methods.
    """
    places = arrange_panels(table)
    together = all(len({dataset for dataset, _ in row}) == 1 for row in places)
    shared: dict[str, Any] = {"sharex": "row", "sharey": "row"} if together else {}
    most = table.groupby(["dataset", "partition"])["method"].nunique().max() if len(table) else 0
    shared |= {"height": max(HEIGHT, 0.9 + most * LINE / 72)} | size
    figure, grid = panels(len(places), len(places[0]), **shared)
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


def plot_band(axes: Axes, line: pd.DataFrame, along: str, look: dict, band=True, **style) -> None:
    """Draw the means against the column `along` as a line, with their deviation as a band."""
    axes.plot(line[along], line["mean"], **look | style)
    if band:
        low, high = line["mean"] - line["std"], line["mean"] + line["std"]
        axes.fill_between(line[along], low, high, color=look["color"], alpha=0.12, lw=0)


def has_band(look: dict, lines: int) -> bool:
    """Whether a line has a band: of many lines in a panel only the bold ones have."""
    return lines <= MANY or look.get("linewidth") == BOLD


def name_lines(panels: Iterable[Axes]) -> None:
    """Write the name of each line at its right; equal lines have one label, such as `A = B`.

    Call it when everything is drawn: it lays out the figure to place labels without overlap.
    """
    notes = [(axes, texts) for axes in panels if (texts := place_labels(axes))]
    if not notes:
        return
    if figure := notes[0][0].get_figure(root=True):
        prepare(figure)
        figure.draw_without_rendering()
    for axes, texts in notes:
        spread_labels(axes, texts)


def prepare(figure: Figure) -> None:
    """Prepare a figure for its layout.

    Symbols in texts are Greek letters. Powers at logarithmic axes are formulas, unlike all other
    texts. Lines without any number have no marks, whose places Matplotlib cannot compute.
    """
    for text in figure.findobj(Text):
        text.set_text(write_symbols(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if type(named := axis.get_major_formatter()) is FuncFormatter:  # of texts at the axis
            axis.set_major_formatter(SymbolFormatter(named))
        if axis.get_scale() == "log":
            for tick in (*axis.get_major_ticks(MOST), *axis.get_minor_ticks(9 * MOST)):
                tick.label1.set_parse_math(True)
    for line in figure.findobj(Line2D):
        if not np.isfinite(np.asarray(line.get_ydata(), float)).any():
            line.set_markevery(None)


class SymbolFormatter(FuncFormatter):
    """Writes texts at an axis with symbols."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return write_symbols(super().__call__(x, pos))


def merge_equal(axes: Axes) -> list[tuple[Any, Any, str]]:
    """Return the named lines of a panel with their ends; lines of the same points as one."""
    groups: dict[tuple, tuple[Any, Any, list[str]]] = {}
    for line in axes.lines:
        points = np.asarray(line.get_xydata(), float)
        points = points[np.isfinite(points).all(axis=1)]
        name = str(line.get_label())
        if not name.startswith("_") and len(points):
            same = tuple(points.round(9).ravel())
            groups.setdefault(same, (line, points[-1], []))[2].append(name)
    return [(line, end, join_names(names)) for line, end, names in groups.values()]


def join_names(names: list[str]) -> str:
    """Join the names of equal lines; of more than two the others are counted."""
    names = [*dict.fromkeys(names)]
    more = [f"{len(names) - 2} more"] if len(names) > 2 else []
    return " = ".join(names[:2] + more)


def place_labels(axes: Axes) -> list[Any]:
    """Write labels at the right of a panel, each with a thin line to the end of its line."""
    arrow = {"arrowstyle": "-", "lw": 0.5, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    texts = []
    for line, end, name in merge_equal(axes):
        colour = line.get_color()
        texts.append(axes.annotate(
            name, end, xycoords=line.get_transform(), xytext=(1.04, 0.5),
            textcoords="axes fraction", va="center", ha="left", size=LABEL, color=darken(colour),
            annotation_clip=False,
            weight="bold" if line.get_linewidth() == BOLD else "normal",
            arrowprops=arrow | {"color": colour, "alpha": 0.6},
        ))  # fmt: skip
    return texts


def spread_labels(axes: Axes, texts: list[Any]) -> None:
    """Move the labels of a panel to the heights of their ends, apart from each other."""
    height = axes.get_window_extent().height
    room = LINE * axes.figure.dpi / 72 / height
    pixels = [note.xycoords.transform(note.xy) for note in texts]
    wanted = [axes.transAxes.inverted().transform(pixel)[1] for pixel in pixels]
    for note, place in zip(texts, spread(wanted, room), strict=True):
        note.xyann = (1.04, place)


def spread(wanted: list[float], room: float) -> list[float]:
    """Return places near the wanted ones, at least `room` apart, and between 0 and 1 if they fit.

    Labels that would touch become a group around the mean of their places.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[list[float]] = []
    for at in order:
        groups.append([wanted[at]])
        while len(groups) > 1 and find_span(groups[-1], room)[0] < find_span(groups[-2], room)[1]:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [
        find_span(group, room)[0] + room * (at + 0.5)
        for group in groups
        for at in range(len(group))
    ]
    return [place for _, place in sorted(zip(order, places, strict=True))]


def find_span(group: list[float], room: float) -> tuple[float, float]:
    """Return the ends of a group of labels: about their mean, and between 0 and 1 if they fit."""
    half = room * len(group) / 2
    middle = sum(group) / len(group)
    middle = min(max(middle, half), 1 - half) if half < 0.5 else 0.5
    return middle - half, middle + half


def plot_crosses(axes: Axes, places: pd.Series, colour: str, transform, **label: Any) -> None:
    """Draw crosses on the lower edge of a panel; the edge does not cut them off."""
    style = {"color": colour, "transform": transform, "clip_on": False, "in_layout": False}
    axes.plot(places, 0 * places, "x", **style, **label)


def legend(figure: Figure, panels: Iterable[Axes], columns: int = 5) -> None:
    """Add one legend above all panels, in which every name occurs once."""
    handles: dict[str, Any] = {}
    for axes in panels:
        handles |= {n: h for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
    add_legend(figure, handles, columns)


def explain_signs(figure: Figure, signs: Mapping[str, tuple[Any, dict]]) -> None:
    """Add a legend of those signs that are shown; each name has whether it is, and the look."""
    add_legend(figure, {n: Line2D([], [], **look) for n, (shown, look) in signs.items() if shown})


def add_legend(figure: Figure, handles: dict[str, Any], columns: int = 5) -> None:
    """Add a legend, if it has entries, above all panels; the figure becomes higher by it."""
    if handles:
        columns = fit_legend([*handles], figure.get_figwidth(), columns)
        rows = -(-len(handles) // columns)
        figure.set_figheight(figure.get_figheight() + ENTRY * rows)
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def fit_legend(names: list[str], width: float, most: int) -> int:
    """Return how many columns of a legend fit into a width, at most as many as asked for."""
    for columns in range(min(most, len(names)), 1, -1):
        longest = [max(map(len, part)) for part in np.array_split(names, columns)]
        if sum(KEY + LETTER * length for length in longest) <= width:
            return columns
    return 1


def save_figure(figure: Figure, path: Path, form: str, caption: str = "") -> None:
    """Save the figure as pdf, svg or png; the same figure gives the same bytes.

    The caption stands in the file's metadata.
    """
    pixels = form == "png" or figure.findobj(lambda artist: artist.get_rasterized())
    resolution = RESOLUTION if pixels else "figure"
    about = {ABOUT[form]: caption} if caption else {}
    prepare(figure)
    figure.savefig(path, format=form, metadata=UNDATED[form] | about, dpi=resolution)
