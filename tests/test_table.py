"""Every product, and table 1 of FedSLS in numbers: `fedgrid.report`."""

from importlib import import_module

import pandas as pd
import pytest

from fedgrid import grid
from fedgrid.names import PACKAGE, registered
from fedgrid.report import table1

STUDY = grid.read_studies(PACKAGE.parent / "studies")["fedsls"]
ROUNDS, TAIL = 10, 4


def rows(accuracies: dict[int, float], diverged: bool = False, **names) -> pd.DataFrame:
    """A run as it is collected: its evaluations by round, and its names."""
    run = {"protocol": "p", "dataset": "cifar10", "partition": "dir0.1", "method": "fedavg"}
    run |= {"seed": 0, "rounds": ROUNDS, "tail": TAIL, "diverged": diverged} | names
    return pd.DataFrame([{"round": r, "accuracy": a} | run for r, a in accuracies.items()])


# The last 4 of 10 rounds are 7 to 10: evaluations 8 and 10.
FIRST = rows({0: 0.1, 2: 0.2, 6: 0.9, 8: 0.50, 10: 0.60})  # 55 %
SECOND = rows({0: 0.1, 2: 0.2, 6: 0.9, 8: 0.58, 10: 0.62}, seed=1)  # 60 %
THIRD = rows({0: 0.1, 2: 0.2, 6: 0.9, 8: 0.44, 10: 0.56}, seed=2)  # 50 %
LOST = rows({0: 0.1, 2: 0.2, 4: 0.1}, diverged=True, seed=2)


def drawn(*runs: pd.DataFrame, study: dict = STUDY) -> pd.DataFrame:
    return table1.draw(pd.concat(runs), study, "quick")


def cell(*runs: pd.DataFrame) -> dict:
    (found,) = drawn(*runs).to_dict("records")
    return found


def published() -> pd.DataFrame:
    return table1.published_values(STUDY["published"]["table1"])


# --- every product ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", registered("report"))
def test_a_product_is_drawn_from_runs_and_says_its_scale(name):
    report = import_module(f"fedgrid.report.{name}")
    product = report.draw(pd.concat([FIRST, SECOND, LOST]), STUDY, "quick")
    assert report.__doc__
    if isinstance(product, pd.DataFrame):
        assert set(product["scale"]) == {"quick"}
        for text in (report.text(product), report.tex(product)):
            assert "quick scale" in text
            assert f"{ROUNDS} rounds" in text
            assert "3 seeds" in text


@pytest.mark.parametrize("name", registered("report"))
def test_a_product_does_not_depend_on_the_order_of_the_runs_or_change_them(name):
    report, runs = import_module(f"fedgrid.report.{name}"), pd.concat([FIRST, SECOND, LOST])
    before = runs.copy(deep=True)
    one, other = (report.draw(r, STUDY, "quick") for r in (runs, pd.concat([LOST, SECOND, FIRST])))
    pd.testing.assert_frame_equal(runs, before)
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)


# --- table 1 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("run", "expected"), [(FIRST, 55), (SECOND, 60), (THIRD, 50)])
def test_a_run_counts_with_the_mean_of_its_tail(run, expected):
    assert table1.tail_means(run)["accuracy"].tolist() == pytest.approx([expected])


@pytest.mark.parametrize(("tail", "expected"), [(1, 60), (2, 60), (3, 55), (5, 200 / 3), (10, 55)])
def test_the_tail_is_counted_in_rounds(tail, expected):
    # 10 | 10 | 8, 10 | 6, 8, 10 | 2, 6, 8, 10: never round 0
    means = table1.tail_means(FIRST.assign(tail=tail))
    assert means["accuracy"].tolist() == pytest.approx([expected])


def test_mean_and_sample_standard_deviation_over_seeds():
    # 55, 60, 50: mean 55, deviation sqrt((0 + 25 + 25) / 2) = 5
    found = cell(FIRST, SECOND, THIRD)
    assert (found["mean"], found["std"], found["seeds"]) == (55, 5, 3)
    # 55, 60: deviation sqrt(2 * 2.5^2 / 1)
    assert cell(FIRST, SECOND)["std"] == pytest.approx(3.5355)


def test_one_seed_is_shown_without_a_deviation():
    alone, both = drawn(FIRST), drawn(FIRST, SECOND)
    for show, sign in ((table1.text, "("), (table1.tex, "pm")):
        assert "55.00" in show(alone)
        assert "nan" not in show(alone)
        (row,) = (line for line in show(both).splitlines() if line.startswith("fedavg"))
        assert sign in row
