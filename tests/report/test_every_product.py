"""Every product of every study, drawn from made-up runs of its quick grid.

Its numbers, layout and caption are pinned in golden/products.txt, which `--update-golden` writes;
of one product of each file also its figure, and all with some runs that diverged. Files are whole
and the same after the table is read, and a figure keeps the rules of all.
"""

import re
import warnings
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from html import unescape
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

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
from fedgrid.analysis import figures, latex, looks
from fedgrid.report import _formats, _product
from fedgrid.study.products import FIGURES, product_module
from made_products import KINDS, STUDIES, draw_product, list_products, list_runs
from vision import APART, VISIONS, seen

PINS = Path(made.__file__).parent / "golden/products.txt"
EVERY = list_products()
FAST = [one.values for one in EVERY if not one.marks]  # one of each file
DRAWN = list_products(lambda entry: {f".{form}" for form in entry["formats"]} & {*FIGURES})
WORDS = {  # of a caption, by the way to score a run
    "tail": "of the last 7 rounds",
    "best": "of the round with the best validation accuracy",
    "smoothed": "last moving average",
}
BESIDE = {"smoothed": "smoothed", "deviation": "tail"}  # columns that have another score, too
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


def hash_table(table) -> str:
    """A hash of a table as CSV; of floats with six digits, because machines round differently."""
    return sha256(table.to_csv(float_format="%.6g").encode()).hexdigest()[:12]


def hash_figure(product, study: str) -> str:
    """A hash of all that a figure shows, in the units of its axes; empty for a table."""
    if not hasattr(product, "plot"):
        return ""
    with figures.use_style("text"):
        figure = product.plot(product.read, made.STUDIES[study])
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    parts = [part for axes in figure.axes for part in list_shown(axes)]
    return sha256(repr([legends, parts]).encode()).hexdigest()[:12]


def list_shown(axes: Axes) -> Iterator:
    """The texts of a panel, and the places and looks of what is drawn in it."""
    yield axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()
    yield axes.get_yscale(), axes.get_visible()
    for axis in (axes.xaxis, axes.yaxis):
        yield [*getattr(axis.get_major_formatter(), "seq", ())]  # of texts instead of numbers
    for line in axes.lines:
        yield to_hex(line.get_color()), line.get_linestyle(), line.get_marker(), line.get_label()
        yield to_hex(line.get_markerfacecolor()), line.get_linewidth(), round_off(line.get_xydata())
    for some in axes.collections:
        yield round_off(some.get_offsets()), round_off(some.get_array()), some.get_label()
        yield round_off(getattr(some, "get_sizes", list)())
        yield [round_off(path.vertices) for path in some.get_paths()]
    for patch in axes.patches:
        yield to_hex(patch.get_facecolor()), patch.get_hatch(), patch.get_label()
        yield round_off(patch.get_path().transformed(patch.get_patch_transform()).vertices)
    yield [round_off(image.get_array()) for image in axes.images]
    yield [(text.get_text(), round_off(getattr(text, "xy", ()))) for text in axes.texts]


def round_off(numbers) -> list[str]:
    """Numbers with five digits, because machines round differently."""
    return [f"{number:.5g}" for number in np.ma.filled(np.ma.asarray(numbers, float), np.nan).flat]


@cache
def draw_figure(study: str, name: str, size: str) -> Figure:
    """The figure of a product, laid out without a warning; to be read, not changed."""
    product = draw_product(study, name, score=False)
    with figures.use_style(size), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = product.plot(product.read, made.STUDIES[study])
        figures.prepare(figure)  # as before it is saved
        figure.draw_without_rendering()
    return figure


# --- tables and captions ---------------------------------------------------------------------


def assert_pinned(key: str, found: str, request) -> None:
    there = re.split(r"^# (.*)\n", PINS.read_text(), flags=re.MULTILINE)
    pins = dict(zip(there[1::2], there[2::2], strict=True))
    if request.config.getoption("--update-golden"):
        pins[key] = f"{found}\n\n"
        PINS.write_text("".join(f"# {one}\n{text}" for one, text in sorted(pins.items())))
    assert f"{found}\n\n" == pins[key]


def summarise(product) -> str:
    """Hashes of the numbers and the layout of a product, and its caption."""
    shown = _product.lay_out(product, product.table)
    hashes = " ".join(map(hash_table, [product.table, *shown]))
    return f"{hashes}\n{product.caption(product.table)}"


@pytest.mark.parametrize(("study", "name"), EVERY)
def test_a_product_has_the_numbers_the_layout_and_the_caption_that_it_had(study, name, request):
    assert_pinned(f"{study}/{name}", summarise(draw_product(study, name)), request)


@pytest.mark.parametrize(("study", "name"), FAST)
def test_a_product_of_some_runs_that_diverged_is_what_it_was(study, name, request):
    product = draw_product(study, name, lost=True)
    found = f"{hash_figure(product, study)} {summarise(product)}".strip()
    assert_pinned(f"{study}/{name}, some runs diverged", found, request)


