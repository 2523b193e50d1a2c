"""Which class is taken for which: `fedgrid.report.confusion`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis import figures
from fedgrid.report import confusion
from fedgrid.runtime.names import UsageError

FIRST = [[6, 2], [1, 3]]  # images of a class by row, taken for a class by column
SECOND = [[4, 4], [0, 4]]
EARLY = [[0, 8], [0, 4]]


def counted(matrix: list[list[int]], round: int = 10, beginning: str = "of_class_", **names):
    """An evaluation of a run as it is collected: a row per class that is predicted."""
    columns = {f"{beginning}{label}": counts for label, counts in enumerate(matrix)}
    table = pd.DataFrame({"round": round, "class": range(len(matrix))} | columns)
    said = np.sum(matrix, axis=0)
    return table.assign(predicted=said, **(made.NAMES | made.SUMMED | names))


def drawn(*evaluations: pd.DataFrame, **options) -> pd.DataFrame:
    return confusion.draw(pd.concat(evaluations), made.STUDY, "quick", **options)


def matrix(table: pd.DataFrame, value: str = "mean") -> np.ndarray:
    return table.pivot(index="class", columns="taken_for", values=value).to_numpy()


def test_shares_of_the_last_round_by_hand():
    table = drawn(counted(EARLY, round=5), counted(FIRST), counted(SECOND, seed=1))
    expected = [[(75 + 50) / 2, (25 + 50) / 2], [(25 + 0) / 2, (75 + 100) / 2]]
    assert matrix(table) == pytest.approx(np.array(expected))
    apart = 25 / np.sqrt(2)
    assert matrix(table, "std") == pytest.approx(np.full((2, 2), apart), abs=1e-4)
    assert table["seeds"].unique().tolist() == [2]


def test_the_first_class_is_at_the_top():
    figure = confusion.plot(drawn(counted(FIRST)), made.STUDY)
    assert figure.axes[0].yaxis_inverted()


def test_datasets_may_have_other_classes():
    names = pd.Series(["cat", "dog"])
    third = counted([[1, 0, 0], [0, 1, 1], [0, 0, 1]], dataset="three")
    table = drawn(counted(FIRST, class_name=names), third)
    assert table.groupby("dataset")["class"].nunique().to_dict() == {"cifar10": 2, "three": 3}
    assert matrix(table[table["dataset"] == "three"])[1].tolist() == [0, 50, 50]
    assert [*confusion.wide(table)] == [0, 1, "2"]


def test_own_models_have_their_own_columns():
    own = counted(FIRST, beginning="own_of_class_", method="fedper")
    assert matrix(drawn(own, model="own")) == pytest.approx(np.array([[75, 25], [25, 75]]))
    with pytest.raises(UsageError, match="model: own"):
        drawn(own)
    with pytest.raises(UsageError, match="value of `model`"):
        drawn(own, model="client")


def test_a_run_that_ended_early_and_a_class_without_images_have_no_numbers():
    lost = drawn(counted(FIRST), counted(FIRST, seed=1, round=5), counted(FIRST, method="moon"))
    assert np.isnan(matrix(lost[lost["method"] == "fedavg"])).all()
    assert not np.isnan(matrix(lost[lost["method"] == "moon"])).any()
    assert "diverged" in confusion.caption(lost)
    empty = drawn(counted([[3, 1], [0, 0]]))
    assert np.isnan(matrix(empty)).tolist() == [[False, False], [True, True]]
    assert "diverged" not in confusion.caption(drawn(counted(FIRST)))


def test_runs_that_did_not_count_it_are_refused():
    plain = counted(FIRST).drop(columns=["of_class_0", "of_class_1"])
    with pytest.raises(UsageError, match=r"metrics: \[confusion\]"):
        drawn(plain)


def test_the_matrix_of_one_method_fills_the_width():
    with figures.use_style():
        figure = confusion.plot(drawn(counted(FIRST)), made.STUDY)
        figures.prepare(figure)
        figure.draw_without_rendering()
    assert figure.axes[0].get_window_extent().width > 0.7 * figure.bbox.width
