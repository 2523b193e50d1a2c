"""Gains with a placebo, and the figures of client contribution normalisation, by hand."""

import copy
from math import isnan, nan, sqrt

import pandas as pd
import pytest
from test_any_study import plotted

import made
from fedgrid.report import gains
from fedgrid.report.normalization import figure1, leverage
from fedgrid.runtime.names import UsageError
from fedgrid.store import kept

OPTIONS = {"suffix": "+norm", "placebo": "+shuffled"}
STUDY = {
    "published": {
        "table1": {
            "columns": [["cifar10", "dir0.1"], ["mnist", "dir0.5", "other"]],
            "rows": {"fedavg": [70, 60], "fedavg+norm": [74.5, 69], "moon": [50, 51]},
        }
    },
    "labels": {"fedavg": "FedAvg", "protocols": {"q": "Q"}},
}
# By seeds, the gains are 1, 2, 6 and the placebo's 1, 2, 3.
PERCENTS = {"fedavg": [50, 51, 52], "fedavg+norm": [51, 53, 58], "fedavg+shuffled": [51, 53, 55]}


def drawn(runs: pd.DataFrame, **more) -> pd.DataFrame:
    return made.read(gains.draw(runs, STUDY, "quick", **(OPTIONS | more)))


# --- gains -----------------------------------------------------------------------------------


def test_one_seed_has_no_interval_and_a_run_that_diverged_no_gain():
    one = drawn(made.runs({name: values[:1] for name, values in PERCENTS.items()}))
    shown = gains.wide(one, **OPTIONS).iloc[0]
    assert (shown["original"], shown["gain [95 %]"]) == ("50.00", "+1.00")
    lost = drawn(made.runs(PERCENTS | {"fedavg+norm": [51, None, 58]}))
    shown = gains.wide(lost, **OPTIONS).iloc[0]
    assert shown["with +norm"] == "1/3 diverged"
    assert "gain [95 %]" not in shown
    assert shown["gain of +shuffled [95 %]"] == "+2.00 [-0.48, 4.48]"


def test_a_gain_says_how_many_pairs_it_has_if_not_all_seeds_have_both_runs():
    table = drawn(made.runs(PERCENTS | {"fedavg+norm": [51, 53], "fedavg+shuffled": [51]}))
    assert table[["seeds", "pairs", "placebo_pairs"]].to_numpy().tolist() == [[3, 2, 1]]
    shown = gains.wide(table, **OPTIONS).iloc[0]
    assert shown["gain [95 %]"].startswith("+1.50 [")
    assert shown["gain [95 %]"].endswith("] of 2 pairs")
    assert shown["gain of +shuffled [95 %]"] == "+1.00 of 1 pair"
    scores = ["51.00 ± 1.00 (3 seeds)", "52.00 ± 1.41 (2 seeds)"]
    assert shown[["original", "with +norm"]].tolist() == scores


def test_runs_without_the_part_are_refused():
    with pytest.raises(UsageError, match=r"the suffix `.norm` .* such as fedavg and fedavg.norm"):
        gains.name_pairs(["fedavg", "moon+norm"], "+norm")
    with pytest.raises(UsageError, match=r"such as moon and moon.norm$"):
        gains.name_pairs(["moon+norm"], "+norm")


def test_the_figure_of_weights_needs_no_runs_of_the_placebo():
    moved = {"weight_distance": 0.01, "distance_bound": 0.1}
    two = made.runs({name: PERCENTS[name] for name in ("fedavg", "fedavg+norm")}).assign(**moved)
    settings = pd.concat([temperature("fedavg+norm", 1.0, seed) for seed in range(3)])
    study = copy.deepcopy(STUDY)
    study["published"]["table1"]["rows"]["moon+norm"] = [55, 56]  # printed, and without runs
    table = leverage.draw(two, settings, study, "quick", **OPTIONS)
    assert {*table["what"]} == {"distance", "gain", "printed gain"}
    assert {*table["original"]} == {"fedavg", "moon"}
    marks = plotted(leverage, table, STUDY).axes[1]
    assert [one.get_text() for one in marks.get_xticklabels()] == ["FedAvg"]


# --- figure 1 --------------------------------------------------------------------------------


def test_runs_without_similarities_are_refused():
    with pytest.raises(UsageError, match="add the file `similarity`"):
        figure1.draw(made.runs(PERCENTS), STUDY, "quick")


# --- random weights --------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "wanted"), [(3, 1.5), (20, 12.0), (100, 99.0)])
def test_random_weights_have_the_effective_number_that_is_asked_for(clients, wanted):
    weights = leverage.random_weights(clients, wanted)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert leverage.effective_number(weights) == pytest.approx(wanted)
    assert len({*weights[:, 0]}) > 0.9 * len(weights)  # every draw is another


