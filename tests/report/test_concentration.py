"""What weights can do: the figure `concentration`, its line, points and distances, by hand."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest
import torch
from test_any_study import plotted

import made
from fedgrid.engine.state import effective
from fedgrid.report import _formats, _product, concentration

STUDY = {"labels": {"fedavg": "FedAvg", "fedsls": "FedSLS", "fedau": "FedAU"}}
LINE = {"uniform": 0, "power": 2, "fedavg": 1}  # in another order than that of their numbers
OPTIONS = {"line": LINE, "points": ["fedsls", "fedau"], "placebos": {"fedsls": ["swapped"]}}
# The effective number and the percentage of each seed. The line of seed 0 goes through (2, 40),
# (4, 50), (8, 70) and has 45 at 3; that of seed 1 has 46 at 3; that of seed 2 has 47.5 at 3.
PLACES = {
    "uniform": [(8, 70), (8, 71), (8, 72)],
    "fedavg": [(4, 50), (4, 51), (4, 54)],
    "power": [(2, 40), (2, 41), (2, 41)],
    "fedsls": [(3, 46), (3, 49), (3, 49.5)],
    "swapped": [(3, 45), (3, 46), (3, 47.5)],
    "fedau": [(6, 60), (9, 61), (6, 63)],
}
T2 = 4.302653  # Student's quantile 0.975 with 2 degrees of freedom


def runs(places: dict = PLACES, **names) -> pd.DataFrame:
    """Runs by method, a place per seed; a run without a percentage diverged."""
    return pd.concat(
        made.lost(method, seed, effective_clients=at, **names) if percent is None
        else made.run(percent, method, seed, effective_clients=at, **names)
        for method, values in places.items()
        for seed, (at, percent) in enumerate(values)
    )  # fmt: skip


def drawn(of: pd.DataFrame | None = None, **options) -> pd.DataFrame:
    of = runs() if of is None else of
    return concentration.draw(made.read(of), STUDY, "quick", **(OPTIONS | options))


def point(table: pd.DataFrame, method: str) -> dict:
    (found,) = table[(table["method"] == method) & (table["role"] != "line")].to_dict("records")
    return found


# --- places ----------------------------------------------------------------------------------


def test_the_effective_number_of_a_run_is_the_mean_over_evaluations_after_round_0():
    of = runs({"uniform": [(8, 70)], "fedavg": [(4, 50)], "fedsls": [(5, 60)]})
    of.loc[(of["method"] == "fedsls") & (of["round"] == 0), "effective_clients"] = 99
    of.loc[(of["method"] == "fedsls") & (of["round"] == 10), "effective_clients"] = 7
    # 5 after rounds 2, 6 and 8, and 7 after round 10
    assert point(drawn(of), "fedsls")["effective_clients"] == 5.5


def test_the_effective_number_does_not_depend_on_the_sum_of_the_weights():
    weights = torch.tensor([1.0, 2.0, 5.0])
    by_hand = 64 / (1 + 4 + 25)
    assert effective(weights).item() == pytest.approx(by_hand)
    assert effective(weights / 100).item() == pytest.approx(by_hand)


# --- distances -------------------------------------------------------------------------------


def test_the_distance_is_to_the_line_of_the_same_seed_at_the_same_effective_number():
    found = point(drawn(), "fedsls")
    # 46 - 45, 49 - 46, 49.5 - 47.5
    assert found["distance_by_seed"] == "0: +1, 1: +3, 2: +2"
    half = T2 * 1 / sqrt(3)
    numbers = [found[name] for name in concentration.DISTANCE[:4]]
    assert numbers == pytest.approx([2, 2 - half, 2 + half, 3], abs=1e-3)
    placebo = point(drawn(), "swapped")
    assert (placebo["distance"], placebo["distance_low"], placebo["distance_high"]) == (0, 0, 0)
    assert drawn()["distance"].isna().tolist() == [True] * 3 + [False] * 3


def test_a_seed_beyond_the_ends_of_its_line_has_no_distance():
    table = drawn()
    found = point(table, "fedau")
    # 60 - 60 of seed 0 and 63 - 63 of seed 2; seed 1 is at 9, where the line has ended
    assert (found["distance"], found["distance_seeds"], found["seeds"]) == (0, 2, 3)
    assert found["distance_by_seed"] == "0: +0, 2: +0"
    few = "Not every seed lies between the ends of its line for FedAU."
    assert few in concentration.caption(table)
    inside = drawn(runs(PLACES | {"fedau": [(8, 70), (2, 41), (4, 54)]}))  # on it, at its ends
    assert point(inside, "fedau")["distance_by_seed"] == "0: +0, 1: +0, 2: +0"
    assert "Not every seed" not in concentration.caption(inside)


def test_a_point_that_is_never_between_the_ends_says_so():
    table = drawn(runs(PLACES | {"fedau": [(9, 60), (9, 61), (1, 62)]}))
    assert (point(table, "fedau")["distance_seeds"], point(table, "fedau")["mean"]) == (0, 61)
    assert np.isnan(point(table, "fedau")["distance"])
    plotted(concentration, table)
    assert "FedAU not between the ends of the line" in concentration.caption(table)
    assert "Not every seed" not in concentration.caption(table)


@pytest.mark.parametrize("missing", [[*LINE], ["power"]])
def test_only_seeds_with_the_whole_line_count(missing):
    of = runs()
    table = drawn(of[(of["seed"] != 1) | ~of["method"].isin(missing)])
    assert point(table, "fedsls")["distance_by_seed"] == "0: +1, 2: +2"
    assert table["seeds"].tolist() == [2] * 6
    assert table["mean"].tolist() == [71, 52, 40.5, 47.75, 46.25, 61.5]


def test_runs_of_the_line_with_the_same_effective_number_count_as_one():
    of = runs({"uniform": [(8, 70)], "fedavg": [(8, 72)], "power": [(8, 74)], "fedsls": [(8, 75)]})
    assert point(drawn(of), "fedsls")["distance"] == pytest.approx(75 - 72)
    places = {"uniform": [(8, 70)], "fedavg": [(8, None)], "power": [(8, 74)], "fedsls": [(8, 75)]}
    assert point(drawn(runs(places)), "fedsls")["distance_by_seed"] == "0: diverged"


def test_the_line_has_no_value_beside_a_run_that_diverged():
    table = drawn(runs(PLACES | {"power": [(2, 40), (2, None), (2, 41)]}))
    assert point(table, "fedsls")["distance_by_seed"] == "0: +1, 1: diverged, 2: +2"
    assert np.isnan(point(table, "fedsls")["distance"])
    assert point(table, "fedau")["distance"] == 0  # between the other two
    (axes,) = plotted(concentration, table).axes
    (cross,) = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert (cross.get_xdata().tolist(), cross.get_ydata().tolist()) == ([2], [0])


def test_without_a_line_the_figure_says_so(tmp_path):
    """A part of the grid without the line must not stop the other products."""
    table = drawn(line={"gone": 1})
    assert table.empty
    product = _product.load_product("fedsls", "concentration", {"with": {"line": {"gone": 1}}})
    _formats.write_product(product, table, {}, [tmp_path / "none.csv", tmp_path / "none.svg"])
    assert "nothing to show" in _product.write_text(product, tmp_path / "none.csv")


def test_another_metric_has_its_own_unit():
    table = drawn(runs().assign(loss=lambda of: of["accuracy"]), metric="loss")
    assert point(table, "fedsls")["distance"] == pytest.approx(0.02)
    assert "in percent" not in concentration.caption(table)
    (axes,) = plotted(concentration, table).axes
    assert axes.get_ylabel() == "test loss"
    assert "FedSLS +0.020 [-0.005, 0.045]" in concentration.caption(table)
