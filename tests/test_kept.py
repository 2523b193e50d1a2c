"""Finished runs that are kept with a study: `fedgrid.keep`, what reads them, and what says so.

Results are made by hand for a study of two methods and two seeds; every kind of table is read.
"""

import csv
import json
from difflib import ndiff
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedgrid import collect, draw, keep
from fedgrid.runtime.names import UsageError
from fedgrid.study import kept
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import COLLECTED, OF_RUN, collected_path
from made import STUDIES

PROTOCOL = {"base": "fedsls-quick", "clients": 3, "rounds": 10, "evaluate_every": 5, "tail": 4}
BLOCK = {"protocol": ["mini"], "dataset": ["digits"], "partition": ["dir0.1"], "seed": [0, 1]}
BLOCK |= {"method": ["fedavg", "fedprox"]}
MINI = {
    "title": "mini",
    "protocols": {"mini": PROTOCOL},
    "scales": {"quick": {"grids": {"main": [BLOCK], "one": [BLOCK | {"method": ["fedavg"]}]}}},
}
EVERY = {"every": {"from": {kind: f"{kind}/main" for kind in COLLECTED}, "formats": ["csv"]}}
WHAT = ("mini", "quick", "main")
MADE = {"code": "4630d3819846", "device": "AMD EPYC", "threads": 1, "versions": {"torch": "2.15.0"}}


def grid_of(**protocol) -> Grid:
    """The made-up study beside the others; a product of it reads every kind of table."""
    study = MINI | {"products": {}, "protocols": {"mini": PROTOCOL | protocol}}
    made = Grid(STUDIES | {"mini": study})
    made.studies["mini"]["products"] = EVERY
    return made


GRID = grid_of()


def some(run: dict, size: int) -> np.ndarray:
    """Numbers with many digits, which depend on the run's name."""
    random = np.random.default_rng([*repr(sorted(run["name"].items())).encode()])
    return random.uniform(0.1, 0.9, size)


def content(kind: str, run: dict) -> pd.DataFrame | dict | np.ndarray:
    """What a run leaves of a kind; only FedProx has a column `norm`."""
    if kind == "runs":
        table = pd.DataFrame({"round": [0, 5, 10], "accuracy": some(run, 3), "loss": some(run, 3)})
        table = table.assign(train_loss=[np.nan, *some(run, 2)])
        return table.assign(norm=some(run, 3)) if "fedprox" in run["method"] else table
    if kind == "predictions":
        return pd.DataFrame({"round": [0, 0], "class": [0, 1], "predicted": [5, 2]})
    if kind == "clients":
        table = pd.DataFrame({"round": 10, "client": [0, 2], "samples": [5, 3]})
        return table.assign(server_accuracy=np.nan, own_accuracy=some(run, 2))
    if kind in ("seconds", "settings"):
        about = {"seconds": 12.5, "rounds": 10, "diverged": None, "resumed_at": 0, "joules": {}}
        return {"run": run_of_stage("train", run)} | MADE | about
    if kind == "encoding":
        return {"seconds": 2.123456789, "pretrain_seconds": 3}
    if kind == "saliency":
        found = 1.23456789012 + run["seed"] + np.arange(2)
        table = pd.DataFrame({"client": [0, 1], "size": [10, 30], "R": found})
        return table.assign(R_per_sample=0.5, weight=[0.25, 0.75], effective_clients=1.6)
    if kind == "interpolation":
        table = pd.DataFrame({"alpha": [0.0, 0.0], "beta": [0.0, 1.0], "mean": some(run, 2)})
        return table.assign(weighted=some(run, 2), std=0.1, clients=3)
    return np.array([[0, 3], [4, 0], [0, 0]])