def test_the_distance_of_two_random_weights_by_hand():
    # 1/2 + d and 1/2 - d have the squares 1/2 + 2 d^2 = 1 / n, and the distance is d
    for wanted in (1.2, 1.8):
        by_hand = sqrt((1 / wanted - 1 / 2) / 2)
        assert leverage.random_distance(2, wanted) == pytest.approx(by_hand)
    assert leverage.random_distance(2, 2.0) == 0
    assert leverage.random_distance(5, 1.0001) == pytest.approx(4 / 5, abs=1e-3)


# --- leverage --------------------------------------------------------------------------------


def moving(method: str, distance: float, seed: int = 0, **names) -> pd.DataFrame:
    """A run of 4 clients, two of them in a round, that counts with 60 percent and its seed."""
    accuracy = {0: 0.1, 8: 0.6 + seed / 100, 10: 0.6 + seed / 100}
    columns = {"accuracy": accuracy, "weight_distance": {8: distance, 10: 2 * distance}}
    columns |= {"distance_bound": {8: 0.5, 10: 0.5}}
    return made.measured(columns, method=method, seed=seed, effective_clients=1.6, **names)


def temperature(method: str, value: float, seed: int = 0, **names) -> pd.DataFrame:
    parts = {"": {"rounds": 10}, "contribution": {"temperature": value}}
    return made.recorded(parts, method=method, seed=seed, **names)


def leverage_of(*more: pd.DataFrame) -> pd.DataFrame:
    plain = made.runs({name: PERCENTS[name][:2] for name in ("fedavg", "fedavg+shuffled")})
    plain = plain.assign(effective_clients=2.0)
    moved = [moving("fedavg+norm", d, seed) for seed, d in enumerate((0.1, 0.2))]
    runs = pd.concat([plain, *moved, moving("fedavg+norm-temperature2", 0.02)])
    settings = [temperature("fedavg+norm", 0.5, seed) for seed in (0, 1)]
    settings += [temperature("fedavg+norm-temperature2", 2.0), *more]
    return leverage.draw(runs, pd.concat(settings), STUDY, "quick", **OPTIONS)


def test_distances_are_means_over_seeds_beside_bound_and_random_weights():
    table = leverage_of()
    moved = table[table["what"] == leverage.DISTANCE]
    lines = moved.set_index(["method", "round"])["weight_distance"].to_dict()
    assert lines == pytest.approx({
        ("fedavg+norm", 8): 0.15, ("fedavg+norm", 10): 0.3,
        ("fedavg+norm-temperature2", 8): 0.02, ("fedavg+norm-temperature2", 10): 0.04,
    })  # fmt: skip
    assert moved["temperature"].tolist() == [0.5, 0.5, 2, 2]
    assert set(moved["cohort"]) == {2}
    assert set(moved["distance_bound"]) == {0.5}
    # 1.6 effective clients of 2
    assert moved["random"].tolist() == pytest.approx([sqrt((1 / 1.6 - 1 / 2) / 2)] * 4, abs=1e-6)


def test_random_weights_of_an_unknown_effective_number_are_left_out():
    assert isnan(leverage.random_distance(2, nan))
    plain = made.runs({name: PERCENTS[name][:2] for name in ("fedavg", "fedavg+shuffled")})
    moved = [moving("fedavg+norm", d, seed) for seed, d in enumerate((0.1, 0.2))]
    runs = pd.concat([plain, *(of.assign(effective_clients=nan) for of in moved)])
    settings = pd.concat([temperature("fedavg+norm", 0.5, seed) for seed in (0, 1)])
    table = leverage.draw(runs, settings, STUDY, "quick", **OPTIONS)
    assert table["random"].isna().all()
    assert table.loc[table["what"] == leverage.DISTANCE, "weight_distance"].notna().all()
    plotted(leverage, table, STUDY)
    lacks = "No effective number of clients is recorded for FedAvg."
    assert leverage.caption(made.read(table)).endswith(lacks)
    assert lacks not in leverage.caption(made.read(leverage_of()))


@pytest.mark.parametrize("study", ["fedlmd", "normalization"])
def test_kept_effective_numbers_of_fednova_are_of_weights_before_they_are_scaled(study):
    """FedNova's weights are FedAvg's, by samples; after a normalisation they are not known."""
    folder = kept.store_folder(study, "small")
    index = kept.read_index(folder)
    rows = kept.read_items(folder, "runs", index)
    with_runs = {path for path in index if "runs" in kept.read_hashes(index[path])}
    for path in (path for path in with_runs if "/fednova" in path):
        found = effective_by_round(rows[index[path]["id"]])
        plain = "/fednova/" in path
        like = effective_by_round(rows[index[path.replace("/fednova/", "/fedavg/")]["id"]])
        assert found == ({r: like[r] for r in found} if plain else dict.fromkeys(found, "nan"))


def effective_by_round(rows: list[dict]) -> dict[str, str]:
    return {row["round"]: row["effective_clients"] for row in rows}
