"""Tests of differences between methods over seeds: `fedgrid.analysis.inference`, by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedgrid.analysis import inference

SCORES = pd.DataFrame(np.random.default_rng(3).normal(size=(4, 5)), columns=[*"abcde"])


def fit(scores: pd.DataFrame, method: str, over: str) -> float:
    """The p of a difference by least squares with an indicator of each method and each seed."""
    long = scores.stack()
    seeds, methods = (long.index.get_level_values(level) for level in (0, 1))
    others = [name for name in scores if name != over]
    columns = [methods == name for name in others] + [seeds == seed for seed in scores.index]
    design = np.stack(columns, axis=1).astype(float)
    found, residual, rank, _ = np.linalg.lstsq(design, long.to_numpy(), rcond=None)
    covariance = residual[0] / (len(long) - rank) * np.linalg.inv(design.T @ design)
    at = others.index(method)
    t = found[at] / np.sqrt(covariance[at, at])
    return 2 * stats.t.sf(abs(t), len(long) - rank)


def test_the_two_way_model_is_that_of_least_squares():
    found = inference.compare_in_blocks(SCORES, "b")
    assert [*found.index] == [*"acde"]
    assert found.tolist() == pytest.approx([fit(SCORES, name, "b") for name in "acde"])


def test_two_methods_have_the_p_of_the_paired_t_test():
    found = inference.compare_in_blocks(SCORES[["a", "b"]], "b")
    assert found["a"] == pytest.approx(stats.ttest_rel(SCORES["a"], SCORES["b"]).pvalue)


def test_a_method_with_a_run_that_diverged_is_in_no_model():
    lost = SCORES.assign(c=[1, np.nan, 1, 1], d=[1, np.inf, 1, 1])
    without = inference.compare_in_blocks(SCORES[["a", "b", "e"]], "b")
    pd.testing.assert_series_equal(inference.compare_in_blocks(lost, "b"), without)


@pytest.mark.parametrize(
    ("scores", "over"),
    [
        (SCORES.iloc[:1], "b"),
        (SCORES[["b"]], "b"),
        (SCORES[["a"]], "b"),
        (SCORES.assign(b=np.nan), "b"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [1.1, 2.1]}), "b"),
    ],
    ids=["one seed", "one method", "not there", "diverged", "no rests"],
)
def test_what_has_no_deviation_has_no_p(scores, over):
    assert inference.compare_in_blocks(scores, over).empty


def test_noise_is_found_as_often_as_the_level_says():
    """Of 400 cells with 10 equal methods and 3 seeds, with seeds that differ more than methods."""
    random, found, corrected = np.random.default_rng(0), [], 0
    for _ in range(400):
        noise = random.normal(size=(3, 10)) + 5 * random.normal(size=(3, 1))
        p = inference.compare_in_blocks(pd.DataFrame(noise), 0)
        found += [*p]
        corrected += (inference.correct_by_holm(p) < 0.05).any()
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=0.01)
    assert corrected / 400 < 0.06


def test_holm_by_hand():
    assert inference.correct_by_holm(pd.Series([0.04, 0.01, np.nan, 0.03])).tolist() == (
        pytest.approx([0.06, 0.03, np.nan, 0.06], nan_ok=True)
    )
    assert inference.correct_by_holm(pd.Series([0.7, 0.8])).tolist() == [1, 1]
