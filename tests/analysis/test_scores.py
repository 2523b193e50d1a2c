"""Scores of any metric, by hand: `analysis/scores.py`, and their words: `analysis/metrics.py`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.analysis import measures, metrics, tables, verdicts
from fedgrid.analysis.measures import compute_speedups
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs
from fedgrid.report import comparison
from fedgrid.report.fedsls import table1
from fedgrid.runtime.names import UsageError

# The tail of a made-up run is its last 4 of 10 rounds: the evaluations 8 and 10.
METRICS = {
    "accuracy": {0: 0.1, 6: 0.9, 8: 0.5, 10: 0.6},
    "loss": {0: 2.0, 6: 0.5, 8: 1.0, 10: 1.5},
    "own_worst": {0: 0.1, 8: 0.3},  # clients are not evaluated in every round
    "norm": {0: 0.5, 6: 0.25, 8: 0.25, 10: 0.75},  # a method's own
    "never": {},
}
VALIDATED = METRICS | {"validation_accuracy": {0: 0.1, 6: 0.4, 8: 0.7, 10: 0.7}}


def score(of: str, metric: str = "tail", metrics: dict = METRICS, **names) -> pd.Series:
    """The only run's score."""
    (found,) = score_runs(made.measured(metrics, metric=metric, **names), of).to_dict("records")
    return found


@pytest.mark.parametrize(
    ("of", "metric", "expected"),
    [
        ("accuracy", "tail", 55),
        ("accuracy", "best", 90),
        ("loss", "tail", 1.25),  # not in percent
        ("loss", "best", 0.5),  # the lowest
        ("own_worst", "tail", 30),  # round 10 is empty
        ("own_worst", "best", 30),
        ("norm", "tail", 0.5),  # a method's own column as it was recorded, within 0..1 or not
        ("norm", "best", 0.75),
        # 0.6 * 10 + 0.4 * 30: empty rounds do not count
        ("own_worst", "smoothed", 18),
    ],
)
def test_every_metric_is_scored_in_the_same_way(of, metric, expected):
    assert score(of, metric)[of] == pytest.approx(expected)


def test_the_last_value_of_a_metric_is_the_last_that_there_is():
    assert score("own_worst")["final"] == pytest.approx(30)
    assert score("loss")["final"] == 1.5
    assert score("own_worst")["ended"] == 10  # the run itself went on


@pytest.mark.parametrize(
    ("of", "expected"),
    [("accuracy", 50), ("loss", 1.0), ("norm", 0.25), ("validation_accuracy", 70)],
)
def test_validation_data_choose_the_round(of, expected):
    """Rounds 8 and 10 have the best validation accuracy: the first counts, not the best test."""
    found = score(of, "best", VALIDATED, validation_from="test")
    assert found[of] == pytest.approx(expected)
    assert found["metric"] == "validated-test"


def test_a_metric_is_taken_at_the_best_round_in_which_it_is_there():
    other = VALIDATED | {"own_mean": {6: 0.2, 10: 0.9}, "validation_accuracy": {6: 0.6, 8: 0.7}}
    assert score("own_mean", "best", other)["own_mean"] == pytest.approx(20)


def test_own_models_are_validated_by_their_own_accuracy_where_it_is_there():
    """The server's validation accuracy is best in round 8, and that of own models in round 10."""
    own = {"own_mean": {6: 0.2, 8: 0.3, 10: 0.9}, "validation_own_mean": {6: 0.2, 8: 0.4, 10: 0.6}}
    assert score("own_mean", "best", VALIDATED | own)["own_mean"] == pytest.approx(90)
    assert score("accuracy", "best", VALIDATED | own)["accuracy"] == pytest.approx(50)
    without = VALIDATED | own | {"validation_own_mean": {}}
    assert score("own_mean", "best", without)["own_mean"] == pytest.approx(30)


def test_validation_data_change_no_score_but_the_best():
    for metric in ("tail", "smoothed"):
        found = score("accuracy", metric, VALIDATED, validation_from="clients")
        assert found["accuracy"] == score("accuracy", metric)["accuracy"]
        assert found["metric"] == metric


def test_runs_with_and_without_validation_stand_side_by_side():
    runs = pd.concat([
        made.measured(VALIDATED, metric="best", validation_from="clients"),
        made.measured(METRICS, metric="best", method="moon"),
    ])  # fmt: skip
    found = score_runs(runs).set_index("method")
    assert found["accuracy"].to_dict() == {"fedavg": 50, "moon": 90}
    assert found["metric"].to_dict() == {"fedavg": "validated-clients", "moon": "best"}


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ("acuracy", "no metric of these runs is called `acuracy`: did you mean accuracy"),
        ("macro_f1", "no metric of these runs is called `macro_f1`"),
        ("never", "no metric of these runs is called `never`"),  # which is always empty
        ("tail", "no metric of these runs is called `tail`"),  # of the protocol
        ("round", "no metric of these runs is called `round`"),
    ],
)
def test_a_metric_that_no_run_has_is_named(of, message):
    with pytest.raises(UsageError, match=message):
        score(of)


def test_a_metric_may_be_zero_throughout():
    assert score("lost_shares", metrics=METRICS | {"lost_shares": {10: 0}})["lost_shares"] == 0


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        *(("accuracy", True), ("recall_10", True), ("auroc", True), ("own_decile9", True)),
        *(("loss", False), ("train_loss", False), ("validation_loss", False), ("norm", False)),
        *(("effective_clients", False), ("own_decile", False), ("teacher_accuracy", False)),
    ],
)
def test_fedgrids_own_shares_are_in_percent(name, percent):
    assert metrics.in_percent(name) == percent


