"""How methods look: told apart with any colour vision, and the same in every figure."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fedgrid.analysis import figures, looks
from made import STUDIES

# Machado, Oliveira and Fernandes (2009): severity 1, in linear RGB.
VISIONS = {
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.9505, 1, 1.089]
APART = 15  # of CIELAB: colours that are told apart at a glance


def seen(colour: str, vision: str) -> np.ndarray:
    """A colour in CIELAB, as it looks with a colour vision."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array(TO_XYZ) @ np.clip(np.array(VISIONS[vision]) @ linear, 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


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
