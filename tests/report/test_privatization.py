"""Products of the study of privatisation ways, by hand."""

from math import sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import made
from fedgrid.federation import cohorts
from fedgrid.federation.augment import normalise
from fedgrid.federation.stored import Data, read_statistics
from fedgrid.partitions import count_clients
from fedgrid.report.privatization import figure9, figure10, ways
from fedgrid.runtime.names import UsageError
from fedgrid.study import checks
from made import GRID

STUDY = {
    "published": {
        "benchmarks": {
            "columns": ["clients", "classes", "training", "test", "global_test"],
            "values": {
                "digits": [100, 10, 400, 100, 10000],
                "femnist": [3550, 62, 181, 45, 161000],
            },
        }
    },
    "labels": {"AB": "AB", "cifar10": "FeCifar10", "protocols": {"q": "E=5"}},
}
T1 = 12.7062  # Student's quantile 0.975 with one degree of freedom


def run(method: str, seed: int, server: float | None, own: float, **names) -> pd.DataFrame:
    """A run that counts with these percentages; None is no complete server's model."""
    found = made.run(own, method, seed, **names)
    found["own_mean"] = found["accuracy"]
    return found.assign(
        accuracy=np.nan if server is None else found["accuracy"] + (server - own) / 100
    )


def runs(percents: dict[str, list[tuple]], **names) -> pd.DataFrame:
    return pd.concat(
        run(method, seed, *pair, **names)
        for method, pairs in percents.items()
        for seed, pair in enumerate(pairs)
    )


# By seeds, AaB is above its placebo by 2 and 4 points for clients, and by 1 and 1 for the server.
WAYS = {
    "AB": [(50, 60), (52, 64)],
    "AaB": [(55, 66), (57, 68)],
    "aB": [(None, 40), (None, 42)],
    "AaB+forgets": [(54, 64), (56, 64)],
}


# --- the settings of the authors' code -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dataset", "share", "clients"),
    [
        ("privatization-femnist-code", "femnist", 0.001, 3597),
        ("privatization-shakespeare-code", "shakespeare", 0.01, 1129),
        ("privatization-fecifar-code", "cifar10", 0.1, 100),
        ("privatization-small-speakers-participation0.008", "tinyshakespeare", 0.01, 256),
    ],
)
def test_the_codes_protocols_have_the_codes_number_of_clients_in_a_round(
    name, dataset, share, clients
):
    protocol = GRID.protocol(name)
    asked = protocol["participation"], protocol["sampler"]
    assert count_clients(protocol["clients"], dataset) == clients
    assert cohorts.size(clients, *asked) == int(share * clients)


def test_the_code_only_scales_the_images_of_femnist():
    checks.check_protocol("p", GRID.protocol("privatization-femnist-code"), "femnist")
    meta = {"statistics": {"standard": [[0.2], [0.3]]}, "shape": [1, 28, 28], "classes": 62}
    nothing = np.zeros(0, np.uint8)
    data = Data(*[nothing] * 4, meta)
    mean, std = read_statistics(data, "scaled", Path())
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)[:, None, None, None]
    found = normalise(images, *(torch.tensor(values)[:, None, None] for values in (mean, std)))
    torch.testing.assert_close(found.flatten(), torch.tensor([0.0, 0.2, 1.0]))
    assert read_statistics(data, "standard", Path()) == ([0.2], [0.3])


@pytest.mark.parametrize("dataset", ["dialects", "tinyshakespeare"])
def test_tokens_are_not_scaled(dataset):
    protocol = GRID.protocol("privatization-quick-dialects-normalizationscaled")
    with pytest.raises(UsageError, match="has no normalization `scaled`, only standard"):
        checks.check_protocol("p", protocol, dataset)


# --- ways ------------------------------------------------------------------------------------