def test_a_class_of_any_name_is_the_better_the_more_of_it_is_recognised():
    assert not metrics.lower_is_better("recall_loss")
    assert not metrics.lower_is_better("own_recall_terror")
    assert metrics.in_percent("recall_a rose, red")


# --- runs without the metric -----------------------------------------------------------------

PRIVATE = {"accuracy": {}, "own_mean": {0: 0.1, 8: 0.6, 10: 0.8}}
SERVERS = {"accuracy": {0: 0.1, 8: 0.4, 10: 0.6}, "own_mean": {8: 0.3, 10: 0.5}}


def mixed(**names) -> pd.DataFrame:
    """Two seeds of a method with a server's model, and of one without."""
    return pd.concat(
        made.measured(metrics, method=method, seed=seed, **names)
        for method, metrics in {"fedavg": SERVERS, "fedper": PRIVATE}.items()
        for seed in (0, 1)
    )


def test_a_run_without_the_metric_has_no_score_and_did_not_diverge():
    found = mean_over_seeds(score_runs(mixed()), CELL).set_index("method")
    assert found["diverged"].tolist() == [0, 0]
    assert found["mean"].to_dict() == pytest.approx({"fedavg": 50, "fedper": np.nan}, nan_ok=True)
    own = mean_over_seeds(score_runs(mixed(), "own_mean"), CELL, "own_mean").set_index("method")
    assert own["mean"].to_dict() == pytest.approx({"fedavg": 40, "fedper": 70})


@pytest.mark.parametrize("module", [table1, comparison], ids=["table1", "comparison"])
def test_a_cell_without_the_metric_is_empty(module, tmp_path):
    table = module.draw(mixed(metric="best"), {}, "quick")
    for shown in (module.wide(table), module.wide(made.read(table))):
        assert "nan" not in shown.to_string().lower()
        assert shown.loc["fedavg"].squeeze() is not None
    if module is table1:
        assert table1.wide(table).loc["fedper"].tolist() == [""]


def test_a_run_without_an_accuracy_has_no_speed_up():
    found = compute_speedups(mixed(), "fedavg").groupby("method")["speedup"].max()
    assert found["fedavg"] == 1
    assert np.isnan(found["fedper"])


def test_claims_leave_out_runs_without_an_accuracy():
    claim = {"says": "", "method": "fedper", "over": "fedavg", "least": 0}
    study = {"claims": [claim | {"measure": ["accuracy", "speed-up", "steadiness"]}]}
    values = measures.measure_all(study, {"runs": mixed()})
    assert set(values["method"]) == {"fedavg"}
    assert verdicts.compare_claim(claim, values).empty


# --- words -----------------------------------------------------------------------------------


def said(of: str = "accuracy", metrics: dict = METRICS, **names) -> str:
    runs = made.measured(metrics, **names)
    return tables.describe_score(mean_over_seeds(score_runs(runs, of), CELL, of))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "mean test accuracy of the last 4 rounds"),
        ({"metric": "best"}, "best test accuracy over all rounds"),
        ({"metric": "smoothed"}, "last moving average of the test accuracy"),
        ({"of": "loss"}, "mean test loss of the last 4 rounds"),
        ({"of": "loss", "metric": "best"}, "lowest test loss over all rounds"),
        ({"of": "norm", "metric": "best"}, "best norm over all rounds"),
        (
            {"of": "own_worst", "metric": "best"},
            "best accuracy of clients' own models (worst client) over all rounds",
        ),
        (
            {"metric": "best", "metrics": VALIDATED, "validation_from": "test"},
            "test accuracy of the round with the best validation accuracy (validation data: a part "
            "of the test set)",
        ),
        (
            {"of": "loss", "metric": "best", "metrics": VALIDATED, "validation_from": "clients"},
            "test loss of the round with the best validation accuracy (validation data: a part of "
            "the clients' data)",
        ),
        (
            {"metric": "best", "metrics": VALIDATED},
            "test accuracy of the round with the best validation accuracy",
        ),
    ],
)
def test_a_caption_says_on_what_the_round_was_chosen(asked, expected):
    assert said(**asked) == expected


def test_a_caption_names_every_way_of_runs_that_differ():
    runs = pd.concat([made.measured(METRICS), made.measured(METRICS, metric="best", method="moon")])
    found = tables.describe_score(mean_over_seeds(score_runs(runs), CELL))
    assert found == "mean test accuracy of the last 4 rounds or best test accuracy over all rounds"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("recall_3", "recall of class 3"),
        ("recall_a rose", "recall of class a rose"),
        ("server_decile2", "accuracy of the server's model (decile 2 of clients)"),
        ("own_weighted", "accuracy of clients' own models (mean over test samples)"),
        ("own_norm", "own_norm"),
    ],
)
def test_a_metric_has_words(metric, expected):
    assert metrics.describe_metric(metric) == expected


@pytest.mark.parametrize("metric", ["tail", "best"])
def test_the_model_before_training_does_not_count(metric):
    worse = {"accuracy": {0: 0.9, 8: 0.5, 10: 0.7}, "loss": {0: 0.1, 8: 1.0, 10: 1.0}}
    validated = worse | {"validation_accuracy": {0: 0.9, 8: 0.5, 10: 0.7}}
    expected = {"tail": (60, 1.0), "best": (70, 1.0)}[metric]
    for given in (worse, validated):
        assert score("accuracy", metric, given, tail=11)["accuracy"] == expected[0]
        assert score("loss", metric, given, tail=11)["loss"] == expected[1]