def write(path: Path, what: pd.DataFrame | dict | np.ndarray) -> None:
    """Write one file of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(what, np.ndarray):
        np.savez(path, counts=what, members=np.arange(7))
    elif isinstance(what, dict):
        path.write_text(json.dumps(what))
    else:
        what.to_csv(path, index=False)


def path_of(kind: str, method: str = "fedavg", seed: int = 0, everything: Grid = GRID) -> str:
    run = resolved(method, seed, everything)
    return collected_path(kind, run["name"], run["protocol"] | {"cells": run["cells"]})


def resolved(method: str = "fedavg", seed: int = 0, everything: Grid = GRID) -> dict:
    names = {"protocol": "mini", "dataset": "digits", "partition": "dir0.1"}
    return everything.resolve(names | {"method": method, "seed": seed})


def finish(results: Path, method: str, seed: int, everything: Grid = GRID) -> None:
    """Write all that a run and its stages leave."""
    for kind in COLLECTED:
        path = results / path_of(kind, method, seed, everything)
        write(path, content(kind, resolved(method, seed, everything)))


def remove(results: Path, method: str, seed: int) -> None:
    """Remove the files that only this run has."""
    for kind in OF_RUN:
        (results / path_of(kind, method, seed)).unlink(missing_ok=True)


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    """The folder in which runs of the made-up study are kept; it does not exist yet."""
    reference = tmp_path / "reference"
    for module in (kept, draw):
        monkeypatch.setattr(
            module, "store_folder", lambda study, scale, *_: reference / study / scale
        )
    monkeypatch.setattr(keep, "configured", lambda: GRID)
    return reference / "mini/quick"


@pytest.fixture
def results(tmp_path, store) -> Path:
    """What two methods and two seeds left."""
    for method in BLOCK["method"]:
        for seed in BLOCK["seed"]:
            finish(tmp_path / "results", method, seed)
    return tmp_path / "results"


def keep_all(results: Path, *options: str) -> None:
    keep.main(["mini", "quick", "--results", str(results), *options])


def there(kind: str, results: Path, everything: Grid = GRID, grid: str = "main"):
    return collect.collect_there(kind, everything, "mini", "quick", grid, results)


NOWHERE = Path("nowhere")


def as_written(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it is read again."""
    return pd.read_csv(StringIO(table.to_csv(index=False)))


# -- what is kept is what was there -------------------------------------------------------------


@pytest.mark.parametrize("kind", COLLECTED)
def test_a_table_from_kept_runs_is_that_from_results(kind, results):
    keep_all(results)
    expected, found = (as_written(there(kind, folder)) for folder in (results, NOWHERE))
    assert not expected.pop("kept").any()
    assert found.pop("kept").all()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-7, atol=0)


@pytest.mark.parametrize("kind", COLLECTED)
def test_the_command_reads_what_the_function_reads(kind, results, tmp_path):
    keep_all(results)
    blocks = GRID.narrowed(*WHAT)
    protocols = json.dumps(GRID.protocols_of(blocks))
    ids = [entry["id"] for entry in kept.read_index(tmp_path / "reference/mini/quick").values()]
    ids = [i for i in ids if kind_has(kind, i, tmp_path / "reference/mini/quick")]
    command = [kind, json.dumps(blocks), "--kept", "mini/quick", "--ids", *ids]
    out = tmp_path / "out.csv"
    work = collect.main(
        [*command, "--protocols", protocols, "--results", "nowhere", "--out", str(out)]
    )
    assert [*work.inputs] == []
    there(kind, NOWHERE).to_csv(tmp_path / "expected.csv", index=False)
    assert out.read_bytes() == (tmp_path / "expected.csv").read_bytes()


def kind_has(kind: str, of: str, folder: Path) -> bool:
    return any(row["id"] == of for row in rows_of(folder / f"{kind}.csv"))


def rows_of(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(path.read_text().splitlines())]


def test_a_table_without_kept_runs_has_no_new_column(results, tmp_path):
    keep_all(results)
    out, blocks = tmp_path / "out.csv", GRID.narrowed(*WHAT)
    protocols = json.dumps(GRID.protocols_of(blocks))
    command = ["runs", json.dumps(blocks), "--protocols", protocols, "--results", str(results)]
    collect.main([*command, "--out", str(out)])
    assert "kept" not in pd.read_csv(out)


