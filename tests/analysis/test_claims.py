"""Differences, intervals and verdicts by hand, and the paper's own evidence."""

import copy
from math import inf, isnan, sqrt

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import made
from fedgrid.analysis import measures, verdicts
from fedgrid.analysis.scores import WAYS
from fedgrid.analysis.verdicts import FAILS, HOLDS, UNDECIDED, compare_claim
from fedgrid.claim import OF_KIND, OF_RUNS, needs_experiments, needs_kind, needs_runs
from fedgrid.experiments.fidelity import setting
from fedgrid.report import claims as product
from fedgrid.report import contrasts
from fedgrid.runtime.names import UsageError, listed
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.study import options, stated
from made import STUDY
from written import DOCS

NONE = made.fidelity_scores().query("encoder == 'area'")  # of maps that no claim is about
T2 = 4.302653  # Student's quantile 0.975 with 2 degrees of freedom
_, accuracies = measures.MEASURES["accuracy"]


def values(numbers: dict[str, list[float]], **names) -> pd.DataFrame:
    """Measured values by method, one per seed."""
    about = {"measure": "accuracy", "protocol": "p", "dataset": "d", "partition": "dir0.1"} | names
    rows = [
        about | {"method": method, "seed": seed, "value": value}
        for method, all_seeds in numbers.items()
        for seed, value in enumerate(all_seeds)
    ]
    return pd.DataFrame(rows)


def above(least: float = 0, **more) -> dict:
    """A claim that a is above b by at least so much."""
    said = {"says": "a is better", "section": "1"}
    return said | {"method": "a", "over": "b", "least": least} | more


def judged(sample: list[float], bounds: tuple = (0, inf), comparisons: int = 1) -> dict:
    levels = verdicts.correct_levels(comparisons)
    return verdicts.judge_sample(np.array(sample, float), bounds, levels, UNDECIDED)


def quantile(n: int) -> float:
    return float(stats.t.ppf(0.975, n - 1))


# --- boxes -----------------------------------------------------------------------------------


def test_what_is_measured_of_a_box_by_hand():
    # the quartiles are 1, 2 and 3, so whiskers reach from -2 to 6
    found = measures.describe_values([-8.0, -4, 1, 1, 1, 2, 2, 2, 3, 3, 3, 9])
    assert (found["median"], found["box"], found["whiskers"]) == (2, 2, 3 - 1)
    assert (found["outliers"], found["spread of outliers"]) == (25, 9 - -8)
    assert found["low outliers"] == pytest.approx(100 * 2 / 3)
    found = measures.describe_values([1, 2, 3])
    assert (found["outliers"], found["spread of outliers"]) == (0, 0)
    assert isnan(found["low outliers"])


# --- intervals -------------------------------------------------------------------------------


def test_students_interval_by_hand():
    # 0, 2: mean 1, deviation sqrt(2), so that half the interval is the quantile itself
    found = verdicts.confidence_interval(np.array([0.0, 2]))
    assert found == pytest.approx((1 - 12.7062, 1 + 12.7062))
    # 1, 2, 6: mean 3, deviation sqrt((4 + 1 + 9) / 2)
    # with 2 degrees of freedom the quantile p is (2p - 1) / sqrt(2p (1 - p))
    for level, p in ((0.05, 0.975), (0.01, 0.995)):
        half = sqrt(7) / sqrt(3) * (2 * p - 1) / sqrt(2 * p * (1 - p))
        found = verdicts.confidence_interval(np.array([1.0, 2, 6]), level)
        assert found == pytest.approx((3 - half, 3 + half))


def test_one_seed_decides_nothing():
    found = judged([5.0])
    assert (found["low"], found["high"], found["p"]) == (-inf, inf, 1)
    assert (found["verdict"], found["seeds"]) == (UNDECIDED, 1)
    assert isnan(found["seeds_needed"])


def test_p_is_that_of_the_paired_t_test():
    # t = 3 / sqrt(7 / 3) with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2)
    t = 3 / sqrt(7 / 3)
    assert verdicts.p_value(np.array([1.0, 2, 6]), 0) == pytest.approx(1 - t / sqrt(t * t + 2))
    assert verdicts.p_value(np.array([1.0, 2, 6]), 3) == 1


@pytest.mark.parametrize(
    ("sample", "verdict", "p"),
    [([2, 2, 2], HOLDS, 0), ([-2, -2, -2], FAILS, 0), ([0, 0, 0], UNDECIDED, 1)],
)
def test_without_deviation_the_difference_itself_decides(sample, verdict, p):
    found = judged(sample)
    assert found["low"] == found["high"] == found["difference"] == sample[0]
    assert (found["verdict"], found["p"]) == (verdict, p)


# --- seeds that would decide -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "bounds"),
    [
        ([1, 2, 6], (0, inf)),
        ([1, 2, 6], (-inf, 4)),
        ([0.9, 1.3, -0.4, 0.2], (-1, 1)),
        ([0.1, -0.1], (-1, 1)),
    ],
)
def test_the_seeds_needed_are_the_fewest_whose_interval_reaches_no_bound(sample, bounds):
    sample = np.array(sample, float)
    n = int(verdicts.seeds_needed(sample, bounds))
    room = min(abs(sample.mean() - bound) for bound in bounds)
    assert quantile(n) * sample.std(ddof=1) / sqrt(n) < room
    assert quantile(n - 1) * sample.std(ddof=1) / sqrt(n - 1) >= room


def test_seeds_needed_by_hand():
    # 1, 2, 6 against 0: 2.7764 sqrt(7 / 5) = 3.29 for five seeds, 2.5706 sqrt(7 / 6) = 2.78 for six
    assert judged([1, 2, 6])["seeds_needed"] == 6
    assert judged([1, 2, 6], (3, inf))["seeds_needed"] == inf  # the mean is the bound
    assert judged([1000, 0, -999])["seeds_needed"] == inf  # more than anybody will run


# --- verdicts of one comparison --------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "verdict"),
    [
        ([0.1, 0, -0.1], HOLDS),
        ([4.9, 5, 5.1], FAILS),
        ([-4.9, -5, -5.1], FAILS),
        ([0.9, 1, 1.1], UNDECIDED),
        ([-0.9, -1, -1.1], UNDECIDED),
        ([0.5, 0.9, -0.5], UNDECIDED),
        ([0.5, 0, -0.5], UNDECIDED),  # half the interval is 1.24
    ],
)
def test_a_difference_must_be_between_both_bounds(sample, verdict):
    assert judged(sample, (-1, 1))["verdict"] == verdict


