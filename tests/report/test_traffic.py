"""What travels until a method is as accurate as the baseline: `fedgrid.report.traffic`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.report import traffic
from fedgrid.runtime.names import UsageError

ACCURACIES = {  # by round, for two seeds; a run counts with the mean of rounds 8 and 10
    "fedavg": ({0: 0.1, 4: 0.3, 8: 0.49, 10: 0.51}, {0: 0.1, 4: 0.52, 8: 0.49, 10: 0.51}),
    "fast": ({0: 0.1, 4: 0.6, 8: 0.7, 10: 0.7}, {0: 0.1, 4: 0.5, 8: 0.4, 10: 0.7}),
    "slow": ({0: 0.1, 4: 0.2, 8: 0.3, 10: 0.5}, {0: 0.1, 4: 0.2, 8: 0.3, 10: 0.4}),
}
BYTES = {"fedavg": (1000, 1000), "fast": (3000, 1000), "slow": (10, 10)}  # down, up


def drawn(**options) -> pd.DataFrame:
    runs, seconds = [], []
    for method, by_seed in ACCURACIES.items():
        for seed, accuracies in enumerate(by_seed):
            runs.append(made.evaluations(accuracies, method=method, seed=seed))
            down, up = BYTES[method]
            row = made.NAMES | made.SUMMED | {"method": method, "seed": seed}
            seconds.append(pd.DataFrame([row | {"bytes_down": down, "bytes_up": up}]))
    given = {"runs": pd.concat(runs), "seconds": pd.concat(seconds)}
    table = traffic.draw(**given, study=made.STUDY, scale="quick", **options)
    return table.set_index("method")


def test_rounds_and_megabytes_to_the_baselines_score():
    table = drawn()
    assert table["target"].unique() == pytest.approx([50])
    assert table.loc["fedavg", "rounds_to_target"] == pytest.approx((10 + 4) / 2)
    assert table.loc["fast", "rounds_to_target"] == 4
    assert np.isnan(table.loc["slow", "rounds_to_target"])  # one seed does not reach it
    clients = 2  # half of four
    assert table.loc["fast", "down"] == pytest.approx(clients * 3000 / 1e6)
    assert table.loc["fast", "to_target"] == pytest.approx(clients * 4000 * 4 / 1e6)


def test_its_forms_and_what_earlier_runs_lack():
    table = drawn().reset_index()
    assert "fast" in traffic.wide(table).index
    assert "Megabytes" in traffic.caption(table)
    runs = made.runs({"fedavg": [50]})
    with pytest.raises(UsageError, match="train them again"):
        traffic.draw(pd.DataFrame({"seed": [0]}), made.STUDY, "quick", runs)


def test_without_a_target_only_a_round_counts():
    row = made.NAMES | made.SUMMED | {"bytes_down": 1000, "bytes_up": 3000, "seed": 0}
    table = traffic.draw(pd.DataFrame([row]), made.STUDY, "quick")
    assert table[["down", "up"]].to_numpy().tolist() == [[0.002, 0.006]]  # two clients
    assert not any("to it" in name for name in traffic.wide(table))
    assert "target" not in traffic.caption(table)
