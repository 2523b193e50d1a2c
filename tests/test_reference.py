"""Runs that a study keeps, `fedgrid.reference`, and their place in its tables."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest

import made
from fedgrid import reference
from fedgrid.analysis.published import join_reference
from fedgrid.analysis.scores import CELL
from fedgrid.report import comparison
from fedgrid.report import reference as product
from fedgrid.runtime.names import UsageError
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.reading import read_study

NAMES = dict(zip(CELL, ("fedavg", "cifar10", "dir0.05", "fedlmd"), strict=True))


def leave(folder: Path, percents: list[float], method: str = "fedavg", **about) -> None:
    """A run's files in a folder, evaluated after every round."""
    folder.mkdir(parents=True)
    table = pd.DataFrame({"accuracy": percents}).rename_axis("round").reset_index()
    table.assign(accuracy=table["accuracy"] / 100, loss=1, train_loss=1).to_csv(
        folder / "metrics.csv", index=False
    )
    done = len(percents) - 1
    run = made.GRID.resolve(NAMES | {"method": method, "seed": 0})
    run["protocol"]["rounds"] = done
    summary = {
        "run": run_of_stage("train", run),
        **{"rounds": done, "seconds": 12.0, "resumed_at": 0, "device": "a CPU", "threads": 1},
        **{"versions": {"torch": "2.11"}, "code": "c0de"},
    }
    (folder / "summary.json").write_text(json.dumps(summary | about))


def kept(folder: Path, capsys) -> pd.DataFrame:
    """What the command prints of a folder."""
    reference.main([str(folder)])
    (folder / "kept.csv").write_text(capsys.readouterr().out)
    return pd.read_csv(folder / "kept.csv")


def test_a_row_per_run_says_how_good_it_was_and_what_made_it(tmp_path, capsys):
    leave(tmp_path / "a/fedavg/seed0", [10, 50, 40])
    leave(tmp_path / "a/fedlmd/seed0", [10, 30, 60, 50], "fedlmd", resumed_at=1)
    table = kept(tmp_path, capsys).set_index("method")
    assert table["accuracy"].to_dict() == {"fedavg": 50, "fedlmd": 60}
    assert table["final"].to_dict() == {"fedavg": 40, "fedlmd": 50}
    assert table["smoothed"]["fedavg"] == pytest.approx(0.6 * (0.6 * 10 + 0.4 * 50) + 0.4 * 40)
    # of 2 and of 3 - 1 rounds: those that the seconds are of
    assert table["seconds_per_round"].to_dict() == {"fedavg": 6, "fedlmd": 6}
    made_with = table[["device", "threads", "torch", "code"]]
    assert (made_with == ["a CPU", 1, 2.11, "c0de"]).all(axis=None)


def test_the_curves_can_be_kept_as_well(tmp_path, capsys):
    leave(tmp_path / "a/fedavg/seed0", [10, 50, 40])
    leave(tmp_path / "a/fedlmd/seed0", [10, 30], "fedlmd")
    reference.main([str(tmp_path), "--rounds"])
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table["accuracy"].tolist() == [10, 50, 40, 10, 30]
    assert table["round"].tolist() == [0, 1, 2, 0, 1]
    assert table["method"].tolist() == 3 * ["fedavg"] + 2 * ["fedlmd"]


def test_without_runs_there_is_nothing_to_keep(tmp_path):
    with pytest.raises(UsageError, match="no finished run was found in"):
        reference.main([str(tmp_path)])


def mine(folder) -> dict:
    """What a study that names the kept runs has of them."""
    whole = "{title: mine, protocols: {}, scales: {}, products: {}, reference: kept.csv}"
    (folder / "mine.yaml").write_text(whole)
    return {"reference": read_study(folder / "mine.yaml")["reference"]}


def test_a_table_has_what_the_study_keeps_beside_ours(tmp_path, capsys):
    leave(tmp_path / "run", [10, 50, 40])
    kept(tmp_path, capsys)
    study = made.STUDIES["fedlmd"] | mine(tmp_path)
    curve = made.evaluations({1: 0.2, 2: 0.3}, **NAMES, rounds=2, metric="best", tail=1)
    table = comparison.draw(curve, study, "paper")
    assert table["reference"].tolist() == [50]
    assert comparison.wide(table).loc[("FedAvg", "reference")].tolist() == ["50.00"]
    assert "kept with the study" in comparison.caption(table)
    other = comparison.draw(curve.assign(protocol="fedlmd-quick"), study, "quick")
    assert other["reference"].isna().all()
    assert ("FedAvg", "reference") not in comparison.wide(other).index
    assert "kept" not in comparison.caption(other)


def test_kept_runs_are_a_table_of_their_own_beside_the_published_values(tmp_path, capsys):
    leave(tmp_path / "a", [10, 50, 40])
    leave(tmp_path / "b", [10, 30, 60], "fedlmd", device="another CPU")
    kept(tmp_path, capsys)
    study = made.STUDIES["fedlmd"] | mine(tmp_path)
    table = product.draw(study, "quick")
    assert table["difference"].tolist() == pytest.approx([50 - 33.02, 60 - 50.45])
    shown = product.wide(table).loc["FedLMD"]
    assert shown[["published", "ours", "last round"]].tolist() == [50.45, 60, 60]
    assert shown[["dataset", "partition", "protocol", "seeds"]].tolist() == [
        *("CIFAR-10", "alpha=0.05", "fedlmd", 1)
    ]
    assert "1 seed, 2 rounds, on a CPU or another CPU" in product.caption(table)
    assert "best test accuracy" in product.caption(table)


def test_a_run_that_diverged_leaves_no_number(tmp_path, capsys):
    leave(tmp_path / "run", [10, 50, 40])
    table = kept(tmp_path, capsys).assign(accuracy=None)
    study = {"reference": table.astype(object).where(table.notna(), "").to_dict("records")}
    assert join_reference(table[CELL], study)["reference"].isna().all()


def test_a_reference_that_is_not_there_is_named(tmp_path):
    (tmp_path / "mine.yaml").write_text("title: mine\nreference: gone.csv\n")
    with pytest.raises(UsageError, match=r"gone\.csv"):
        read_study(tmp_path / "mine.yaml")