def test_a_claim_may_have_the_upper_bound_alone():
    lower = {"method": "a", "over": "b", "most": 0}
    assert said(lower, a=[1, 1.1, 0.9], b=[2, 2, 2]) == HOLDS
    assert said(lower, a=[3, 3.1, 2.9], b=[2, 2, 2]) == FAILS


def test_only_does_not_hold_is_corrected_for_the_number_of_comparisons():
    # deviation 0.3: half the interval is 0.745 at 0.05; at 0.05 / 2, 2.0.. * 0.3 / sqrt(3) = 1.07
    bad, good = [-1, -1.3, -0.7], [1, 1.3, 0.7]
    assert judged(bad, comparisons=1)["verdict"] == FAILS
    assert judged(bad, comparisons=2)["verdict"] == UNDECIDED
    assert judged(good, comparisons=100)["verdict"] == HOLDS
    for comparisons in (1, 100):  # the interval that is shown is the plain one
        found = judged(bad, comparisons=comparisons)
        assert found["high"] == pytest.approx(-1 + T2 * 0.3 / sqrt(3))


def test_levels_are_those_of_a_partial_conjunction():
    level = verdicts.LEVEL
    assert verdicts.correct_levels(1) == (level, level)
    # all must hold, and one failure is enough
    assert verdicts.correct_levels(10) == (level, level / 10)
    # more than half of 10 are 6: 5 may fail by chance, and 5 failures are needed
    assert verdicts.correct_levels(10, 0.5) == (level / 5, level / 6)
    assert verdicts.correct_levels(6, 0.8) == (level / 2, level / 5)


def test_a_claim_about_most_comparisons_needs_clearer_ones():
    """With deviation 0.3, half the interval is 0.745 at 0.05, and 1.07 at 0.05 / 2."""
    every, most = above(over=["b", "c"]), above(over=["b", "c"], share=0.4)  # one of two
    nothing = {"b": [0, 0, 0], "c": [0, 0, 0]}
    assert said(every, a=[1, 1.3, 0.7], **nothing) == HOLDS
    assert said(most, a=[1, 1.3, 0.7], **nothing) == UNDECIDED
    assert said(most, a=[2, 2.3, 1.7], **nothing) == HOLDS
    # It does not hold if both fail, which chance does not do to one of them alone.
    assert said(most, a=[-1, -1.3, -0.7], **nothing) == FAILS
    assert said(every, a=[-1, -1.3, -0.7], **nothing) == UNDECIDED


def chosen(share: float | None = None, **numbers: list) -> str:
    """The other method of the comparison that decides a claim on `a`, whose value is 0."""
    table = values({"a": [0, 0, 0], **numbers})
    found = compare_claim(above(over=[*numbers], share=share), table)
    return verdicts.find_deciding(found, verdicts.combine_verdicts(found, share))["over"]


def test_the_clearest_failure_decides():
    near, clear = [1, 1.2, 0.8], [1, 1.02, 0.98]
    assert chosen(near=near, clear=clear, held=[-9, -9.1, -9.2]) == "clear"


def test_without_a_failure_the_least_decided_comparison_decides():
    far, near, held = [0.1, -9, 5], [-1, -4, 0.5], [-9, -9.1, -9.2]
    assert chosen(near=near, far=far, held=held) == "far"
    assert chosen(near=near, far=far, held=held, one=[-9]) == "one"  # one pair decides nothing


def test_a_comparison_with_diverged_runs_decides_only_if_there_is_no_other():
    lost, clear, far = [-np.inf] * 3, [1, 1.02, 0.98], [0.1, -9, 5]
    won = [np.inf] * 3  # if `over` is at infinity, `a` has lost to it in every seed
    assert chosen(won=won, clear=clear) == "clear"
    assert chosen(won=won, far=far) == "won"  # a failure goes before what is undecided
    some = [-np.inf, 1, 1]
    assert chosen(some=some, far=far) == "far"
    assert chosen(some=some, held=[-9, -9.1, -9.2]) == "some"
    assert chosen(lost=lost, held=[-9, -9.1, -9.2]) == "lost"  # of a baseline that diverged


def test_the_weakest_of_those_that_hold_decides():
    assert chosen(clear=[-9, -9.1, -9.2], weak=[-1, -1.3, -0.7]) == "weak"


def test_what_decides_a_claim_about_most_comparisons_has_the_verdict_of_the_claim():
    lost, won = [1, 1.02, 0.98], [-1, -1.02, -0.98]
    far, weak = [0.1, -9, 5], [-1, -1.1, -0.9]
    assert chosen(0.4, lost=lost, far=far, won=won, weak=weak) == "weak"  # two of four hold
    assert chosen(0.6, lost=lost, far=far, won=won, weak=weak) == "far"  # three would have to
    assert chosen(0.8, lost=lost, far=far, won=won, weak=weak) == "lost"  # all would have to
    assert chosen(0.6, lost=lost, won=won) == "lost"


# --- finer words -----------------------------------------------------------------------------


def said(claim: dict, **numbers: list) -> str:
    found = compare_claim(claim, values(numbers))
    return verdicts.combine_verdicts(found, claim.get("share"))


def test_a_sentence_that_rounds_its_numbers_allows_for_it():
    two_to_seven = above(2, most=7, rounding=1)
    zero = [0, 0, 0]
    assert said(two_to_seven, a=[1.6, 1.61, 1.59], b=zero) == HOLDS
    assert said(two_to_seven, a=[7.4, 7.41, 7.39], b=zero) == HOLDS
    assert said(two_to_seven, a=[7.6, 7.61, 7.59], b=zero) == verdicts.LARGER
    by_bound = above(2, most=20, rounding={"most": 10})
    assert said(by_bound, a=[24, 24.1, 23.9], b=zero) == HOLDS
    assert said(by_bound, a=[1.6, 1.61, 1.59], b=zero) == verdicts.SMALLER


@pytest.mark.parametrize(
    ("sample", "verdict"),
    [
        ([17.5, 17.6, 17.4], HOLDS),
        ([5, 5.1, 4.9], verdicts.SMALLER),
        ([0.1, -0.1, 0.0], FAILS),
        ([-5, -5.1, -4.9], FAILS),
    ],
)
def test_a_gain_of_another_size_has_the_right_direction(sample, verdict):
    assert said(above(17), a=sample, b=[0, 0, 0]) == verdict
    loss = {"method": "a", "over": "b", "most": -17}
    assert said(loss, a=[-value for value in sample], b=[0, 0, 0]) == verdict


