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


def test_one_seed_has_no_deviation():
    found = cell(FIRST)
    assert found["mean"] == 55
    assert pd.isna(found["std"])


def test_published_value_and_difference():
    # FedAvg on CIFAR-10 with alpha 0.1 is published as 58.04 (1.0).
    found = cell(FIRST, SECOND, THIRD)
    assert (found["published"], found["published_std"]) == (58.04, 1.0)
    assert found["difference"] == pytest.approx(55 - 58.04)


def test_what_was_not_published_has_no_difference():
    found = cell(FIRST.assign(dataset="digits"))
    assert pd.isna(found["published"])
    assert pd.isna(found["difference"])
    assert found["mean"] == 55


def test_a_study_without_published_values_has_a_table():
    assert drawn(FIRST, SECOND, study={})["mean"].tolist() == [57.5]


def test_a_cell_with_a_diverged_run_has_no_mean():
    found = cell(FIRST, SECOND, LOST)
    assert all(pd.isna(found[name]) for name in ("mean", "std", "difference"))
    assert (found["diverged"], found["seeds"], found["published"]) == (1, 3, 58.04)


def test_a_diverged_run_is_lost_even_if_its_last_accuracy_is_in_the_tail():
    late = rows({8: 0.9, 9: 0.1}, diverged=True, seed=2)
    assert pd.isna(cell(FIRST, SECOND, late)["mean"])


def test_a_diverged_run_does_not_spoil_other_cells():
    table = drawn(FIRST, SECOND, LOST.assign(method="moon"))
    assert table.set_index("method")["mean"].dropna().to_dict() == {"fedavg": 57.5}


def test_cells_are_kept_apart():
    axes = {"method": "moon", "dataset": "digits", "partition": "dir0.5", "protocol": "q"}
    others = [FIRST.assign(**{axis: value}) for axis, value in axes.items()]
    table = drawn(FIRST, *others)
    assert len(table) == 5
    assert set(table["seeds"]) == {1}
    assert table["alpha"].tolist() == [0.1, 0.1, 0.1, 0.5, 0.1]


def test_the_text_has_a_row_per_method_and_a_column_per_alpha():
    lines = table1.text(drawn(FIRST, SECOND, LOST.assign(method="moon"))).splitlines()
    assert "fedavg" in lines[-2]
    assert "57.50 (3.54)" in lines[-2]
    assert "1/1 lost" in lines[-1]


def test_the_tex_has_the_same_numbers():
    tex = table1.tex(drawn(FIRST, SECOND, THIRD))
    assert r"$55.00 \pm 5.00$" in tex
    assert tex.startswith("% Test accuracy in percent, mean (standard deviation) over 3 seeds")


# --- published values ------------------------------------------------------------------------


def test_every_cell_of_the_papers_table_is_there():
    values = published()
    assert len(values) == 108 == 9 * 12
    assert not values.isna().any().any()
    assert not values.duplicated(["method", "dataset", "partition"]).any()
    assert values["published"].between(30, 83).all()
    assert values["published_std"].between(0.1, 3.8).all()


def test_published_cells_are_those_of_the_papers_grid():
    runs = grid.Grid({"fedsls": STUDY}).runs("fedsls", "paper", "table1")
    planned = {(run["method"], run["dataset"], run["partition"]) for run in runs}
    values = published()[["method", "dataset", "partition"]]
    assert planned == set(values.itertuples(index=False, name=None))
    assert len(runs) == 108 * 5


@pytest.mark.parametrize(
    ("dataset", "other", "gains"),
    [
        ("cifar10", "fedavg", [11.90, 12.47, 22.44]),
        ("cifar10", "fedau", [7.76, 10.47, 14.19]),
        ("cinic10", "fedavg", [5.81, 4.75, 10.74]),
        ("cinic10", "fedau", [5.47, 5.83, 10.18]),
    ],
)
def test_published_gains_of_fedsls_are_those_of_figure_1(dataset, other, gains):
    values = published().set_index(["method", "dataset", "partition"])["published"]
    found = [
        values["fedsls", dataset, f"dir{alpha}"] - values[other, dataset, f"dir{alpha}"]
        for alpha in (0.5, 0.1, 0.05)
    ]
    assert found == pytest.approx(gains)
