"""Whether a gain is due to a method's mechanism: the product `controls`, by hand."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis.verdicts import DEPENDS
from fedgrid.report import _formats, _product, controls
from fedgrid.runtime.names import UsageError
from fedgrid.study.products import check_product, complete_product

STUDY = {"labels": {"fedavg": "FedAvg", "fedsls": "FedSLS", "cifar10": "CIFAR-10"}}
PLACEBOS = {"fedsls": ["swapped", "uniform"]}
# By seeds, fedsls - fedavg is 2, 3, 4, fedsls - swapped 1, 2, 6, and swapped - fedavg 1, 1, -2.
PERCENTS = {"fedavg": [50, 51, 52], "fedsls": [52, 54, 56], "swapped": [51, 52, 50]}
T2 = 4.302653  # Student's quantile 0.975 with 2 degrees of freedom
NO_CHANCE = [0, 0.01, -0.01]  # around a mean, so that the interval of it is narrow


def drawn(runs: pd.DataFrame, placebos=PLACEBOS, **options) -> pd.DataFrame:
    return controls.draw(made.read(runs), STUDY, "quick", placebos, **options)


def row(runs: pd.DataFrame, placebos=PLACEBOS, **options) -> dict:
    (found,) = drawn(runs, placebos, **options).to_dict("records")
    return found


def around(method: float, placebo: float, plain: float = 50) -> dict[str, list[float]]:
    """Three seeds whose paired differences are of these means, with very narrow intervals."""
    return {
        "fedavg": [plain + 3 * seed for seed in range(3)],
        "fedsls": [method + 3 * seed + of for seed, of in enumerate(NO_CHANCE)],
        "swapped": [placebo + 3 * seed - of for seed, of in enumerate(NO_CHANCE)],
    }


# --- differences -----------------------------------------------------------------------------


def test_differences_are_of_runs_of_a_seed_with_students_interval():
    found = row(made.runs(PERCENTS))
    assert (found["method"], found["plain"], found["placebo"]) == ("fedsls", "fedavg", "swapped")
    assert (found["dataset"], found["partition"], found["alpha"]) == ("cifar10", "dir0.1", 0.1)
    by_hand = {"gain": (3, 1), "placebo_gain": (0, sqrt(3)), "beyond_placebo": (3, sqrt(7))}
    for name, (mean, deviation) in by_hand.items():
        half = T2 * deviation / sqrt(3)
        numbers = [found[name], found[f"{name}_low"], found[f"{name}_high"]]
        assert numbers == pytest.approx([mean, mean - half, mean + half], abs=1e-3)
        assert found[f"{name}_pairs"] == 3
    assert found["gain_by_seed"] == "0: +2, 1: +3, 2: +4"
    assert found["placebo_gain_by_seed"] == "0: +1, 1: +1, 2: -2"
    assert found["beyond_placebo_by_seed"] == "0: +1, 1: +2, 2: +6"
    assert [found[f"{role}_mean"] for role in controls.ROLES] == [54, 51, 51]


def test_scores_of_different_seeds_say_how_many():
    shown = controls.wide(made.read(drawn(made.runs(PERCENTS | {"swapped": [51]})))).iloc[0]
    assert shown["score"] == "54.00 ± 2.00 (3 seeds)"
    assert shown["score of placebo"] == "51.00 (1 seed)"
    table = drawn(made.runs(PERCENTS | {"swapped": [51]}))
    assert "1 or 3 seeds" in controls.caption(table)


# --- verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "placebo", "verdict"),
    [
        (55, 50, "the mechanism"),
        (55, 53, "partly the mechanism"),  # the placebo gains, and the method gains more
        (55, 40, "no control"),  # a placebo that harms
        (55, 55, "the placebo gains, too"),
        (55, 60, "the placebo gains more"),
        (45, 40, "no gain"),  # better than the placebo is not enough
        (45, 60, "no gain"),
    ],
)
def test_the_intervals_decide(method, placebo, verdict):
    runs = made.runs(around(method, placebo))
    loss = runs.assign(loss=lambda of: 2 - of["accuracy"])  # of which lower is better
    assert row(runs)["verdict"] == row(loss, metric="loss")["verdict"] == verdict


def test_a_placebo_that_is_the_same_as_its_method_gains_too():
    percents = around(55, 50)
    same = row(made.runs(percents | {"swapped": percents["fedsls"]}))
    assert (same["beyond_placebo_low"], same["verdict"]) == (0, "the placebo gains, too")


@pytest.mark.parametrize(
    "percents",
    [
        around(55, 50) | {"fedsls": [40, 58, 70]},  # whether the method gains is open
        around(55, 60) | {"fedsls": [40, 58, 70]},  # the same, and the placebo gains
        around(55, 50) | {"fedsls": [40, 50, 66]},  # the method loses by its mean
        around(55, 50) | {"fedavg": [40, 70, 53]},  # it is better than its placebo alone
        around(55, 50) | {"swapped": [45, 53, 65]},  # it gains; whether the placebo does is open
    ],
)
def test_what_the_intervals_do_not_decide_is_undecided(percents):
    assert row(made.runs(percents))["verdict"] == "undecided"


def test_one_seed_decides_nothing():
    table = drawn(made.runs({name: values[:1] for name, values in around(55, 50).items()}))
    (found,) = table.to_dict("records")
    assert (found["gain"], found["gain_pairs"], found["verdict"]) == (5, 1, "undecided")
    assert np.isinf(found["gain_low"])
    shown = controls.wide(made.read(table)).iloc[0]
    assert (shown["method - plain [95 %]"], shown["score"]) == ("+5.00", "55.00")


def test_a_loss_has_three_decimals_and_is_not_in_percent():
    found = drawn(
        made.runs(around(55, 55)).assign(loss=lambda of: 2 - of["accuracy"]), metric="loss"
    )
    shown = controls.wide(found).iloc[0]
    assert shown["method - plain [95 %]"] == "-0.050 [-0.050, -0.050]"
    assert shown["score"] == "1.420 ± 0.030"


# --- runs that diverged, and runs that are missing -------------------------------------------


def test_a_run_that_diverged_is_said_and_is_in_no_mean():
    table = drawn(made.runs(around(55, 50) | {"swapped": [50, None, 56]}))
    (found,) = table.to_dict("records")
    assert np.isnan([found["placebo_mean"], found["placebo_gain"], found["beyond_placebo"]]).all()
    assert (found["placebo_diverged"], found["method_diverged"]) == (1, 0)
    assert found["gain"] == 5
    assert found["placebo_gain_by_seed"] == "0: +0, 1: diverged, 2: +0"
    assert found["verdict"] == "a run diverged"
    shown = controls.wide(made.read(table)).iloc[0]
    assert (shown["score of placebo"], shown["method - placebo [95 %]"]) == ("1/3 diverged", "")
    assert shown["score"] == "58.00 ± 3.00"
    assert "“a run diverged”: a difference has no mean" in controls.caption(table)
    assert controls.DIVERGED not in controls.caption(drawn(made.runs(PERCENTS)))


def test_the_placebo_of_a_method_without_a_gain_may_have_diverged():
    assert row(made.runs(around(45, 50) | {"swapped": [50, None, 56]}))["verdict"] == "no gain"


def test_a_placebo_has_rows_in_those_settings_that_have_its_runs():
    here = made.runs(around(55, 50))
    there = made.runs(around(45, 40), partition="dir0.5")
    there = there[there["method"] != "swapped"]
    uniform = made.runs({"uniform": [50, 53, 56]}, partition="dir0.5")
    table = drawn(pd.concat([here, there, uniform]))
    found = table[["partition", "placebo", "verdict"]].to_numpy().tolist()
    assert found == [["dir0.1", "swapped", "the mechanism"], ["dir0.5", "uniform", "no gain"]]


def test_the_caption_names_placebos_without_runs():
    table = drawn(made.runs(PERCENTS))
    assert "Not compared, because runs are missing: uniform." in controls.caption(table, PLACEBOS)
    assert "Not compared" not in controls.caption(table, {"fedsls": "swapped"})
    assert "mean test accuracy of the last 4 rounds in percent" in controls.caption(table, PLACEBOS)
    assert "3 seeds, 10 rounds, quick scale" in controls.caption(table, PLACEBOS)


def test_a_part_of_the_grid_without_any_pair_says_so_in_every_format(tmp_path):
    """A part that leaves out the placebos must not stop the other products."""
    table = drawn(made.runs({name: PERCENTS[name] for name in ("fedavg", "fedsls")}))
    assert table.empty
    product = _product.load_product("fedsls", "controls", {"with": {"placebos": PLACEBOS}})
    paths = [tmp_path / f"controls.{ext}" for ext in ("csv", "tex", "html")]
    _formats.write_product(product, table, {}, paths)
    assert all("Nothing is compared" in path.read_text() for path in paths[1:])
    assert "Nothing is compared" in _product.write_text(product, paths[0])


# --- options ---------------------------------------------------------------------------------


def test_the_plain_method_may_differ_by_method():
    runs = made.runs(PERCENTS | {"prox": [40, 40, 40], "prox+n": [41, 41, 41], "prox+s": [40] * 3})
    placebos = {"fedsls": "swapped", "prox+n": "prox+s"}
    table = drawn(runs, placebos, over={"prox+n": "prox", "fedsls": "fedavg"})
    found = table[["method", "plain", "gain"]].to_numpy().tolist()
    assert found == [["fedsls", "fedavg", 3], ["prox+n", "prox", 1]]
    with pytest.raises(UsageError, match=r"`over` has no entry for the method prox.n: add one"):
        drawn(runs, placebos, over={"fedsls": "fedavg"})
    with pytest.raises(UsageError, match="called `fedsl`: did you mean fedsls"):
        drawn(runs, placebos, over={"fedsl": "fedavg", "fedsls": "fedavg", "prox+n": "prox"})


def test_methods_are_in_the_order_of_the_runs():
    """Snakemake writes the options of a product in the order of the alphabet."""
    runs = made.runs({"fedavg": [1, 2], "z": [3, 4], "a": [5, 7], "y": [2, 2], "b": [1, 1]})
    found = drawn(runs, {"a": ["y", "b"], "z": ["b", "y"]})
    rows = found[["method", "placebo"]].to_numpy().tolist()
    assert rows == [["z", "b"], ["z", "y"], ["a", "y"], ["a", "b"]]


def personal(own: dict[str, list[float | None]]) -> pd.DataFrame:
    """Runs of test accuracies of PERCENTS, and these means of clients' own; None has no value."""
    runs = made.runs(PERCENTS)
    values = {(m, s): np.nan if v is None else v / 100 for m, of in own.items() for s, v in
              enumerate(of)}  # fmt: skip
    names = zip(runs["method"], runs["seed"], strict=True)
    return runs.assign(own_mean=[values.get(name, np.nan) for name in names])