def test_without_a_size_nothing_has_the_right_direction():
    for claim in (above(-1, most=1), above(0), {"method": "a", "least": 0.7, "most": 0.9}):
        assert said(claim, a=[-5, -5.1, -4.9], b=[0, 0, 0]) == FAILS
    assert said({"method": "a", "least": 0.7}, a=[0.2, 0.21, 0.19]) == FAILS


def test_one_wrong_direction_is_enough_against_a_size():
    numbers = {"a": [5, 5.1, 4.9], "b": [0, 0, 0], "c": [9, 9, 9]}  # smaller, and below
    assert said(above(17, over=["b", "c"]), **numbers) == FAILS


def test_what_cannot_differ_is_equal_by_design_unless_it_differs():
    equal = above(method=["a", "c"], equal={"a": "it is b"}, tie=FAILS)
    numbers = {"b": [1, 2, 3], "c": [5, 6.1, 7]}
    assert said(equal, a=[1, 2, 3], **numbers) == verdicts.EQUAL
    assert said(equal, a=[5, 6, 7.1], **numbers) == HOLDS
    assert said(equal, a=[1, 2, 3], b=[1, 2, 3], c=[-9, -8.1, -7]) == FAILS
    undeclared = above(method=["a", "c"], tie=FAILS)
    assert said(undeclared, a=[1, 2, 3], **numbers) == FAILS


@pytest.mark.parametrize("claim", [above(), {"method": "a", "over": "b", "most": 0}])
def test_a_baseline_that_diverged_is_no_win(claim):
    assert said(claim, a=[1, 2, 3], b=[-np.inf] * 3) == UNDECIDED


def printed_as(gaps: list[float], claim: dict) -> str:
    """The verdict by printed numbers, if the means of a are above those of b by `gaps`."""
    table = pd.concat(
        values({"a": [10 + gap], "b": [10]}, partition=f"dir0.{at}") for at, gap in enumerate(gaps)
    )
    return verdicts.judge_printed(claim, table, STUDY)["published_verdict"]


def test_a_paper_that_misses_its_sentence_in_a_tenth_misses_it_narrowly():
    assert printed_as([1] * 10, above()) == verdicts.CONSISTENT
    assert printed_as([1] * 9 + [-1], above()) == verdicts.NARROWLY
    assert printed_as([1] * 8 + [-1] * 2, above()) == verdicts.CONTRADICTED
    assert printed_as([1] * 8 + [-1] * 2, above(share=0.7)) == verdicts.CONSISTENT
    assert printed_as([1.9, 7.3], above(2, most=7)) == verdicts.CONTRADICTED
    assert printed_as([1.9, 7.3], above(2, most=7, rounding=1)) == verdicts.CONSISTENT
    assert printed_as([2.5 + 1e-12], above(0, most=2, rounding=1)) == verdicts.CONSISTENT


# --- differences -----------------------------------------------------------------------------


def test_differences_are_of_the_same_seed():
    # by seeds 10 - 1, 20 - 2, 60 - 3; were they not paired, the deviation would be another
    table = values({"a": [10, 20, 60], "b": [1, 2, 3], "c": [0, 0, 0]})
    found = verdicts.compute_differences(above(), table.sample(frac=1, random_state=1))
    assert found.set_index("seed")["value"].to_dict() == {0: 9, 1: 18, 2: 57}


def test_a_seed_that_only_one_method_has_is_left_out():
    found = compare_claim(above(), values({"a": [3, 4, 5, 99], "b": [1, 2, 3]}))
    assert found[["difference", "seeds"]].values.tolist() == [[2, 3]]


def test_settings_are_compared_apart_and_may_be_chosen():
    everything = pd.concat([
        values({"a": [3, 3], "b": [1, 1]}, dataset="d", partition="dir0.1"),
        values({"a": [5, 5], "b": [1, 1]}, dataset="e", partition="dir0.1"),
        values({"a": [9, 9], "b": [1, 1]}, dataset="e", partition="dir0.5"),
        values({"a": [7, 7], "b": [1, 1]}, dataset="e", partition="dir0.5", protocol="q"),
        values({"a": [8, 8], "b": [1, 1]}, measure="ssim mean"),
    ])  # fmt: skip

    def found(**claim):
        return sorted(compare_claim(above(**claim), everything)["difference"])

    assert found() == [2, 4, 6, 8]
    assert found(dataset="e") == [4, 6, 8]
    assert found(partition=["dir0.1"]) == [2, 4]
    assert found(dataset=["e"], partition="dir0.1") == [4]
    assert found(protocol="q") == [6]
    assert found(measure="ssim mean") == [7]
    assert found(measure=["ssim mean", "accuracy"], partition="dir0.1") == [2, 4, 7]


@pytest.mark.parametrize(
    ("over", "pairs"),
    [
        (["c", "d"], {("a", "c"): -3, ("a", "d"): -7, ("b", "c"): -2, ("b", "d"): -6}),
        ({"a": "c", "b": ["c", "d"]}, {("a", "c"): -3, ("b", "c"): -2, ("b", "d"): -6}),
    ],
)
def test_every_method_is_compared_with_every_other_or_with_its_own_others_only(over, pairs):
    numbers = values({"a": [1, 1], "b": [2, 2], "c": [4, 4], "d": [8, 8]})
    found = compare_claim(above(method=["a", "b"], over=over), numbers)
    assert found.set_index(["method", "over"])["difference"].to_dict() == pairs


ALONG = ["dir0.5", "dir0.1", "dir0.05"]


def grown(*along: str) -> dict[tuple[str, int], float]:
    """By partition a is above b by 1, 4 and 9, and by 2, 3 and 4 in the other seed."""
    table = pd.concat(
        values({"a": [10 + one, 20 + other], "b": [10, 20]}, partition=partition)
        for partition, one, other in zip(reversed(ALONG), (9, 4, 1), (4, 3, 2), strict=True)
    )
    found = verdicts.compute_differences(above(along={"partition": [*along]}), table)
    return found.set_index(["partition", "seed"])["value"].to_dict()


def test_growth_is_taken_seed_by_seed_from_one_partition_to_the_next():
    first, second, back = "dir0.5 to dir0.1", "dir0.1 to dir0.05", "dir0.05 to dir0.5"
    assert grown(*ALONG) == {(first, 0): 3, (first, 1): 1, (second, 0): 5, (second, 1): 1}
    assert grown("dir0.05", "dir0.5") == {(back, 0): -8, (back, 1): -2}


def test_growth_steps_over_partitions_that_are_not_there():
    found = grown("shards2", "dir0.5", "dir0.3", "dir0.05")
    assert {step for step, _ in found} == {"dir0.5 to dir0.05"}


