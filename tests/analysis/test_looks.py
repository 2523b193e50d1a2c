"""How methods look: told apart with any colour vision, and the same in every figure."""

from itertools import combinations

import numpy as np
import pytest

from fedgrid.analysis import figures, looks
from made import STUDIES
from vision import APART, VISIONS, seen


def list_grids():
    """The methods of each grid of every study."""
    for name, study in STUDIES.items():
        for scale in study["scales"].values():
            for blocks in scale["grids"].values():
                methods = [one for block in blocks for one in np.ravel(block["method"])]
                yield name, [*dict.fromkeys(map(str, methods))]


@pytest.mark.parametrize("vision", VISIONS)
def test_methods_of_a_grid_differ_by_colour_line_or_mark(vision):
    for name, methods in list_grids():
        found = looks.list_looks(methods, STUDIES[name])
        for one, other in combinations(found.values(), 2):
            same_line = one["linestyle"] == other["linestyle"] and one["marker"] == other["marker"]
            apart = np.linalg.norm(seen(one["color"], vision) - seen(other["color"], vision))
            assert apart > APART or not same_line, (name, one, other)


def test_a_method_has_one_colour_in_all_studies():
    alone = looks.list_looks(["scaffold"], {})["scaffold"]["color"]
    among = looks.list_looks(["fedavg", "moon", "scaffold", "fedlmd"], STUDIES["fedlmd"])
    assert among["scaffold"]["color"] == alone
    assert looks.find_colour("scaffold+norm") == alone


def test_the_studys_method_is_bold_and_placebos_are_grey():
    found = looks.list_looks(["fedavg", "fedsls", "fedsls+swapped"], STUDIES["fedsls"])
    widths = [found[name]["linewidth"] for name in ("fedavg", "fedsls", "fedsls+swapped")]
    assert widths == [looks.THIN, looks.BOLD, looks.THIN]
    assert found["fedsls+swapped"]["color"] == looks.PALE


def test_labels_are_apart_and_inside():
    places = figures.spread([0.5, 0.51, 0.52, 0.99, 1.0], 0.1)
    assert min(np.diff(sorted(places))) == pytest.approx(0.1)
    assert max(places) <= 0.95 + 1e-9
    assert figures.spread([0.1, 0.9], 0.1) == pytest.approx([0.1, 0.9])


def test_equal_lines_have_one_label():
    with figures.use_style("column"):
        _, ((axes,),) = figures.panels(1, 1)
        for name in ("A", "B"):
            axes.plot([0, 1], [1, 2], label=name)
        axes.plot([0, 1], [2, 2], label="C")
        figures.name_lines([axes])
    assert [text.get_text() for text in axes.texts] == ["A = B", "C"]


@pytest.mark.parametrize("size", figures.PAGE)
def test_a_figure_has_the_width_of_its_size(size):
    with figures.use_style(size):
        figure, grid = figures.panels(2, 3, sharey="row")
    assert figure.get_figwidth() == figures.PAGE[size]
    assert [len(row) for row in grid] == [3, 3]
    lefts = [axes for axes in grid[0] if axes.get_subplotspec().is_first_col()]
    assert len(lefts) == (1 if size == "text" else 2)


@pytest.mark.parametrize("form", ["pdf", "svg", "png"])
def test_a_line_without_numbers_may_have_marks(form, tmp_path):
    figure, ((axes,),) = figures.panels(1, 1)
    axes.plot([1, 2], [np.nan, np.nan], marker="o", markevery=0.2, label="nothing")
    axes.plot([1, 2], [1, 2], marker="o", markevery=0.2, label="a line")
    figures.name_lines([axes])
    figures.save_figure(figure, tmp_path / "figure", form)
    assert [text.get_text() for text in axes.texts] == ["a line"]