def test_ways_have_both_accuracies_their_placebos_and_the_paired_difference():
    table = made.read(ways.draw(runs(WAYS), STUDY, "quick")).set_index("method")
    assert table.index.tolist() == ["AB", "AaB", "aB"]
    found = table.loc["AaB"]
    assert (found["aggregation_mean"], found["personalisation_mean"]) == (56, 67)
    half = T1 * sqrt(2) / sqrt(2)  # deviation of 66 and 68
    assert found["personalisation_low"] == pytest.approx(67 - half, abs=1e-3)
    assert found["personalisation_placebo_mean"] == 64
    assert found["personalisation_gain_mean"] == 3
    assert found["personalisation_gain_high"] == pytest.approx(3 + half, abs=1e-3)
    assert found["aggregation_gain_mean"] == 1
    assert table["aggregation_mean"].isna().tolist() == [False, False, True]


def test_a_way_has_a_row_for_each_of_its_placebos():
    """The differences are of the way to each; where a placebo has no runs, there is no row."""
    both = WAYS | {"AaB+resets": [(55, 65), (55, 66)]}
    every = pd.concat([runs(both), runs(WAYS, dataset="mnist")])
    table = made.read(ways.draw(every, STUDY, "quick", placebo=["+forgets", "+resets"]))
    rows = table[["dataset", "method", "placebo"]].fillna("").itertuples(index=False, name=None)
    of_aab = [("AaB", "AaB+forgets"), ("AaB", "AaB+resets")]
    assert [*rows] == [
        *(("cifar10", *pair) for pair in (("AB", ""), *of_aab, ("aB", ""))),
        *(("mnist", *pair) for pair in (("AB", ""), *of_aab[:1], ("aB", ""))),
    ]
    found = table[table["dataset"] == "cifar10"].set_index("placebo")
    assert found.loc["AaB+forgets", "personalisation_gain_mean"] == 3
    assert found.loc["AaB+resets", "personalisation_gain_mean"] == 1.5
    assert found.loc["AaB+resets", "personalisation_placebo_mean"] == 65.5
    assert found.loc["AaB+resets", "aggregation_gain_mean"] == 1
    assert found["personalisation_mean"].tolist()[1:3] == [67, 67]
    shown = ways.wide(table).loc[("FeCifar10", "alpha=0.1", "AaB", "AaB+resets")]
    assert shown["aggregation", "placebo"] == "55.00 [55.00, 55.00]"


def test_a_way_whose_run_diverged_has_no_mean():
    lost = made.lost("AB", 1).assign(own_mean=0.5)
    table = made.read(ways.draw(pd.concat([runs({"AB": [(50, 60)]}), lost]), STUDY, "quick"))
    assert ways.wide(table)["personalisation", "way"].tolist() == ["1/2 diverged"]


# --- figure 9 --------------------------------------------------------------------------------


def points(seed: int, best: float) -> pd.DataFrame:
    rows = [(a, b, 0.5) for a in (0, 0.01, 1) for b in (0, 1)]
    table = pd.DataFrame(rows, columns=["alpha", "beta", "mean"])
    table.loc[(table["alpha"] == 0.01) & (table["beta"] == 1), "mean"] = best
    names = {"seed": seed, "method": "AaBb", "evaluate_clients": "cohort"}
    return table.assign(**(made.NAMES | made.SUMMED | names))


def test_clients_after_local_training_and_all_clients_are_two_figures():
    both = pd.concat([points(0, 0.8), points(0, 0.6).assign(evaluate_clients="all")])
    text = figure9.draw(both, STUDY, "quick")
    code = figure9.draw(both, STUDY, "quick", evaluate_clients="all")
    assert (text["mean"].max(), code["mean"].max()) == (80, 60)
    of_rounds = " clients of rounds, each counted in every round, after local training, on"
    assert of_rounds in figure9.caption(text)
    assert " clients, as they are, on" in figure9.caption(code)


# --- figure 10 -------------------------------------------------------------------------------


def test_runs_without_coefficients_are_refused():
    with pytest.raises(UsageError, match="no run of the grid has coefficients: name methods"):
        figure10.draw(runs(WAYS), STUDY, "quick")