@pytest.mark.parametrize("axis", ["protocol", "method"])
def test_growth_along_protocols_or_methods(axis):
    numbers = {"one": [10, 20], "two": [13, 21], "three": [18, 22]}
    tables = [values({"a": of}, protocol=name) for name, of in numbers.items()]
    table = pd.concat(tables) if axis == "protocol" else values(numbers)
    along = ["one", "nobody", "two", "three"]
    claim = {"method": "a" if axis == "protocol" else along, "along": {axis: along}, "least": 0}
    found = verdicts.compute_differences(claim, table).set_index([axis, "seed"])["value"].to_dict()
    first, second = "one to two", "two to three"
    assert found == {(first, 0): 3, (first, 1): 1, (second, 0): 5, (second, 1): 1}


def test_a_method_alone_may_grow():
    claim = {"method": "a", "along": {"partition": ["dir0.5", "dir0.1"]}, "least": -1, "most": 1}
    table = pd.concat([
        values({"a": [5, 6, 7], "b": [0, 0, 0]}, partition="dir0.5"),
        values({"a": [5.1, 6, 7.1], "b": [9, 9, 9]}, partition="dir0.1"),
    ])  # fmt: skip
    (found,) = compare_claim(claim, table).to_dict("records")
    assert (found["over"], found["verdict"]) == ("", HOLDS)
    assert found["difference"] == pytest.approx(0.2 / 3)


# --- verdicts of a claim ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "share", "verdict"),
    [
        # all must hold, and one that does not is enough
        ((3, 0, 0), None, HOLDS),
        ((2, 0, 1), None, UNDECIDED),
        ((2, 1, 0), None, FAILS),
        ((0, 1, 5), None, FAILS),
        ((0, 0, 3), None, UNDECIDED),
        ((0, 0, 0), None, UNDECIDED),
        # more than a half of them must hold
        ((3, 1, 0), 0.5, HOLDS),
        ((2, 1, 1), 0.5, UNDECIDED),  # half is not more than half
        ((2, 2, 0), 0.5, FAILS),  # and cannot become more
        ((0, 2, 2), 0.5, FAILS),
        ((0, 1, 3), 0.5, UNDECIDED),
        ((2, 1, 0), 0.5, HOLDS),
        ((0, 0, 0), 0.5, UNDECIDED),
    ],
)
def test_as_many_comparisons_must_hold_as_the_claim_says(counts, share, verdict):
    words = np.repeat([HOLDS, FAILS, UNDECIDED], counts)
    found = pd.DataFrame({"verdict": words}, dtype=object)
    assert verdicts.combine_verdicts(found, share) == verdict


# --- runs that diverged ----------------------------------------------------------------------


def test_a_run_that_diverged_leaves_its_comparison_and_the_claim_undecided():
    runs = made.runs({"a": [60, 61, None, 62], "b": [50, 50, 50, 50], "c": [40, 40, 40, 40]})
    found = compare_claim(above(over=["b", "c"]), accuracies(runs))
    assert found["verdict"].tolist() == [UNDECIDED] * 2
    assert found["seeds"].tolist() == [4, 4]
    assert found["difference"].isna().all()
    other = compare_claim(above(method="b", over="c"), accuracies(runs))
    assert other["verdict"].tolist() == [HOLDS]
    (row,) = drawn(runs, above()).to_dict("records")
    assert (row["verdict"], row["ours"]) == (UNDECIDED, "1 of 1 is undecided")


def test_a_method_that_always_diverged_is_worse_but_none_is_better_for_it():
    runs = made.runs({"a": [60, 61, 62], "b": [None] * 3, "c": [None] * 3})
    measured = accuracies(runs)
    beaten, beats, both = (
        compare_claim(above(method=one, over=other), measured).iloc[0]
        for one, other in (("a", "b"), ("b", "a"), ("b", "c"))
    )
    assert (beaten["verdict"], beaten["difference"], beaten["p"]) == (UNDECIDED, inf, 0)
    assert (beats["verdict"], beats["difference"], beats["p"]) == (FAILS, -inf, 0)
    assert (both["verdict"], isnan(both["difference"])) == (UNDECIDED, True)
    one_seed = compare_claim(above(), measured[measured["seed"] == 0]).iloc[0]
    assert one_seed["verdict"] == UNDECIDED


def test_a_gain_over_what_diverged_cannot_grow():
    growing = above(along={"partition": ["dir0.5", "dir0.1"]})
    parts = [made.runs({"a": [60, 61], "b": [None] * 2}).assign(partition="dir0.5")]
    parts += [made.runs({"a": [50, 51], "b": [10, 11]}).assign(partition="dir0.1")]
    found = compare_claim(growing, accuracies(pd.concat(parts)))
    assert found["verdict"].tolist() == [UNDECIDED]


def test_early_accuracies_are_means_of_the_first_quarter_without_round_0():
    by_round = {0: 0.1, 1: 0.2, 2: 0.4, 3: 0.9, 10: 0.9}  # of 10 rounds, 1 and 2
    runs = pd.concat([made.evaluations(by_round), made.lost(seed=1)])
    found = measure("early accuracy", runs)
    assert found == {("fedavg", 0): pytest.approx(30), ("fedavg", 1): -inf}


def with_columns(**columns: list[float]) -> pd.DataFrame:
    """Two runs of `a` with these values in their tail, by seed, and one of `b` that diverged."""
    runs = [
        made.run(50, "a", seed).assign(**{name: of[seed] for name, of in columns.items()})
        for seed in range(2)
    ]
    return pd.concat([*runs, made.lost("b").assign(**dict.fromkeys(columns, 0.5))])


def measure(name: str, runs: pd.DataFrame | None = None, **sources) -> dict:
    sources = {"runs": runs} | sources
    found = measures.measure_all({"claims": [above(measure=name)]}, sources)
    found = found[found["measure"] == name]
    return found.set_index(["method", "seed"])["value"].to_dict()


def test_personal_accuracies_are_of_the_mean_over_clients_of_their_own_models():
    runs = with_columns(own_mean=[0.7, 0.8])
    found = measure("personal accuracy", runs.assign(accuracy=np.nan))
    assert found == {("a", 0): 70, ("a", 1): 80, ("b", 0): -inf}


