"""What a run costs: `fedgrid.report.cost`."""

import numpy as np
import pandas as pd
import pytest

import made
from fedgrid.report import cost
from fedgrid.runtime.names import UsageError

ABOUT = made.NAMES | made.SUMMED  # two of four clients in a round
RUN = {
    **{"parameters": 1000, "samples_per_round": 50.0, "flops_per_sample": 4e6},
    **{"flops_around": 3e7, "flops_before": 9e8, "clients": 4},
    **{"rounds_done": 10, "resumed_at": 0, "seconds": 20.0, "peak_memory_mb": 300},
    **{"peak_gpu_memory_mb": 0, "device": "a processor", "threads": 2},
}


def drawn(*runs: dict) -> pd.Series:
    """The table of runs of one method, which have these values besides those of RUN."""
    rows = [ABOUT | RUN | {"seed": seed} | run for seed, run in enumerate(runs)]
    return cost.draw(pd.DataFrame(rows), made.STUDY, "quick")


def test_costs_by_hand():
    row = drawn({}, {"seconds": 40.0, "peak_memory_mb": 500}).iloc[0]
    assert row["client_gflop"] == pytest.approx((4e6 * 50 + 3e7) / 1e9)
    assert row["before_gflop"] == pytest.approx(0.9)  # of each of the four clients
    assert row["total_tflop"] == pytest.approx(((4e6 * 50 + 3e7) * 2 * 10 + 9e8 * 4) / 1e12)
    assert row["seconds_per_round"] == pytest.approx((2 + 4) / 2)
    assert row["training_seconds"] == pytest.approx((20 + 40) / 2)
    assert row[["peak_memory_mb", "parameters", "seeds"]].tolist() == [500, 1000, 2]


def test_seconds_of_a_resumed_run_are_those_of_the_rounds_since_then():
    row = drawn({"resumed_at": 6}).iloc[0]
    assert row[["seconds_per_round", "training_seconds"]].tolist() == [5, 50]
    assert np.isnan(drawn({"resumed_at": 10}).iloc[0]["seconds_per_round"])


def test_machines_are_named_and_different_ones_are_not_compared():
    table = drawn({}, {"device": "another"})
    assert table["device"].tolist() == ["a processor or another"]
    assert "cannot be compared" in cost.caption(table)
    assert "cannot be compared" not in cost.caption(drawn({}))


def test_a_network_that_cannot_be_counted_has_seconds_only():
    table = drawn({"flops_per_sample": np.nan})
    assert "GFLOP, a client and round" in cost.wide(drawn({}))
    assert not {"GFLOP, a client and round", "TFLOP in all"} & {*cost.wide(table)}
    assert table["training_seconds"].tolist() == [20]


def test_runs_of_earlier_versions_are_refused():
    earlier = pd.DataFrame([ABOUT | RUN]).drop(columns="parameters")
    with pytest.raises(UsageError, match="train them again"):
        cost.draw(earlier, made.STUDY, "quick")


COUNTED = {
    "fedlmd": {"fedavg", "fedntd", "fedlmd", "fedlmd_tf"},
    "fedsls": {"fedavg", "fedsls", "fedsl-f2"},
    "normalization": {"fedavg", "fedavg+norm", "fedbabu", "fedbabu+norm"},
    "privatization": {"AB", "AaB", "AaBb"},
}


@pytest.mark.parametrize("study", COUNTED)
@pytest.mark.parametrize("scale", ["quick", "small", "paper"])
def test_every_study_counts_its_methods_in_runs_of_one_round(study, scale):
    runs = made.GRID.runs(study, scale, "counted")
    assert COUNTED[study] <= {run["method"] for run in runs}
    protocols = [made.GRID.protocol(run["protocol"]) for run in runs]
    assert all(p["rounds"] == 1 and p["metrics"] == ["operations"] for p in protocols)
    assert {"cost", "traffic"} <= {*made.GRID.products(study, scale)}