def test_a_run_in_results_is_read_there_and_others_from_what_is_kept(results):
    keep_all(results)
    remove(results, "fedprox", 1)
    write(results / path_of("runs"), content("runs", resolved()).assign(accuracy=0.25))
    table = there("runs", results)
    flags = table.groupby(["method", "seed"])["kept"].unique().map(list).to_dict()
    assert flags == {
        **{("fedavg", 0): [False], ("fedavg", 1): [False]},
        **{("fedprox", 0): [False], ("fedprox", 1): [True]},
    }
    assert set(table[(table["method"] == "fedavg") & (table["seed"] == 0)]["accuracy"]) == {0.25}
    assert table["kept"].dtype == bool


def test_there_is_no_table_of_no_runs(store):
    assert there("runs", NOWHERE) is None


def test_only_the_runs_of_the_grid_are_read(results):
    keep_all(results)
    assert set(there("runs", NOWHERE, grid="one")["method"]) == {"fedavg"}


def test_a_run_that_ended_in_an_infinite_loss_stays_one(results):
    ended = content("runs", resolved()).assign(loss=[2.0, np.nan, np.inf])
    write(results / path_of("runs"), ended)
    expected = there("runs", results)
    keep_all(results)
    found = there("runs", NOWHERE)
    assert found["diverged"].tolist() == expected["diverged"].tolist()
    assert found["diverged"].any()
    assert np.isposinf(found["loss"]).sum() == 1


def test_the_index_says_what_made_a_run(results, store):
    keep_all(results)
    (entry,) = (e for path, e in kept.read_index(store).items() if path.endswith("fedavg/seed0"))
    expected = {"path": "runs/mini/digits/dir0.1/fedavg/seed0", "fedgrid": "0.1.0"}
    expected |= {"code": "4630d3819846", "device": "AMD EPYC", "threads": "1", "torch": "2.15.0"}
    expected |= {"seconds": "12.5", "rounds": "10", "diverged": "False"}
    assert expected.items() <= entry.items()
    partition = kept.read_index(store)[path_of("partition")]
    assert [partition[name] for name in (*kept.MAKERS, "seconds")] == [""] * 6


def test_only_the_kinds_that_products_read_are_kept(results, store, monkeypatch):
    few = {"few": {"from": {"runs": "runs/main", "counts": "partition/one"}}}
    monkeypatch.setitem(GRID.studies["mini"], "products", few)
    keep_all(results)
    assert {path.name for path in store.iterdir()} == {"index.csv", "runs.csv", "partition.csv"}


# -- small differences --------------------------------------------------------------------------


def texts(store: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in sorted(store.iterdir())}


def changes(old: list[str], new: list[str]) -> set[str]:
    """Which marks a difference has: + for lines that are new, - for those that are gone."""
    return {line[0] for line in ndiff(old, new)} - {" ", "?"}


def ids_of(index: list[str]) -> set[int]:
    return {int(line.partition(",")[0]) for line in index[1:]}


@pytest.mark.parametrize("late", [("fedavg", 0), ("fedprox", 0), ("fedprox", 1)])
def test_one_more_run_only_adds_lines(late, results, store):
    first = results.parent / "first"
    for method in BLOCK["method"]:
        for seed in BLOCK["seed"]:
            if (method, seed) != late:
                finish(first, method, seed)
    keep_all(first)
    old = texts(store)
    keep_all(results)
    new = texts(store)
    assert changes(old["index.csv"], new["index.csv"]) == {"+"}
    assert all(changes(old[name], new[name]) <= {"+"} for name in old)
    before, after = (ids_of(lines) for lines in (old["index.csv"], new["index.csv"]))
    assert min(after - before) > max(before)
    for name, lines in new.items():
        assert lines[0] == old[name][0]


def test_what_is_kept_again_unchanged_has_the_same_bytes(results, store):
    keep_all(results)
    old = {path.name: path.read_bytes() for path in store.iterdir()}
    keep_all(results)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == old
    assert not any(b"\r" in text for text in old.values())