def test_a_coefficient_or_the_difference_of_two_is_a_measure():
    runs = with_columns(own_mean=[0.7, 0.8], alpha_0=[2.0, 3.0], alpha_1=[-1.0, 0.5])
    found = measure("coefficient alpha_0", runs)
    assert [found["a", 0], found["a", 1]] == [2, 3]
    assert isnan(found["b", 0])
    found = measure("coefficient alpha_0 - alpha_1", runs)
    assert [found["a", 0], found["a", 1]] == [3, 2.5]
    assert measure("coefficient alpha_0 - alpha_9", runs) == {}


def test_runs_without_clients_tests_have_no_personal_accuracies():
    assert measure("personal accuracy", made.run(50)) == {}
    assert measure("coefficient alpha_0", made.run(50)) == {}


def points(means: dict[tuple[float, float], float], **names) -> pd.DataFrame:
    """The accuracies of a run by alpha and beta, as they are collected."""
    rows = [{"alpha": alpha, "beta": beta, "mean": mean} for (alpha, beta), mean in means.items()]
    return pd.DataFrame(rows).assign(evaluate_clients="cohort", **(made.NAMES | names))


def test_the_best_alpha_and_beta_are_those_of_the_highest_mean():
    one = points({(0, 0): 0.5, (0.2, 0.6): 0.7, (1, 1): 0.6})
    two = points({(0, 0): 0.4, (0.2, 0.6): 0.9, (1, 0.8): 0.9}, seed=1)  # two are the best
    table = pd.concat([one, two])
    found = measure("best alpha", interpolation=table)
    assert found == {("fedavg", 0): 0.2, ("fedavg", 1): 0.6}
    found = measure("best beta", interpolation=table)
    assert found == {("fedavg", 0): 0.6, ("fedavg", 1): pytest.approx(0.7)}


def test_the_best_point_is_of_clients_after_local_training_and_of_mixed_features():
    cohort, every = points({(0.8, 0.5): 0.7}), points({(0, 0): 0.9})
    whole = points({(np.nan, 0.2): 1.0})
    table = pd.concat([cohort, every.assign(evaluate_clients="all"), whole])
    assert measure("best alpha", interpolation=table) == {("fedavg", 0): 0.8}


def test_a_column_that_other_runs_lack_is_measured_without_clients_own_models():
    runs = pd.concat([made.run(50, "a").assign(similarity2=0.25), made.run(50, "b")])
    assert measure("coefficient similarity2", runs) == {("a", 0): 0.25}


def costs(**by_method: dict) -> pd.DataFrame:
    """The summaries of runs that count operations: those of FedAvg, and of others what differs."""
    base = {"flops_per_sample": 40.0, "samples_per_round": 5.0, "flops_around": 0.0}
    base |= {"flops_before": 0.0, "bytes_down": 300, "bytes_up": 100}
    rows = [base | more | {"method": method} for method, more in by_method.items()]
    return pd.DataFrame([made.NAMES | made.SUMMED | row for row in rows])


def test_costs_are_in_percent_of_a_round_of_fedavg():
    encoded = {"flops_around": 20.0, "flops_before": 500.0}
    table = costs(fedavg={}, a=encoded, b={"flops_per_sample": 20.0, "bytes_up": 140})
    given = {"costs": table, "predictions": None}
    assert measure("operations", **given) == {
        ("fedavg", 0): 100, ("a", 0): pytest.approx(110), ("b", 0): 50
    }  # fmt: skip
    assert measure("operations before", **given) == {
        ("fedavg", 0): 0, ("a", 0): 250, ("b", 0): 0
    }  # fmt: skip
    assert measure("traffic", **given)["b", 0] == pytest.approx(110)


def test_what_was_not_counted_is_no_cost():
    table = costs(fedavg={}, a={"flops_before": np.nan})
    assert measure("operations before", costs=table) == {("fedavg", 0): 0}
    assert measure("operations", costs=costs(a={})) == {}  # without FedAvg
    uncounted = costs(fedavg={}).drop(columns="flops_per_sample")
    assert measure("operations", costs=uncounted) == {}


def test_predictions_are_uneven_by_those_that_would_have_to_be_others():
    by_round = {1: [40, 0, 0, 0], 6: [10, 10, 10, 10], 8: [25, 15, 0, 0]}  # of 10 rounds
    rows = [
        {"round": number, "class": label, "predicted": count} | made.NAMES | made.SUMMED
        for number, counts in by_round.items()
        for label, count in enumerate(counts)
    ]
    found = measure("unevenness", predictions=pd.DataFrame(rows))
    assert found == {("fedavg", 0): pytest.approx((0 + 50) / 2)}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("operations", {"seconds"}),
        ("unevenness", {"predictions"}),
        (["accuracy", "traffic"], {"runs", "seconds"}),
        ("accuracy", {"runs"}),
        ("personal accuracy", {"runs"}),
        ("coefficient alpha_0 - alpha_1", {"runs"}),
        ("best alpha", {"runs", "interpolation"}),
        ("share at lemma 3.1", {"runs", "interpolation"}),
        ("ssim mean", {"experiments"}),
    ],
)
def test_a_claim_needs_the_sources_of_its_measure(name, needs):
    claim = above(measure=name)
    of_runs = {kind for kind in ("runs", *OF_KIND) if needs_kind(claim, kind)}
    found = (of_runs if needs_runs(claim) else set()) | (
        {"experiments"} if needs_experiments(claim) else set()
    )
    assert found == needs


# --- measures of maps ------------------------------------------------------------------------


def scores(encoder: str, layer: str, seed: int, ssim: list[float]) -> pd.DataFrame:
    table = pd.DataFrame({"ssim": ssim, "cosine": ssim, "euclidean": [10 * s for s in ssim]})
    return table.assign(encoder=encoder, layer=layer, seed=seed, dataset="d", image=table.index)


FOUR = [0.8, 0.1, 0.3, 0.2]  # quartiles at 0.175 and 0.425
MAPS = pd.concat([
    scores("saliency", "input", 0, FOUR),
    scores("saliency", "input", 1, [1, 1, 1, 1]),
    scores("area", "f2", 0, [0.5, 0.5, 0.5, 0.9]),
])  # fmt: skip


def similarity(measure: str, method: str) -> dict[int, float]:
    found = measures.measure_similarities(MAPS)
    found = found[(found["measure"] == measure) & (found["method"] == method)]
    assert found["seed"].is_unique
    return found.set_index("seed")["value"].to_dict()


