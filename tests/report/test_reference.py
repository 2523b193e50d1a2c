"""Runs that a study keeps, `fedgrid keep --runs`, and their place in its tables."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest

import made
from fedgrid.analysis.published import join_reference
from fedgrid.analysis.scores import CELL
from fedgrid.commands import keep
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
    keep.main(["--runs", str(folder)])
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
    keep.main(["--runs", str(tmp_path), "--rounds"])
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table["accuracy"].tolist() == [10, 50, 40, 10, 30]
    assert table["round"].tolist() == [0, 1, 2, 0, 1]
    assert table["method"].tolist() == 3 * ["fedavg"] + 2 * ["fedlmd"]


def mine(folder) -> dict:
    """What a study that names the kept runs has of them."""
    whole = "{title: mine, protocols: {}, scales: {}, products: {}, reference: kept.csv}"
    (folder / "mine.yaml").write_text(whole)
    return {"reference": read_study(folder / "mine.yaml")["reference"], "curves": {}}


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


# --- curves of several origins -------------------------------------------------------------------


def kept_curve(percents: dict[int, float], seed: int = 0, **names) -> list[dict[str, str]]:
    """The rows of a file of curves, as texts: accuracies by round."""
    about = NAMES | {"seed": str(seed)} | names
    return [about | {"round": str(r), "accuracy": str(a)} for r, a in percents.items()]


def with_curves(**by_origin: list[dict[str, str]]) -> dict:
    """FedLMD's study without kept runs, and with these curves."""
    return made.STUDIES["fedlmd"] | {"reference": [], "curves": by_origin}


def test_curves_have_their_moving_averages_and_the_published_value():
    ours = kept_curve({2: 40, 0: 10, 1: 60}) + kept_curve({0: 10}, method="fedntd")
    table = product.draw(with_curves(ours=ours, theirs=kept_curve({1: 20, 2: 30}, 7)), "quick")
    assert table["curve"].tolist() == 3 * ["ours"] + 2 * ["theirs"]  # none of FedNTD
    assert table["round"].tolist() == [0, 1, 2, 1, 2]
    # 10, then 0.6 * 10 + 0.4 * 60 = 30, then 0.6 * 30 + 0.4 * 40; 20, then 0.6 * 20 + 0.4 * 30
    assert table["average"].tolist() == pytest.approx([10, 30, 34, 20, 24])
    assert table["seed"].tolist() == [0, 0, 0, 7, 7]
    assert set(table["published"]) == {33.02}
    assert product.wide(table).empty  # the page has the kept runs


def test_a_curve_of_another_protocol_or_partition_is_not_compared():
    ours = kept_curve({1: 10})
    for other in ({"protocol": "fedlmd-bf16"}, {"partition": "shards2"}, {"dataset": "mnist"}):
        study = with_curves(ours=ours, theirs=kept_curve({1: 20}, **other))
        assert product.read_curves(study).empty
        assert "figure" not in product.caption(product.draw(study, "quick"))


def test_the_caption_has_the_numbers_of_each_curve_and_their_differences():
    # blocks of 20 rounds: by 1, 2, 3, 4 and 5 points; not counted are 0 and a round of one origin
    ours = {r: 50 + (r - 1) // 20 for r in range(1, 101)} | {0: 0, 70: 90, 101: 99}
    theirs = dict.fromkeys(range(1, 101), 49.0) | {0: 10, 70: 86}
    table = product.draw(with_curves(ours=kept_curve(ours), theirs=kept_curve(theirs, 3)), "quick")
    gaps = product.compare_blocks(table)
    assert gaps["difference"].tolist() == pytest.approx([1, 2, 3, 4, 5])
    found = product.caption(table)
    assert "Curves of FedAvg, CIFAR-10, alpha=0.05: ours (seed 0) has 99.00 at best" in found
    assert "theirs (seed 3) has 86.00 at best, after round 70, 49.00 after the last round" in found
    assert "Means of 20 rounds of ours minus those of theirs: +1.00 to +5.00" in found
    assert "on average +3.00, and +4.00 in the last 60 rounds" in found


def test_fedlmds_public_code_is_compared_in_all_200_rounds():
    table = product.draw(made.STUDIES["fedlmd"], "quick")
    evaluations = table[table["curve"].notna()]
    ends = product.summarise_curves(evaluations).set_index("curve")
    assert ends.index.tolist() == ["ours", "the paper's public code"]
    assert set(ends["method"]) == {"fedavg"}
    blocks = product.compare_blocks(evaluations)
    assert blocks["block"].tolist() == list(range(200 // product.BLOCK))
    # the run of the table and that of the curve are the same
    kept = table[table["curve"].isna()].set_index(CELL)
    (cell,) = evaluations[CELL].drop_duplicates().itertuples(index=False, name=None)
    assert kept.loc[cell, "mean"] == ends.loc["ours", "best"]
    assert kept.loc[cell, "smoothed"] == pytest.approx(ends.loc["ours", "average"], abs=1e-3)


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ("5", "mine.yaml: curves: 5 is not"),
        ("{ours: 5}", "mine.yaml: curves.ours: 5 is not a list"),
        ("{ours: gone.csv}", r"mine.yaml: the curves ours gone\.csv cannot be read"),
        ("{ours: short.csv}", r"the curves ours short\.csv, line 2, has not 2 values"),
        ("{ours: few.csv}", "curves.ours: number 1: the key `protocol` is missing: add it"),
        ("{ours: late.csv}", "curves.ours: number 1: round: `2.5` is not a whole number"),
        ("{ours: high.csv}", "curves.ours: number 1: accuracy: `high` is not a number"),
    ],
)
def test_wrong_curves_are_answered_in_one_sentence(curves, message, tmp_path):
    head, start = "method,dataset,partition,protocol,seed,round,accuracy", "a,d,dir0.1,p,0,"
    tables = {"short": "a,b\n1", "few": "method,dataset,partition\na,d,dir0.1"}
    tables |= {"late": f"{head}\n{start}2.5,50", "high": f"{head}\n{start}2,high"}
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    whole = f"{{title: mine, protocols: {{}}, scales: {{}}, products: {{}}, curves: {curves}}}"
    (tmp_path / "mine.yaml").write_text(whole)
    with pytest.raises(UsageError, match=message):
        read_study(tmp_path / "mine.yaml")
