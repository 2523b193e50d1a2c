"""Tests between methods over seeds and cells: `fedgrid.report.significance`."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_any_study import plotted

import made
from fedgrid.report import significance
from fedgrid.runtime.names import NothingToDrawError, UsageError

# Accuracies in percent by seed, in each cell.
CELLS = {
    "dir0.1": {"fedavg": [50, 52, 51], "good": [53, 54, 56], "even": [50, 52, 51]},
    "dir0.5": {"fedavg": [60, 62, 64], "good": [61, 66, 66], "even": [59, 63, 64]},
    "iid": {"fedavg": [80, 80, 80], "good": [81, 81, 81], "even": [80, 79, 82]},
}
PAIRS = {"dir0.1": [3, 2, 5], "dir0.5": [1, 4, 2], "iid": [1, 1, 1]}  # good minus fedavg


def drawn(cells=CELLS, **options) -> pd.DataFrame:
    runs = pd.concat(made.runs(of, partition=partition) for partition, of in cells.items())
    return significance.draw(runs, made.STUDY, "quick", **options)


def row(table: pd.DataFrame, method: str, partition: str | None) -> pd.Series:
    """The row of a method and a cell; None is the one over cells."""
    here = table["partition"].isna() if partition is None else table["partition"] == partition
    (found,) = table[here & (table["method"] == method)].iloc
    return found


def without(partition: str, *seeds: int) -> dict:
    """The cells with fewer seeds in one of them."""
    kept = {method: values[: 3 - len(seeds)] for method, values in CELLS[partition].items()}
    return CELLS | {partition: kept}


def t_test(apart: list[float]) -> float:
    """Student's p from its definition."""
    t = np.mean(apart) / (np.std(apart, ddof=1) / np.sqrt(len(apart)))
    return 2 * stats.t.sf(abs(t), len(apart) - 1)


def test_a_cell_by_hand():
    found = row(drawn(), "good", "dir0.1")
    assert found["difference"] == pytest.approx(10 / 3, abs=1e-4)
    assert found["p"] == pytest.approx(t_test(PAIRS["dir0.1"]))
    half = stats.t.ppf(0.975, 2) * np.std(PAIRS["dir0.1"], ddof=1) / np.sqrt(3)
    assert [found["low"], found["high"]] == pytest.approx([10 / 3 - half, 10 / 3 + half], abs=1e-3)
    assert found[["pairs", "test"]].tolist() == [3, "paired t-test over seeds"]


def test_over_cells_by_hand():
    found = row(drawn(), "good", None)
    assert found["difference"] == pytest.approx(np.mean([10 / 3, 7 / 3, 1]), abs=1e-4)
    assert found["p"] == 2 / 2**3  # three of one sign: two of eight signings are as extreme
    assert found[["pairs", "test"]].tolist() == [3, "signed-rank test over cells"]


def test_each_kind_of_test_is_corrected_apart():
    table = drawn()
    of_cells = table["test"] == significance.T_TEST
    for rows in (table[of_cells], table[~of_cells]):
        least = min(rows["p"].min() * rows["p"].count(), 1)
        assert rows["p_holm"].dropna().min() == pytest.approx(least)


def test_one_pair_and_equal_differences_have_no_p():
    table = drawn(without("dir0.1", 1, 2))
    single, equal = (row(table, "good", name) for name in ("dir0.1", "iid"))
    assert (single["pairs"], single["difference"]) == (1, 3)
    for found in (single, equal):
        assert found[["low", "high", "p", "p_holm"]].isna().all()
    assert "cannot be had" in significance.caption(table)


def test_runs_without_any_difference_do_not_differ():
    found = row(drawn(), "even", "dir0.1")
    assert found[["difference", "low", "high", "p"]].tolist() == [0, 0, 0, 1]


def test_a_run_that_diverged_leaves_no_difference():
    lost = CELLS | {"iid": CELLS["iid"] | {"good": [81, None, 81]}}
    for partition in ("iid", None):
        assert row(drawn(lost), "good", partition)[["difference", "p"]].isna().all()
    assert "diverged in a comparison of good." in significance.caption(drawn(lost))
    assert "diverged" not in significance.caption(drawn())


def test_runs_that_all_diverged_can_be_drawn():
    table = drawn({"iid": {"fedavg": [None, None], "good": [None, None]}})
    plotted(significance, table)
    assert row(table, "good", "iid")[["difference", "low", "high", "p"]].isna().all()


def test_pairs_that_are_many_are_beside_each_other_on_one_page():
    many = {f"m{at}": [50 + at, 52, 51] for at in range(40)}
    table = drawn({name: {"fedavg": [50, 52, 50]} | many for name in CELLS})
    figure = plotted(significance, table)
    assert figure.get_figheight() < 9.5  # inches
    assert [len(axes.get_yticklabels()) for axes in figure.axes] == [20, 20]


def test_one_cell_has_no_test_over_cells():
    table = drawn({"dir0.1": CELLS["dir0.1"]})
    assert [*table["test"].unique()] == [significance.T_TEST]
    assert "over cells" not in significance.caption(table)


def test_without_a_baseline_all_pairs_are_compared():
    table = drawn(baseline=None)
    pairs = {*zip(table["method"], table["over"], strict=True)}
    assert pairs == {("good", "fedavg"), ("even", "fedavg"), ("even", "good")}
    assert significance.wide(table).index.names == ["method", "over"]
    apart = row(table[table["over"] == "good"], "even", "dir0.1")["difference"]
    assert apart == pytest.approx(-10 / 3, abs=1e-4)


def test_what_has_nothing_to_compare_and_what_is_no_method():
    with pytest.raises(NothingToDrawError):
        drawn({"dir0.1": {"fedavg": [50, 51]}})
    with pytest.raises(UsageError, match="fedavg"):
        drawn(baseline="fedavgg")