@pytest.mark.parametrize(
    ("measure", "first"),
    [
        *(("ssim median", 0.25), ("ssim mean", 0.35), ("ssim box", 0.25)),
        *(("cosine median", 0.25), ("euclidean mean", 3.5), ("euclidean box", 2.5)),
    ],
)
def test_maps_count_with_median_mean_and_box_over_all_images(measure, first):
    second = {"box": 0, "median": 1, "mean": 1}[measure.split()[1]]
    second *= 10 if "euclidean" in measure else 1
    expected = {0: pytest.approx(first), 1: second}
    assert similarity(measure, "saliency-input") == expected


def test_a_map_without_seeds_is_the_same_for_all_seeds():
    assert similarity("ssim mean", "area-f2") == {0: pytest.approx(0.6), 1: pytest.approx(0.6)}
    claim = above(method="saliency-input", over="area-f2", measure="ssim mean")
    found = compare_claim(claim, measures.measure_similarities(MAPS))
    # 0.35 - 0.6 and 1 - 0.6
    assert found[["difference", "seeds"]].values.tolist() == [[pytest.approx(0.075), 2]]


# --- the paper's own evidence ----------------------------------------------------------------


def claim_of(words: str, study: dict = STUDY) -> dict:
    (found,) = (claim for claim in study["claims"] if words in claim["says"])
    return found


def printed(words: str, study: dict = STUDY) -> tuple[str, str]:
    found = verdicts.judge_printed(claim_of(words, study), measures.measure_printed(study), study)
    return found["published"], found["published_verdict"]


def test_the_highest_accuracies_everywhere_are_narrowly_not_those_of_two_cells():
    text, verdict = printed("highest accuracies")
    assert verdict == verdicts.NARROWLY
    # 65.43 - 69.54; the other one is 65.43 - 69.48
    assert text.startswith("94 of 96 comparisons: -4.11 (over FedSL f=4, CINIC-10, alpha=0.5) to ")


@pytest.mark.parametrize(
    ("words", "agree", "verdict"),
    [
        ("improvements of 2% to 20%", "30 of 40", verdicts.CONTRADICTED),  # rounded: 1.5 to 25
        ("Such decrease in improvements", "17 of 32", "consistent"),  # a general trend: share
        ("accuracy of FedSL drops rapidly", "24 of 24", "consistent"),
        ("FedSL can still outperform most", "57 of 60", "consistent"),  # most of them: share
        ("about 2% higher", "11 of 15", verdicts.CONTRADICTED),
        ("three heterogeneous scenarios", "3 of 12", verdicts.CONTRADICTED),
    ],
)
def test_what_the_printed_numbers_say_of_a_claim(words, agree, verdict):
    text, found = printed(words)
    assert text.startswith(f"{agree} comparison")
    assert found == verdict


@pytest.mark.parametrize("words", ["dynamic and static", "across classes", "[SSIM] of the"])
def test_a_claim_without_printed_numbers_is_not_judged_by_them(words):
    assert printed(words) == ("no numbers are printed", "")


def test_another_printed_number_is_another_verdict():
    study = copy.deepcopy(STUDY)
    rows, column = study["published"]["table1"]["rows"], 6  # cinic10 dir0.5
    assert study["published"]["table1"]["columns"][column] == ["cinic10", "dir0.5"]
    rows["fedsls"][column][0] = 69.54  # that of fedsl-f4: at least as high is enough
    text, verdict = printed("highest accuracies", study)
    assert (text[:8], verdict) == ("96 of 96", "consistent")
    rows["fedsls"][column][0] = 69.53
    assert printed("highest accuracies", study)[1] == verdicts.NARROWLY
    rows["fedsl-f2"][1][0] = 70.52  # cifar10 dir0.1, where FedSLS has 70.51
    assert printed("accuracy of FedSL drops rapidly", study)[1] == verdicts.NARROWLY


def test_the_share_counts_for_printed_numbers_too():
    half = values({"a": [1, 1], "b": [0, 2]})  # as if each seed were a comparison
    for share, said in ((0.4, verdicts.CONSISTENT), (0.5, verdicts.CONTRADICTED)):
        found = verdicts.judge_printed(above(share=share), half, STUDY)
        assert found["published_verdict"] == said


# --- the product -----------------------------------------------------------------------------


def drawn(runs: pd.DataFrame, *wanted: dict, scale: str = "quick", maps=NONE) -> pd.DataFrame:
    """The table of claims of a study that makes only these, with FedSLS's printed numbers."""
    study = STUDY | {"claims": list(wanted or STUDY["claims"])}
    return product.draw(study, scale, runs, maps)


@pytest.fixture(scope="module")
def paper() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The claims and contrasts of two seeds of the paper's grid, and maps."""
    given = made.sources("claims", "paper", seed=[0, 1]) | {"study": STUDY, "scale": "paper"}
    return product.draw(**given), contrasts.draw(**given)


def test_a_claim_is_contradicted_if_and_only_if_the_printed_numbers_say_so(paper):
    table, _ = paper
    contradicted = table["published_verdict"].isin(verdicts.AGAINST)
    expected = table["published_verdict"].where(contradicted, table["our_verdict"])
    assert table["verdict"].tolist() == expected.tolist()
    words = {HOLDS, FAILS, UNDECIDED, *verdicts.SOFTENED}
    assert set(table["our_verdict"]) <= words
    assert contradicted.sum() == 6


COMPARISONS = [96, 40, 40, 32, 12, 15, 3, 4, 60, 24, 6, 3, 3, 2, 6, 6, 3]
COMPARISONS += [5, 3, 12, 2, 2, 4, 2, 3, 4, 3, 2, 4, 2, 3, 3, 3, 2, 1, 1, 1]


def test_every_claim_has_all_its_comparisons_in_the_papers_grid(paper):
    judged, table = paper
    assert table.groupby("claim").size().tolist() == COMPARISONS
    counted = judged["ours"].str.extract(
        r"(?:of )?(\d+) (?:holds?|do(?:es)? not hold|(?:is|are) undecided)"
    )
    assert counted[0].astype(int).tolist() == COMPARISONS
    assert set(table["scale"]) == {"paper"}


def test_claims_about_maps_of_autoencoders_say_what_these_explain():
    table = product.draw(STUDY, "quick", scores=made.fidelity_scores())
    for claim, row in zip(STUDY["claims"], table.to_dict("records"), strict=True):
        names = [*listed(claim["method"]), *listed(claim.get("over"))]
        rests = any(name.startswith("autoencoder") for name in names)
        assert ("explain" in row["caution"]) == rests, claim["says"]


def test_a_claim_without_runs_says_so():
    table = drawn(made.runs({"of no claim": [50, 51]}))
    of_maps = ["measure" in claim for claim in STUDY["claims"]]
    assert set(table["ours"]) == {"no runs at this scale"}
    assert set(table["our_verdict"]) == {UNDECIDED}
    assert table["difference"].isna().all()
    assert set(table["verdict"][of_maps]) == {UNDECIDED}


