"""Every product of every study, drawn once from made-up runs of its quick grid: the columns of its
table, and the rules that all figures are held to.
"""

import copy
import warnings
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import made
from dictionary import unknown
from fedgrid.analysis import figures, looks
from fedgrid.report import _product
from fedgrid.study.products import FIGURES, product_module
from made_products import KINDS, MANY_RUNS, list_runs, make_table
from vision import APART, VISIONS, seen

DRAWN = [
    (study, name)
    for study, about in made.STUDIES.items()
    for name, entry in about["products"].items()
    if any(f".{form}" in FIGURES for form in entry["formats"])
]
PARAMETERS = [
    pytest.param(*one, marks=pytest.mark.slow) if one[1] in MANY_RUNS else one for one in DRAWN
]
# By module, a product that it draws at the quick scale: of FedSLS, if that has one.
BY_MODULE = {
    product_module(study, name, made.STUDIES[study]["products"][name]): (study, name)
    for study in (*made.STUDIES, "fedsls")
    for name in made.GRID.products(study, "quick")
}
# What colours stand for in the figures in which they do not stand for methods.
OTHERWISE = {
    **{("fedsls", name): "maps" for name in ("figure3", "figure5")},
    **{("fedsls", "figure4"): "nothing", ("privatization", "figure3"): "shares"},
    **{("fedlmd", "figure2"): "shares", ("fedlmd", "reference"): "origins of a curve"},
    **{("normalization", "figure1"): "clients", ("baselines", "confusion"): "shares"},
    **dict.fromkeys([("privatization", "figure9"), ("privatization", "figure9_all")], "accuracies"),
    ("privatization", "figure8"): "kinds of ways",
    **{("privatization", "figure10"): "a method has a panel; see test_privatization.py"},
}


@cache
def draw_figure(study: str, name: str, size: str) -> Figure:
    """The figure of a product, laid out without a warning; to be read, not changed."""
    entry = copy.deepcopy(made.STUDIES[study]["products"][name])
    entry.setdefault("with", {})["size"] = size
    product = _product.load_product(study, name, entry)
    with figures.use_style(product.size), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = product.plot(make_table(study, name), made.STUDIES[study])
        figures.prepare(figure)  # as before it is saved
        figure.draw_without_rendering()
    return figure


# --- columns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "study", "name"),
    [
        pytest.param(module, *one, marks=pytest.mark.slow if one[1] in MANY_RUNS else ())
        for module, one in BY_MODULE.items()
    ],
)
def test_the_columns_of_a_product_are_in_the_dictionary(module, study, name):
    table = make_table(study, name)
    assert unknown(module.replace("report.", "product: "), [*table]) == []


# --- looks -----------------------------------------------------------------------------------


def find_methods(study: str, name: str, axes: Axes) -> list[tuple[str, str, object]]:
    """The methods whose names artists of a panel have: method, name and artist."""
    table, about = make_table(study, name), made.STUDIES[study]
    columns = table.columns.intersection(["method", "original", "over", "family", "series"])
    texts = [text.partition("/") for text in about["products"][name]["from"].values()]
    grids = [grid for kind, _, grid in texts if kind in KINDS and columns.empty]
    runs = [run for grid in grids for run in list_runs(study, grid)]
    methods = [*table[columns].to_numpy(str).ravel(), *(run["method"] for run in runs)]
    labels = {figures.label(about, method): method for method in dict.fromkeys(methods)}
    found = []
    for artist, text in zip(*axes.get_legend_handles_labels(), strict=True):
        label = text.removeprefix("over ").removesuffix(", published")
        label = label if label in labels else label.partition(" (")[0]
        if label in labels:
            found.append((labels[label], text, artist))
    return found