def test_each_of_several_metrics_has_its_rows():
    own = {"fedavg": [60, 60, 60], "fedsls": [61, 62, 63], "swapped": [60, 61, 62]}
    table = drawn(personal(own), metric=["accuracy", "own_mean"])
    found = table[["of", "gain", "beyond_placebo"]].to_numpy().tolist()
    assert found == [["accuracy", 3, 3], ["own_mean", 2, 1]]
    shown = controls.wide(table)
    assert shown.index.names == ["metric", "dataset", "partition", "method", "placebo"]
    assert shown.iloc[1]["score"] == "62.00 ± 1.00"
    said = controls.caption(table, PLACEBOS)
    assert "accuracy of the last 4 rounds in percent; the mean accuracy of clients" in said


def test_the_best_protocol_of_each_method_is_chosen_by_each_metric():
    own = {"fedavg": [60, 60, 60], "fedsls": [61, 62, 63], "swapped": [60, 61, 62]}
    low, high = personal(own), personal(own).assign(protocol="p-high")
    high["accuracy"] += 0.1 * (high["method"] == "fedavg")
    high["own_mean"] -= 0.1
    runs = pd.concat([low, high])
    names = runs[["protocol", "method", "seed"]].drop_duplicates().itertuples(index=False)
    settings = pd.concat(
        made.recorded({"": {"lr": 0.1 if p == "p" else 1}}, protocol=p, method=m, seed=s)
        for p, m, s in names
    )
    metrics = ["accuracy", "own_mean"]
    table = drawn(runs, settings=made.read(settings), metric=metrics, best={"over": "lr"})
    assert table["gain"].tolist() == [-7, 2]  # of fedavg's better rate, by each metric
    entry = {"from": {"runs": "runs/main", "settings": "settings/main"}}
    entry |= {"with": {"placebos": PLACEBOS, "best": {"over": "lr"}}}
    check_product("mine", "controls", complete_product("mine", "controls", entry))


# --- with several ways to score a run --------------------------------------------------------


def test_a_verdict_is_also_taken_with_other_metrics():
    runs = made.runs(around(53, 50))
    worst = runs["round"].eq(10) & runs["method"].eq("fedsls")
    runs.loc[worst, "accuracy"] -= 0.05  # the last evaluation
    runs.loc[runs["round"].eq(8) & runs["method"].eq("fedsls"), "accuracy"] += 0.05
    table = drawn(runs, metrics=["tail", "final", "best"])
    (found,) = table.to_dict("records")
    assert found["verdict"] == "the mechanism"
    assert found["verdict_final"] == "no gain"
    assert found["verdict_best"] == "no gain"  # round 6 of all runs is equal
    assert "verdict_tail" not in found  # the own metric of these runs
    assert found["changes"]
    shown = controls.wide(table)
    assert shown[["final", "best", "robust"]].iloc[0].tolist() == ["no gain", "no gain", DEPENDS]
    assert "(final, best): for 1 of 1 rows our verdict depends on it." in controls.caption(table)