def test_the_quick_scale_speaks_of_itself_only():
    runs = made.runs({"a": [50, 51], "b": [40, 41]}, dataset="digits")
    quick, paper = (drawn(runs, above(), scale=scale) for scale in ("quick", "paper"))
    assert set(quick["speaks_of"]) == {"quick scale only: digits, 10 rounds"}
    assert set(paper["speaks_of"]) == {"paper scale: digits, 10 rounds"}
    assert "quick scale only: digits" in product.caption(quick)
    assert "only" not in product.caption(paper).replace("quick scale only", "")


# --- a difference that is a bound in every seed, and comparisons without runs ----------------


@pytest.mark.parametrize(
    ("bounds", "tie", "verdict"),
    [
        ({"least": 0}, {}, UNDECIDED),
        ({"least": 0}, {"tie": FAILS}, FAILS),
        ({"most": 0}, {"tie": HOLDS}, HOLDS),
        ({"least": -1}, {"tie": FAILS}, HOLDS),
        ({"least": 1}, {"tie": HOLDS}, FAILS),
    ],
)
def test_the_claim_says_what_equality_means(bounds, tie, verdict):
    claim = {"method": "a", "over": "b"} | bounds | tie
    assert said(claim, a=[60, 61, 63], b=[60, 61, 63]) == verdict


def test_a_tie_is_only_one_in_every_seed():
    assert said(above(tie=HOLDS), a=[60, 61, 63], b=[60, 61, 62]) == UNDECIDED


def test_a_comparison_without_runs_counts_as_undecided():
    held = pd.DataFrame({"verdict": [HOLDS, HOLDS, FAILS]})
    assert verdicts.combine_verdicts(held[:2], None, missing=1) == UNDECIDED
    assert verdicts.combine_verdicts(held, None, missing=9) == FAILS
    assert verdicts.combine_verdicts(held[:2], 0.5, missing=1) == HOLDS
    assert verdicts.combine_verdicts(held[:2], 0.5, missing=2) == UNDECIDED
    assert verdicts.combine_verdicts(held[:0], None, missing=2) == UNDECIDED


def test_a_part_of_a_grid_counts_the_comparisons_that_it_lacks():
    """All that is there holds, and the claim is about more."""
    study = STUDY | {"claims": [above(over=["b", "c"])]}
    axes = {"protocol": ["p"], "dataset": ["cifar10"], "partition": ["dir0.1"], "seed": [0, 1, 2]}
    runs = made.runs({"a": [60, 61, 62], "b": [50, 51, 52]})
    axes |= {axis: [runs[axis].iloc[0]] for axis in ("protocol", "dataset", "partition")}
    grid = [axes | {"method": ["a", "b", "c"]}]
    whole = product.draw(study, "quick", runs)
    part = product.draw(study, "quick", runs, grid=grid)
    assert whole[["our_verdict", "missing"]].values.tolist() == [["holds", 0]]
    assert part[["our_verdict", "missing"]].values.tolist() == [["undecided", 1]]
    assert part["ours"].tolist() == ["1 of 2 holds, 1 has no runs"]
    assert "Only a part of the study's runs was asked for" in product.caption(part)
    assert "Only a part" not in product.caption(whole)
    by_metric = product.draw(study, "quick", runs, grid=grid, metrics=["best"])
    assert by_metric["verdict_best"].tolist() == ["undecided"]
    same = product.draw(study, "quick", runs, grid=[axes | {"method": ["a", "b"]}])
    assert same["our_verdict"].tolist() == ["holds"]


def test_the_correction_of_contrasts_counts_missing_comparisons():
    study = STUDY | {"claims": [above(over=["b", "c"])]}
    runs = made.runs({"a": [50, 49.7, 50.3], "b": [51, 51, 51]})
    axes = {axis: [runs[axis].iloc[0]] for axis in ("protocol", "dataset", "partition")}
    grid = [axes | {"method": ["a", "b", "c"], "seed": [0, 1, 2]}]
    found = [contrasts.draw(study, "quick", runs, grid=of)["verdict"].item() for of in (None, grid)]
    assert found == [FAILS, UNDECIDED]


def test_what_a_paper_prints_in_part_is_not_consistent_as_a_whole():
    """A placebo is not printed: the printed half alone says nothing on the claim."""
    printed = values({"a": [5], "b": [3], "d": [9]})
    both = verdicts.judge_printed(above(over=["b", "placebo"]), printed, STUDY)
    assert both["published_verdict"] == verdicts.PARTLY
    assert both["published"].startswith("1 of 1 comparison: +2.00 (over b")
    against = verdicts.judge_printed(above(over=["d", "placebo"]), printed, STUDY)
    assert against["published_verdict"] == verdicts.CONTRADICTED


# --- verdicts with several metrics -----------------------------------------------------------


def two_faced(own: str = "best", tail: int = 1) -> pd.DataFrame:
    """Three seeds of a and b: a is better at best by 20 points, and worse by every other score.

    After round 0 with 10 %, a has 80, 20, 20 and b 60, 40, 30, more by a little with each seed: 0.1
    on average. The moving averages are 10, 38, 30.8, 26.48 and, without that, 10, 30, 34, 32.4.
    """
    curves = {"a": [10, 80, 20, 20], "b": [10, 60, 40, 30]}
    about = {"rounds": 3, "metric": own, "tail": tail}
    return pd.concat(
        made.evaluations(
            {r: (p + wobble * (method == "b" and r > 0)) / 100 for r, p in enumerate(percents)},
            **about | {"method": method, "seed": seed},
        )
        for method, percents in curves.items()
        for seed, wobble in enumerate([0, 0.1, 0.2])
    )


def test_a_tail_is_the_protocols_own_and_final_is_the_last_round():
    study = {"claims": [above()]}
    table = contrasts.draw(study, "quick", two_faced("tail", tail=2), metrics="final")
    (found,) = table.to_dict("records")
    # means of the last two: 20 against 35; after the last round: 20 against 30, and 0.1 on average
    assert (found["difference"], found["difference_final"]) == pytest.approx((-15.1, -10.1))


def test_claims_are_judged_by_metric_each_with_its_number_and_its_share():
    study = {"claims": [above(), above(over=["b", "c"], share=0.4), above(over="nobody")]}
    c = two_faced().query("method == 'b'").assign(method="c", accuracy=0.9)  # always above a
    found = product.draw(study, "quick", pd.concat([two_faced(), c]), metrics=["best", "smoothed"])
    assert found["our_verdict"].tolist() == [HOLDS, HOLDS, UNDECIDED]
    assert found["verdict_smoothed"].tolist() == [FAILS, FAILS, UNDECIDED]


