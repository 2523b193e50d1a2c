"""Tukey's box and what claims measure of it: `fedgrid.analysis.boxes`."""

import numpy as np
import pytest

from fedgrid.analysis import boxes

# The quartiles are 1, 2 and 3, so whiskers reach from -2 to 6: outliers are -8, -4 and 9.
VALUES = [-8.0, -4, 1, 1, 1, 2, 2, 2, 3, 3, 3, 9]


def test_a_box_by_hand():
    box = boxes.find_box(VALUES)
    assert (box.low, box.median, box.high) == (1, 2, 3)
    assert sorted(box.outliers) == [-8, -4, 9]
    assert len(box.inside) == 9


def test_what_is_measured_of_whiskers_and_outliers_by_hand():
    assert boxes.measure_whiskers(VALUES) == 3 - 1
    assert boxes.count_outliers(VALUES) == 25
    assert boxes.count_low_outliers(VALUES) == pytest.approx(100 * 2 / 3)
    assert boxes.measure_outliers(VALUES) == 9 - -8


def test_values_without_outliers_have_no_share_of_low_ones():
    assert boxes.count_outliers([1, 2, 3]) == 0
    assert boxes.measure_outliers([1, 2, 3]) == 0
    assert np.isnan(boxes.count_low_outliers([1, 2, 3]))