def look_at(artist) -> tuple[str, bool, tuple]:
    """The colour of an artist, whether it is hollow, and all else that tells it from others."""
    if isinstance(artist, ErrorbarContainer):
        artist = artist[0]
    if isinstance(artist, BarContainer):
        bar = artist.patches[0]
        hollow = to_hex(bar.get_facecolor()) == "#ffffff"
        colour = bar.get_edgecolor() if hollow else bar.get_facecolor()
        return to_hex(colour), hollow, (hollow, bar.get_hatch())
    if isinstance(artist, Line2D):
        hollow = to_hex(artist.get_markerfacecolor()) == "#ffffff"
        style = str(artist._unscaled_dash_pattern), artist.get_marker(), hollow
        return to_hex(artist.get_color()), hollow, style
    return to_hex(artist.get_facecolor()[0]), False, ()


@pytest.mark.parametrize(("study", "name"), PARAMETERS)
def test_a_method_has_its_colour_in_every_figure(study, name):
    placebos = looks.find_placebos(made.STUDIES[study])
    found = [one for axes in draw_figure(study, name, "text").axes
             for one in find_methods(study, name, axes)]  # fmt: skip
    assert bool(found) != ((study, name) in OTHERWISE)
    for method, text, artist in found:
        colour, hollow, _ = look_at(artist)
        grey = looks.is_placebo(method, placebos)  # or, if it is hollow, in its method's colour
        allowed = [looks.PALE] * grey + [looks.find_colour(method)] * (hollow or not grey)
        assert colour in [one.lower() for one in allowed], text


@pytest.mark.parametrize(("study", "name"), PARAMETERS)
def test_methods_of_a_panel_are_told_apart_with_any_colour_vision(study, name):
    for axes in draw_figure(study, name, "text").axes:
        at_axis = {label.get_text() for label in axes.get_yticklabels()}
        named = [one for one in find_methods(study, name, axes) if one[1] not in at_axis]
        for (_, one, first), (_, other, second) in combinations(named, 2):
            (colour, _, look), (colour_of_other, _, look_of_other) = look_at(first), look_at(second)
            for vision in VISIONS:
                apart = np.linalg.norm(seen(colour, vision) - seen(colour_of_other, vision))
                assert apart > APART or look != look_of_other, (one, other, vision)


# --- room ------------------------------------------------------------------------------------


def list_texts(figure: Figure) -> list[tuple[Text, Bbox]]:
    """The texts of a figure that are seen, with their places in pixels."""
    hidden = {text for one in figure.axes for text in list_ticks_outside(one)}
    hidden |= {t for one in figure.axes if not one.get_visible() for t in one.findobj(Text)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text not in hidden]
    return [(text, Text.get_window_extent(text)) for text in texts if text.get_text().strip()]


def list_ticks_outside(axes: Axes) -> set[Text]:
    """The labels of ticks beyond the ends of an axis, which are not drawn."""
    return {
        label
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }


def is_inside(box: Bbox, edge: Bbox) -> bool:
    return edge.x0 <= box.x0 <= box.x1 <= edge.x1 and edge.y0 <= box.y0 <= box.y1 <= edge.y1


@pytest.mark.parametrize("size", [pytest.param("column", marks=pytest.mark.slow), "text"])
@pytest.mark.parametrize(("study", "name"), PARAMETERS)
def test_a_figure_has_the_width_that_is_asked_for_and_its_texts_have_room(study, name, size):
    figure = draw_figure(study, name, size)
    assert figure.get_figwidth() == figures.PAGE[size]
    texts = list_texts(figure)
    edge = figure.bbox.padded(1)
    assert [text.get_text() for text, box in texts if not is_inside(box, edge)] == []
    level = [(text, box.padded(-1)) for text, box in texts if text.get_rotation() in (0, 90)]
    for (text, box), (other, place) in combinations(level, 2):
        assert not box.overlaps(place), (text.get_text(), other.get_text())


@pytest.mark.parametrize(("study", "name"), PARAMETERS)
def test_no_panel_is_empty(study, name):
    for axes in draw_figure(study, name, "text").axes:
        shown = [artist for artist in axes.get_children() if artist.get_visible()]
        drawn = [
            artist for artist in shown if isinstance(artist, (Line2D, Collection, AxesImage, Patch))
        ]
        assert not axes.get_visible() or [one for one in drawn if one is not axes.patch]