def test_a_choice_among_runs_is_the_same_for_every_metric():
    asked = []

    def choose(table: pd.DataFrame, by: str) -> pd.DataFrame:
        asked.append(by)
        return table[table["seed"] < 2]

    for way in ("best", "smoothed"):
        found = measures.measure_all({"claims": [above()]}, {"runs": two_faced()}, choose, way)
        assert {*found["seed"]} == {0, 1}
    assert asked == ["accuracy", "accuracy"]


def test_a_column_per_further_metric_says_whether_the_verdict_changes():
    study = STUDY | {"claims": [above(), {**above(), "method": "b", "over": "a", "measure": "d"}]}
    table = product.draw(study, "quick", two_faced(), metrics=["best", "smoothed"])
    plain = product.draw(study, "quick", two_faced())
    assert table[plain.columns].equals(plain)  # the protocol's own metric decides, as before
    assert [*table.columns.difference(plain.columns)] == ["changes", "verdict_smoothed"]
    assert table["our_verdict"].tolist() == [HOLDS, UNDECIDED]
    assert table["verdict_smoothed"].tolist() == [FAILS, UNDECIDED]
    assert table["changes"].tolist() == [True, False]
    assert "(smoothed): for 1 of 2 claims our verdict depends on it" in product.caption(table)
    assert "scored in another way" not in product.caption(plain)
    shown = product.wide(table)
    assert shown["smoothed"].tolist() == table["verdict_smoothed"].tolist()
    assert shown["robust"].tolist() == [verdicts.DEPENDS, verdicts.ROBUST]
    assert not {"smoothed", "robust"} & {*product.wide(plain)}


def test_a_further_metric_is_one_that_some_runs_do_not_have_as_their_own():
    mixed = pd.concat([two_faced("best"), two_faced("smoothed").assign(protocol="q")])
    assert verdicts.other_metrics(mixed, ["best", "smoothed"]) == ["best", "smoothed"]
    assert verdicts.other_metrics(two_faced("smoothed"), ["best", "smoothed"]) == ["best"]
    assert verdicts.other_metrics(two_faced("best"), "final") == ["final"]
    assert verdicts.other_metrics(None, ["best"]) == ["best"]
    assert verdicts.other_metrics(two_faced(), None) == []
    with pytest.raises(UsageError, match=r"no way to score a run is called `beste`: .* best"):
        verdicts.other_metrics(two_faced(), ["beste"])


def test_runs_that_hold_do_not_clear_what_the_paper_contradicts_with_any_metric():
    claim = claim_of("highest accuracies") | {"over": ["fedsl-f2"]}
    runs = made.runs({"fedsls": [60, 61, 60.5], "fedsl-f2": [50, 51, 50.5]})
    table = product.draw(STUDY | {"claims": [claim]}, "quick", runs, metrics=["final"])
    (row,) = table.to_dict("records")
    assert row["verdict"] == row["published_verdict"] == verdicts.NARROWLY
    assert row["our_verdict"] == row["verdict_final"] == HOLDS
    assert not row["changes"]


def test_one_claim_alone_has_its_own_verdict_with_every_metric_and_without_runs_none():
    study = {"claims": [{**above(), "method": "b", "over": "a"}, above()]}
    columns = ["claim", "our_verdict", "verdict_smoothed", "changes"]
    for runs, expected in (
        (two_faced(), [2, HOLDS, FAILS, True]),
        (None, [2, *[UNDECIDED] * 2, False]),
    ):
        table = product.draw(study, "quick", runs, claim=2, metrics="smoothed")
        assert table[columns].values.tolist() == [expected]


def test_contrasts_have_their_differences_and_verdicts_by_metric():
    study = {"claims": [above(), above(over="nobody"), above(measure="steadiness")]}
    table = contrasts.draw(study, "quick", two_faced(), metrics=["best", "smoothed", "final"])
    plain = contrasts.draw(study, "quick", two_faced())
    assert table[plain.columns].equals(plain)
    assert [*table.columns.difference(plain.columns)] == [
        "changes",
        *(f"{number}_{way}" for number in ("difference", "high", "low", "verdict")
          for way in ("final", "smoothed")),
    ]  # fmt: skip
    assert table["claim"].tolist() == [1, 3]
    first, steady = table.to_dict("records")
    assert (first["verdict"], first["verdict_smoothed"]) == (HOLDS, FAILS)
    smoothed = 26.48 - 32.4 - 0.1 * (1 - 0.6**3)
    assert first["difference_smoothed"] == pytest.approx(smoothed, abs=1e-4)
    assert (first["difference"], first["difference_final"]) == pytest.approx((19.9, -10.1))
    assert first["low_smoothed"] < first["difference_smoothed"] < first["high_smoothed"]
    assert steady["difference"] == steady["difference_smoothed"]  # it is of all rounds
    assert table["changes"].tolist() == [True, False]
    empty = contrasts.draw({"claims": []}, "quick", two_faced(), metrics=["final"])
    assert {"verdict_final", "changes"} <= {*empty}


# --- the names in the study's claims ---------------------------------------------------------


def claimed(axis: str, scale: str) -> set[str]:
    """The names of an axis of the grid that claims are about."""
    blocks = STUDY["scales"][scale]["grids"]["claims"]
    return {name for block in blocks for name in listed(block[axis])}


@pytest.mark.parametrize("axis", ["method", "partition"])
def test_the_grid_of_the_claims_has_what_the_quick_scale_can_show(axis):
    assert claimed(axis, "quick") == claimed(axis, "paper")


def test_the_names_that_a_study_may_have_are_those_that_there_are():
    found = measures.measure_similarities(made.fidelity_scores())
    assert {*found["measure"]} == {*stated.OF_MAPS}
    maps = {f"{encoder}-{layer}" for encoder, all in setting.MAPS.items() for layer in all}
    assert {*found["method"]} == maps
    assert {*measures.MEASURES} == {*OF_RUNS}
    assert {*stated.IN_POINTS} < {*OF_RUNS}
    assert [*options.WAYS] == [*WAYS]
    files = {one["name"]: one for one in load_yaml((DOCS / "columns.yaml").read_bytes())["files"]}
    recorded = {name for name in files["run: metrics"]["columns"] if "<" not in name}
    assert recorded - {"round"} <= {*options.METRICS}