@pytest.mark.parametrize(("study", "name"), [one for one in DRAWN if one.values in FAST])
def test_a_figure_shows_what_it_showed(study, name, request):
    found = hash_figure(draw_product(study, name), study)
    assert_pinned(f"{study}/{name}, figure", found, request)


@pytest.mark.parametrize(("study", "name"), EVERY)
def test_a_table_says_what_it_is_of_and_is_the_same_after_it_is_read(study, name):
    product = draw_product(study, name)
    said, entry = product.caption(product.read), made.STUDIES[study]["products"][name]
    assert said == product.caption(product.table)
    assert "\n" not in said
    assert "scale" not in product.table or "quick scale" in said
    of_runs = any(text.startswith("runs/") for text in entry["from"].values())
    if of_runs and "tail" not in entry.get("with", {}):  # which is a way of its own
        stated = {way for way, words in WORDS.items() if words in said}
        assert stated <= {"best", *(BESIDE[column] for column in BESIDE if column in product.read)}
        assert "best" in stated or not {"metric", "tail"} <= {*product.read}
    if hasattr(product, "wide"):
        shown, read = (_product.lay_out(product, of) for of in (product.table, product.read))
        assert [of.to_html() for of in shown] == [of.to_html() for of in read]
    module = product_module(study, name, entry)
    assert unknown(module.replace("report.", "product: "), [*product.read]) == []
    assert hasattr(product, "plot") or not {f".{form}" for form in entry["formats"]} & {*FIGURES}


WHOLE = ("table1", "claims", "figure4", "convergence", "weights")  # one of each kind
IN_FORMATS = [
    one if one.values[1] in WHOLE else pytest.param(*one.values, marks=pytest.mark.slow)
    for one in EVERY
]


@pytest.mark.parametrize(("study", "name"), IN_FORMATS)
def test_a_product_is_written_in_all_its_formats_and_again_from_the_table_that_is_read(
    study, name, tmp_path
):
    product, forms = draw_product(study, name), STUDIES[study]["products"][name]["formats"]
    for folder, table in {"a": product.table, "b": product.read}.items():
        paths = [tmp_path / folder / f"{name}.{form}" for form in forms]
        _formats.write_product(product, table, STUDIES[study], paths)
    for path in (tmp_path / "a").iterdir():
        assert_whole(path, product.caption(product.table))
        if path.suffix != ".csv" and (path.suffix != ".html" or hasattr(product, "wide")):
            assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    assert {path.name for path in (tmp_path / "a").iterdir()} == {path.name for path in paths}


def assert_whole(path: Path, caption: str) -> None:
    """A file of its format that people can read, with the caption in it."""
    content = path.read_bytes()
    if path.suffix == ".pdf":
        assert content.startswith(b"%PDF")
        assert content.rstrip().endswith(b"%%EOF")
        assert b"CreationDate" not in content
    elif path.suffix == ".svg":
        drawing = ElementTree.fromstring(content)
        texts = [text.text or "" for text in drawing.iter() if text.tag.endswith("}text")]
        assert caption in "".join(drawing.itertext())  # in the metadata, not in the picture
        assert not any(text in caption for text in texts if len(text) > 40)
    elif path.suffix == ".txt":
        assert content.decode() == f"{caption}\n"
    elif path.suffix == ".html":
        assert caption in unescape(content.decode())
        assert content.decode().count("<tr") > 1
    elif path.suffix == ".tex":
        assert f"% {caption}\n" in content.decode()
        assert f"\\caption{{{latex.write_latex(caption)}}}" in content.decode()
        assert r"\toprule" in content.decode()
    else:
        assert len(_product.read_table(path)) > 0


# --- looks -----------------------------------------------------------------------------------


def find_methods(study: str, name: str, axes: Axes) -> list[tuple[str, str, object]]:
    """The methods whose names artists of a panel have: method, name and artist."""
    table, about = draw_product(study, name, score=False).read, made.STUDIES[study]
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


@pytest.mark.parametrize(("study", "name"), DRAWN)
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


@pytest.mark.parametrize(("study", "name"), DRAWN)
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
@pytest.mark.parametrize(("study", "name"), DRAWN)
def test_a_figure_has_the_width_that_is_asked_for_and_its_texts_have_room(study, name, size):
    figure = draw_figure(study, name, size)
    assert figure.get_figwidth() == figures.PAGE[size]
    texts = list_texts(figure)
    edge = figure.bbox.padded(1)
    assert [text.get_text() for text, box in texts if not is_inside(box, edge)] == []
    level = [(text, box.padded(-1)) for text, box in texts if text.get_rotation() in (0, 90)]
    for (text, box), (other, place) in combinations(level, 2):
        assert not box.overlaps(place), (text.get_text(), other.get_text())


@pytest.mark.parametrize(("study", "name"), DRAWN)
def test_no_panel_is_empty(study, name):
    for axes in draw_figure(study, name, "text").axes:
        shown = [artist for artist in axes.get_children() if artist.get_visible()]
        drawn = [
            artist for artist in shown if isinstance(artist, (Line2D, Collection, AxesImage, Patch))
        ]
        assert not axes.get_visible() or [one for one in drawn if one is not axes.patch]