def test_a_run_that_is_kept_again_replaces_its_rows(results, store):
    keep_all(results)
    old = rows_of(store / "runs.csv")
    write(results / path_of("runs"), content("runs", resolved()).assign(accuracy=0.25))
    remove(results, "fedprox", 1)
    keep_all(results)
    new = rows_of(store / "runs.csv")
    (of,) = {row["id"] for row in new if row["accuracy"] == "0.25"}
    assert [row for row in new if row["id"] != of] == [row for row in old if row["id"] != of]
    assert len([row for row in new if row["id"] == of]) == 3


def test_a_run_that_is_kept_again_for_one_grid_is_kept_as_a_whole(results, store, monkeypatch):
    """The kinds that other grids read are of the same training."""
    keep_all(results)
    changed = content("predictions", resolved()).assign(predicted=[1, 6])
    write(results / path_of("predictions"), changed)
    monkeypatch.setitem(EVERY["every"]["from"], "more", "runs/one")
    keep_all(results, "--grid", "one")
    assert {"1", "6"} <= {row["predicted"] for row in rows_of(store / "predictions.csv")}


def test_tables_are_sorted_by_path_and_have_eight_digits(results, store):
    keep_all(results)
    index = rows_of(store / "index.csv")
    assert [row["path"] for row in index] == sorted(row["path"] for row in index)
    order = [row["id"] for row in index]
    found = [row["id"] for row in rows_of(store / "runs.csv")]
    assert found == sorted(found, key=order.index)
    values = [row["accuracy"] for row in rows_of(store / "runs.csv")]
    assert all(len(value.lstrip("0.").replace(".", "")) <= 8 for value in values)
    assert any(len(value) == 10 for value in values)


# -- what does not count ------------------------------------------------------------------------


def test_a_kept_run_with_other_settings_is_ignored(results, store):
    keep_all(results)
    index, changed = kept.read_index(store), grid_of(lr=0.7)
    assert kept.is_kept(index, "runs", resolved())
    assert not kept.is_kept(index, "runs", resolved(everything=changed))
    assert there("runs", NOWHERE, changed) is None
    # which samples a client has, and how a run is summed up, do not depend on the learning rate
    assert kept.is_kept(index, "partition", resolved(everything=changed))
    assert kept.is_kept(index, "runs", resolved(everything=grid_of(tail=1)))


def test_a_kind_that_is_not_kept_is_not_there(results, store, monkeypatch):
    monkeypatch.setitem(GRID.studies["mini"], "products", {"one": {"from": {"r": "runs/main"}}})
    keep_all(results)
    index = kept.read_index(store)
    assert kept.is_kept(index, "runs", resolved())
    assert not kept.is_kept(index, "predictions", resolved())


def test_a_run_in_results_with_other_settings_is_not_kept(results, store, capsys):
    keep_all(results)
    other = {"run": run_of_stage("train", resolved(everything=grid_of(lr=0.7)))}
    summary = results / path_of("seconds", "fedprox", 1)
    write(summary, content("seconds", resolved("fedprox", 1)) | other)
    write(results / path_of("runs", "fedprox", 1), content("runs", resolved()).assign(accuracy=0.5))
    before = texts(store)
    capsys.readouterr()
    keep_all(results)
    assert texts(store) == before
    assert "1 runs of the grids are not finished" in capsys.readouterr().out
    table = there("runs", results)
    assert set(table[table["kept"]].groupby(["method", "seed"]).groups) == {("fedprox", 1)}


def test_the_command_says_how_many_are_kept_and_how_many_are_missing(results, capsys):
    for seed in (0, 1):
        remove(results, "fedprox", seed)
    keep_all(results)
    said = capsys.readouterr().out
    assert "2 runs are kept in " in said
    assert "2 runs of the grids are not finished in " in said


# -- what is refused ----------------------------------------------------------------------------


def without_column(store: Path) -> None:
    rows = rows_of(store / "index.csv")
    keep.write_rows(store / "index.csv", [c for c in kept.COLUMNS if c != "content"], [
        {k: v for k, v in row.items() if k != "content"} for row in rows
    ])  # fmt: skip


def edit(name: str, change) -> callable:
    """Return a function that changes the lines of a table of the store."""

    def edited(store: Path) -> None:
        lines = (store / name).read_text().splitlines(keepends=True)
        (store / name).write_text("".join(change(lines)))

    return edited


DAMAGED = {
    "lacks a column": (without_column, "index.csv has no column `content`"),
    "has no index": (lambda store: (store / "index.csv").unlink(), "index.csv cannot be read"),
    "lacks a kind": (lambda store: (store / "runs.csv").unlink(), "runs.csv cannot be read"),
    "has a number twice": (
        edit("index.csv", lambda lines: [*lines, lines[-1]]),
        "index.csv has the id [0-9]+ twice",
    ),
    "has a name for a number": (
        edit("index.csv", lambda lines: [*lines[:-1], "x" + lines[-1]]),
        "the id `x[0-9]+` is not a whole number",
    ),
    "has rows of nothing": (
        edit("runs.csv", lambda lines: [*lines, "99" + lines[-1][1:]]),
        "runs.csv has the id 99, which index.csv does not",
    ),
    "has no rows of a run": (
        edit("runs.csv", lambda lines: lines[:-3]),
        "runs.csv has no rows of the id",
    ),
    "has lost a row": (edit("runs.csv", lambda lines: lines[:-1]), "are not those kept"),
    "has another number": (
        edit("runs.csv", lambda lines: [*lines[:-1], lines[-1].replace("0.", "1.", 1)]),
        "are not those kept",
    ),
    "ends in a row": (
        edit("runs.csv", lambda lines: [*lines[:-1], lines[-1][:5]]),
        "too few or too many values",
    ),
    "is not text": (
        lambda store: (store / "runs.csv").write_bytes(b"\xff\xfe\x00"),
        "runs.csv cannot be read",
    ),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_store_is_refused_in_one_sentence(how, results, store):
    keep_all(results)
    damage, said = DAMAGED[how]
    damage(store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    for use in (lambda: there("runs", NOWHERE), lambda: keep_all(results)):
        with pytest.raises(UsageError, match=said) as refused:
            use()
        assert "\n" not in str(refused.value)
        assert kept.MEND in str(refused.value)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before


@pytest.mark.parametrize("kind", ["runs", "settings", "partition"])
def test_a_damaged_run_is_refused_and_nothing_is_kept(kind, results, store):
    path = results / path_of(kind, "fedavg", 1)
    path.write_bytes(path.read_bytes()[:12])
    if kind == "settings":  # it does not say what it was made with
        keep_all(results)
        assert len(there("runs", NOWHERE).groupby(["method", "seed"])) == 3
    else:
        with pytest.raises(UsageError, match=r"the run in .*seed1.* cannot be read"):
            keep_all(results)
        assert not store.exists()


def test_a_run_without_a_summary_is_refused(results):
    (results / path_of("seconds")).unlink()
    with pytest.raises(UsageError, match=r"the run in .*seed0/summary.json cannot be read"):
        keep_all(results)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mimi", "quick"], "no study is called `mimi`: did you mean mini"),
        (["mini", "quik"], "no scale is called `quik`: did you mean quick"),
        (
            ["mini", "quick", "--grid", "mian"],
            "no grid of mini at the quick scale is called `mian`",
        ),
        (["mini", "quick"], "no finished run of mini at the quick scale is in empty: run"),
    ],
)
def test_a_wrong_command_is_answered_in_one_sentence(words, said, store):
    with pytest.raises(UsageError, match=said):
        keep.main([*words, "--results", "empty"])
    assert not store.exists()


def test_an_id_that_is_not_kept_is_refused(results):
    keep_all(results)
    blocks = json.dumps(GRID.narrowed(*WHAT))
    with pytest.raises(UsageError, match=r"no id in .*index.csv is called `77`"):
        collect.main(["runs", blocks, "--kept", "mini/quick", "--ids", "77", "--out", "out.csv"])
