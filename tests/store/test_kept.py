"""Finished runs that are kept with a study: `fedgrid keep`, what reads them, and what says so.

Results are made by hand for a study of two methods and two seeds; every kind of table is read.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from difflib import ndiff
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from alone import REAL_DATA
from conftest import ENVIRONMENT, copied
from fedgrid.commands import collect, draw, keep
from fedgrid.report import _product
from fedgrid.report._kept import describe_again, describe_code, describe_kept, describe_processors
from fedgrid.runtime.code import contract, own_data, source
from fedgrid.runtime.names import UsageError
from fedgrid.store import identity, keeping, kept, trained_again
from fedgrid.store import tables as collected
from fedgrid.study import protocol
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import COLLECTED, OF_RUN, collected_path
from made import STUDIES
from workflows import new_times_on_every_file, planned, snakemake

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


def grid_of(dataset: str = "digits", **protocol) -> Grid:
    """The made-up study beside FedSLS; a product of it reads every kind of table."""
    study = MINI | {"products": {}, "protocols": {"mini": PROTOCOL | protocol}}
    blocks = [BLOCK | {"dataset": [dataset]}, BLOCK | {"dataset": [dataset], "method": ["fedavg"]}]
    grids = {name: [block] for name, block in zip(("main", "one"), blocks, strict=True)}
    study["scales"] = {"quick": {"grids": grids}}
    study["protocols"]["alias"] = {"base": "mini"}
    made = Grid({"fedsls": STUDIES["fedsls"], "mini": study})
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
        table = table.assign(weighted=some(run, 2), std=0.1, loss=some(run, 2), clients=3)
        return table.assign(divergence=np.nan, evaluate_clients="cohort")
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
    (dataset,) = everything.studies["mini"]["scales"]["quick"]["grids"]["main"][0]["dataset"]
    names = {"protocol": "mini", "dataset": dataset, "partition": "dir0.1"}
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
    monkeypatch.setattr(keep, "read_grid", lambda *_: GRID)
    by_code_of_today(monkeypatch)
    return reference / "mini/quick"


def by_code_of_today(monkeypatch, **changed: str) -> None:
    """Let the made-up code of runs count as today's, but for what has changed of some methods."""
    monkeypatch.setattr(
        kept, "list_changed_code", lambda code, files, run: changed.get(run["name"]["method"], "")
    )


RUNS = [(method, seed) for method in BLOCK["method"] for seed in BLOCK["seed"]]


@pytest.fixture
def results(tmp_path, store) -> Path:
    """What two methods and two seeds left."""
    for run in RUNS:
        finish(tmp_path / "results", *run)
    return tmp_path / "results"


def keep_all(results: Path, *options: str) -> None:
    keep.main(["mini", "quick", "--results", str(results), *options])


def there(kind: str, results: Path, everything: Grid = GRID, grid: str = "main"):
    return collected.collect_finished(kind, everything, "mini", "quick", grid, results)


NOWHERE = Path("nowhere")


def as_written(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it is read again."""
    return pd.read_csv(StringIO(table.to_csv(index=False)))


# -- what is kept is what was there -------------------------------------------------------------


@pytest.mark.parametrize("kind", COLLECTED)
def test_a_table_from_kept_runs_is_that_from_results(kind, results, store, tmp_path):
    """The function that collects, and the command."""
    keep_all(results)
    expected, found = (as_written(there(kind, folder)) for folder in (results, NOWHERE))
    assert not expected.pop("kept").any()
    assert found.pop("kept").all()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-7, atol=0)
    blocks = GRID.narrow_blocks(*WHAT)
    protocols = json.dumps(GRID.list_protocols(blocks))
    ids = dict.fromkeys(row["id"] for row in rows_of(store / f"{kind}.csv"))
    command = [kind, json.dumps(blocks), "--kept", "mini/quick", "--ids", *ids]
    out = tmp_path / "out.csv"
    work = collect.main(
        [*command, "--protocols", protocols, "--results", "nowhere", "--out", str(out)]
    )
    assert [*work.inputs] == []
    there(kind, NOWHERE).to_csv(tmp_path / "expected.csv", index=False)
    assert out.read_bytes() == (tmp_path / "expected.csv").read_bytes()


def rows_of(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(path.read_text().splitlines())]


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
    assert {*there("runs", NOWHERE, grid="one")["method"]} == {"fedavg"}


OWN = ("npz", "moved", "folder", "clients")


@pytest.fixture(params=OWN)
def own(request, results, monkeypatch) -> tuple[str, Grid]:
    """Runs of data of one's own are kept, and gone from the results: what is changed, the grid."""
    monkeypatch.chdir(results.parent)
    monkeypatch.setenv(own_data.VARIABLE, "{}")
    monkeypatch.setattr(own_data, "roots", lambda kind: [results.parent])
    monkeypatch.setattr(own_data, "KEPT", f"reference/*/*/{own_data.DESCRIBED}")
    entry = {"folder": "mine"} if request.param in ("folder", "clients") else {"npz": "mine.npz"}
    if request.param == "clients":
        entry["clients"] = "clients.csv"
    make_own(0)
    own_data.give({"datasets": {"mine": entry}})
    source.forget()
    everything = grid_of(dataset="mine")
    monkeypatch.setattr(keep, "read_grid", lambda *_: everything)
    for run in RUNS:
        finish(results, *run, everything)
    keep_all(results)
    yield request.param, everything
    source.forget()


def make_own(number: int) -> None:
    """Data of one's own in an .npz and in a folder; another number makes others."""
    random = np.random.default_rng(number)
    x, y = random.normal(5, 2, (12, 8, 8)), np.arange(12) % 3
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    for one in "abc":
        folder = Path("mine", one)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (8, 8), np.uint8)
        Image.fromarray(pixels).save(folder / f"{one}.png")
    Path("clients.csv").write_text(f"file,client\na/a.png,{number}\n")


def test_kept_runs_of_ones_own_data_are_those_of_the_same_content(own, results):
    kind, everything = own
    paths = [path for path in Path().glob("mine*") if path.is_file()]
    assert len(there("runs", NOWHERE, everything)) == 12
    assert len(there("partition", NOWHERE, everything))
    if kind == "moved":  # the same content elsewhere, with other times
        Path("elsewhere").mkdir()
        shutil.copyfile(paths[0], "elsewhere/other.npz")
        os.utime("elsewhere/other.npz", ns=(1, 1))
        own_data.give({"datasets": {"mine": {"npz": "elsewhere/other.npz"}}})
    elif kind == "clients":
        Path("clients.csv").write_text("file,client\na/a.png,other\n")
    else:
        make_own(1)
    source.forget()
    again = grid_of(dataset="mine")
    assert (there("runs", NOWHERE, again) is None) == (kind != "moved")
    assert (there("partition", NOWHERE, again) is None) == (kind != "moved")
    assert (there("runs", results, again) is None) == (kind != "moved")  # nor what is in results/


def test_kept_runs_are_drawn_without_the_data_they_were_trained_on(own):
    entry = own_data.entries()["mine"]
    place = Path("mine") if "folder" in entry else Path("mine.npz")
    place.rename("away")
    source.forget()
    again = grid_of(dataset="mine")
    assert len(there("runs", NOWHERE, again)) == 12
    assert source.literal("datasets.mine", "CLASSES") == 3
    with pytest.raises(UsageError, match=f"datasets.mine: there is no .* {place}"):
        contract.imported("datasets.mine")
    other = {"channels": 1} if "folder" in entry else {"channels_last": True}
    own_data.give({"datasets": {"mine": entry | other}})
    source.forget()
    with pytest.raises(UsageError, match=f"datasets.mine: there is no .* {place}"):
        grid_of(dataset="mine")


def test_two_kept_data_of_one_name_stand_for_none(own, store):
    file = store / own_data.DESCRIBED
    (lines,) = json.loads(file.read_text()).values()
    other = [line.replace("CLASSES = 3", "CLASSES = 4") for line in lines]
    (store.parent / "small").mkdir()
    (store.parent / "small" / own_data.DESCRIBED).write_text(json.dumps({"mine": other}))
    Path("mine").rename("away")
    Path("mine.npz").unlink()
    source.forget()
    with pytest.raises(UsageError, match="kept runs have 2 different data of this name"):
        source.text("datasets.mine")


def test_what_a_kept_run_was_made_with_instead_is_said(own, monkeypatch):
    index = kept.read_index(kept.store_folder("mini", "quick"))
    make_own(1)
    Path("clients.csv").write_text("file,client\na/a.png,other\n")
    source.forget()
    others = {
        changed: kept.find_other(index, "runs", resolved(everything=grid_of("mine", **fields)))
        for changed, fields in (("data", {}), ("both", {"rounds": 20}))
    }
    assert others["data"] == "trained on other data than mine has now"
    assert others["both"] == "made with other settings"
    said = list[str]()
    monkeypatch.setattr(collected, "warn_once", said.append)
    there("runs", NOWHERE, grid_of("mine"))
    (sentence,) = said
    assert "kept runs of mini at the quick scale that were trained on other data" in sentence
    assert "mini/mine/dir0.1/fedavg/seed0" in sentence
    assert sentence.endswith(" and 1 more")
    assert kept.find_other(index, "runs", resolved("fedavg", 7, own[1])) == ""


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
    files = {"fedprox": "0123456789ab", "_helper": "ba9876543210"}
    more = {  # by run: one diverged, one recorded the files of its method, one is a link
        ("fedavg", 0): {"diverged": 5},
        ("fedprox", 0): {"method_files": files},
        ("fedavg", 1): {"trained_as": "alias/digits/dir0.1/fedavg/seed0"},
    }
    for run, facts in more.items():
        write(results / path_of("seconds", *run), content("seconds", resolved(*run)) | facts)
    keep_all(results)
    (entry,) = (e for path, e in kept.read_index(store).items() if path.endswith("fedavg/seed0"))
    expected = {"path": "runs/mini/digits/dir0.1/fedavg/seed0", "fedgrid": "0.1.0"}
    expected |= {"code": "4630d3819846", "device": "AMD EPYC", "threads": "1", "torch": "2.15.0"}
    expected |= {"seconds": "12.5", "rounds": "10", "diverged": "True"}
    assert expected.items() <= entry.items()
    index = kept.read_index(store)
    assert sum(entry["diverged"] == "True" for entry in index.values()) == 1
    (recorded,) = (path for path, entry in index.items() if entry[kept.FILES])
    assert recorded == kept.item_path("runs", resolved("fedprox"))
    assert kept.read_pairs(index[recorded][kept.FILES]) == files
    assert float(index[kept.item_path("runs", resolved(seed=1))]["seconds"]) == 0
    partition = index[path_of("partition")]
    assert [partition[name] for name in (*kept.MAKERS, "seconds")] == [""] * 6


def test_only_the_kinds_that_products_read_are_kept(results, store, monkeypatch):
    few = {"few": {"from": {"runs": "runs/main", "counts": "partition/one"}}}
    monkeypatch.setitem(GRID.studies["mini"], "products", few)
    keep_all(results)
    assert {path.name for path in store.iterdir()} == {"index.csv", "runs.csv", "partition.csv"}
    index = kept.read_index(store)
    assert kept.find_kept(index, "runs", resolved())
    assert not kept.find_kept(index, "predictions", resolved())
    assert rows_of(store / "index.csv")[0].keys() == {*kept.COLUMNS}  # none of files of methods


# -- small differences --------------------------------------------------------------------------


def texts(store: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in sorted(store.iterdir())}


@pytest.mark.parametrize("late", [("fedavg", 0), ("fedprox", 1)])
def test_one_more_run_only_adds_lines(late, results, store):
    first = results.parent / "first"
    for run in RUNS:
        if run != late:
            finish(first, *run)
    keep_all(first)
    old, before = texts(store), {int(row["id"]) for row in rows_of(store / "index.csv")}
    keep_all(results)
    for name, lines in texts(store).items():
        marks = {line[0] for line in ndiff(old[name], lines)} - {" ", "?"}
        assert marks == {"+"} or (not marks and name != "index.csv")
        assert lines[0] == old[name][0]
    after = {int(row["id"]) for row in rows_of(store / "index.csv")}
    assert min(after - before) > max(before)


def test_what_is_kept_again_replaces_its_rows_and_has_the_same_bytes_if_unchanged(
    results, store, capsys
):
    for seed in (0, 1):
        remove(results, "fedavg", seed)
    keep_all(results)
    said = capsys.readouterr().out
    assert "2 runs are kept in " in said
    assert "2 runs of the grids are not finished in " in said
    header = texts(store)["runs.csv"][0]
    for seed in (0, 1):
        finish(results, "fedavg", seed)
    keep_all(results)
    assert texts(store)["runs.csv"][0] == header  # FedAvg comes first, and has no column `norm`
    old = {path.name: path.read_bytes() for path in store.iterdir()}
    keep_all(results)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == old
    assert not any(b"\r" in text for text in old.values())
    before = rows_of(store / "runs.csv")
    write(results / path_of("runs"), content("runs", resolved()).assign(accuracy=0.25))
    remove(results, "fedprox", 1)
    keep_all(results)
    after = rows_of(store / "runs.csv")
    (of,) = {row["id"] for row in after if row["accuracy"] == "0.25"}
    assert [row for row in after if row["id"] != of] == [row for row in before if row["id"] != of]
    assert len([row for row in after if row["id"] == of]) == 3


def forget(store: Path, method: str, seed: int) -> None:
    """Remove a run from those that are kept."""
    index = rows_of(store / "index.csv")
    (of,) = (r["id"] for r in index if r["path"] == f"runs/mini/digits/dir0.1/{method}/seed{seed}")
    for path in store.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(f"{of},")))


def test_the_index_is_replaced_last(results, store, monkeypatch):
    """A keep that is killed leaves no index of rows that are not there."""
    remove(results, "fedprox", 1)
    keep_all(results)
    before = (store / "index.csv").read_bytes()
    finish(results, "fedprox", 1)
    replace, done = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        keep_all(results)
    assert len(done) == 2
    assert (store / "index.csv").read_bytes() == before


def test_a_number_is_not_given_twice_after_a_run_was_removed(results, store):
    keep_all(results)
    last = max(int(row["id"]) for row in rows_of(store / "index.csv"))
    forget(store, "fedavg", 0)
    keep_all(results)
    new = {row["path"]: int(row["id"]) for row in rows_of(store / "index.csv")}
    assert new["runs/mini/digits/dir0.1/fedavg/seed0"] == last + 1


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
    assert kept.find_kept(index, "runs", resolved())
    assert not kept.find_kept(index, "runs", resolved(everything=changed))
    assert there("runs", NOWHERE, changed) is None
    # which samples a client has, and how a run is summed up, do not depend on the learning rate
    assert kept.find_kept(index, "partition", resolved(everything=changed))
    assert kept.find_kept(index, "runs", resolved(everything=grid_of(tail=1)))


# The defaults of a protocol's fields. What is kept counts on them: its content has only those
# fields that differ. Add a field's default here when there is a new one; never change a default.
DEFAULTS = {
    "model": "cnn", "weights": "none", "clients": 100, "merge": False,
    "participation": 0.1, "sampler": "seeded",
    "recipe": "classwise", "rounds": 100, "local": 10, "local_unit": "steps", "batches": "fresh",
    "least_steps": 0, "most_steps": 0, "batch": 64, "smallest_batch": 8, "lr": 0.01,
    "lr_decay": 1.0, "momentum": 0.0, "weight_decay": 0.0, "clip": 0.0, "optimiser": "sgd",
    "optimiser_state": "reset", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08, "by_method": {},
    "augment": [], "normalization": "standard", "precision": "fp32", "evaluate_every": 10,
    "metrics": [], "client_test": 0.0, "client_test_from": "clients", "evaluate_clients": "all",
    "clients_every": 1, "validation": 0.0, "validation_from": "test", "metric": "tail",
    "tail": 100, "pretrain_epochs": 1, "autoencoder_fit": 0.0,
    "server_data": 0.0, "dropout": 0.0, "stragglers": 0.0, "attackers": 0.0, "attack": "labels",
    "attack_strength": 1.0, "availability": "always", "available": 0.5, "available_rounds": 10.0,
    "evaluate_last": 0, "average_last": 0, "late": "partial",
}  # fmt: skip


def test_no_default_of_a_protocol_ever_changes():
    assert DEFAULTS == protocol.PROTOCOL


def test_what_is_kept_still_counts_when_there_is_one_more_field(monkeypatch):
    run = resolved(seed=0)
    before = identity.hash_content("runs", run)
    monkeypatch.setitem(protocol.PROTOCOL, "new", 0.5)
    monkeypatch.setitem(protocol.STAGES, "train", (*protocol.STAGES["train"], "new"))
    for value, is_same in ((0.5, True), (0.7, False)):
        more = run | {"protocol": run["protocol"] | {"new": value}}
        assert (identity.hash_content("runs", more) == before) is is_same


@pytest.mark.parametrize("kind", COLLECTED)
def test_content_does_not_depend_on_the_names_of_protocols(kind):
    run = resolved()
    alias = GRID.resolve(run["name"] | {"protocol": "alias"})
    assert identity.hash_content(kind, alias) == identity.hash_content(kind, run)
    assert identity.hash_content(kind, resolved(seed=1)) != identity.hash_content(kind, run)


def test_a_run_in_results_of_a_field_less_has_other_settings(results):
    keep_all(results)
    summary = content("seconds", resolved())
    del summary["run"]["protocol"]["clip"]
    write(results / path_of("seconds"), summary)
    assert there("runs", results)["kept"].sum() == 3


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


# -- by whose code runs were made ---------------------------------------------------------------


def test_a_product_and_the_command_say_what_has_changed_since(
    study, results, store, capsys, monkeypatch, caplog
):
    by_code_of_today(monkeypatch, fedprox="methods/fedprox.py")
    keep_all(results)
    said = "2 kept runs were made before a change of methods/fedprox.py: fedprox."
    kept_now = capsys.readouterr().out
    assert said in kept_now
    assert "2 kept runs were made by the code that is here now: fedavg." in kept_now
    found = drawn(study, "table", NOWHERE, "csv", "tex", "html")
    assert all(said in text for text in found.values())
    assert said in caplog.text
    assert "code_changed" not in found["csv"]
    assert said in shown(study, "table", NOWHERE, capsys)
    figure = drawn(study, "convergence", NOWHERE, "svg")["svg"]
    assert "methods/fedprox.py" in figure
    assert "Of 4 runs 4 are kept with the study" in figure


OF_ENGINE = "made before a change of the engine, by the same files of the methods"


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(identity.ENGINE, "m")], f"1 kept run was {OF_ENGINE}: m."),
        ([(identity.ENGINE, f"m{n}") for n in range(40)],
         f"40 kept runs were {OF_ENGINE}: 40 methods."),
        ([(identity.UNRECORDED, "m")],
         "1 kept run was made by code that is not recorded and differs from today's: m."),
        ([("methods/a.py methods/b.py", "b-mu1"), ("methods/a.py", "a"), ("methods/b.py", "b-mu2")],
         "3 kept runs were made before a change of methods/a.py and methods/b.py: "
         "b-mu1, a and b-mu2."),
    ],
)  # fmt: skip
def test_what_has_changed_in_the_code_is_one_sentence(runs, said):
    assert describe_code(runs) == [said]


def test_two_that_keep_at_once_lose_nothing(results, store, monkeypatch):
    """The second begins when the first has read what is kept, and has written nothing yet."""
    other = results.parent / "other"
    finish(other, "fedprox", 1)
    remove(results, "fedprox", 1)
    second = threading.Thread(target=keep_all, args=(other,))
    read = kept.read_index

    def read_slowly(folder: Path) -> dict:
        found = read(folder)
        if not second.ident:
            second.start()
            second.join(0.5)
        return found

    monkeypatch.setattr(kept, "read_index", read_slowly)
    keep_all(results)
    second.join()
    assert len(there("runs", NOWHERE).groupby(["method", "seed"])) == 4


# -- what is refused ----------------------------------------------------------------------------


DAMAGED = {  # a table, what becomes of its lines (None: it is deleted), and what is said
    "lacks a column": ("index.csv", lambda old: [old[0].replace("content", "c"), *old[1:]],
                       "index.csv has no column `content`"),
    "has no index": ("index.csv", None, "index.csv cannot be read"),
    "lacks a kind": ("runs.csv", None, "runs.csv cannot be read"),
    "has a number twice": ("index.csv", lambda old: [*old, old[-1]], "has the id [0-9]+ twice"),
    "has a name for a number": ("index.csv", lambda old: [*old[:-1], f"x{old[-1]}"],
                                "the id `x[0-9]+` is damaged"),
    "has a kind without a hash": ("index.csv", lambda old: re.sub("=[0-9a-f]+", "", "".join(old)),
                                  "index.csv: the kinds `[a-z]+.*` is damaged"),
    "has a word for seconds": ("index.csv", lambda old: "".join(old).replace(",12.5,", ",soon,"),
                               "index.csv: the seconds `soon` is damaged"),
    "has rows of nothing": ("runs.csv", lambda old: [*old, f"99{old[-1][1:]}"],
                            "runs.csv has the id 99, which index.csv does not"),
    "has no rows of a run": ("runs.csv", lambda old: old[:-3], "runs.csv has no rows of the id"),
    "has lost a row": ("runs.csv", lambda old: old[:-1], "are not those kept"),
    "has another number": ("runs.csv", lambda old: [*old[:-1], old[-1].replace("0.", "1.", 1)],
                           "are not those kept"),
    "ends in a row": ("runs.csv", lambda old: [*old[:-1], old[-1][:5]], "too few or too many"),
    "is not text": ("runs.csv", lambda old: ["\udcff\udcfe\0"], "runs.csv cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_store_is_refused_in_one_sentence(how, results, store):
    keep_all(results)
    name, change, said = DAMAGED[how]
    lines = (store / name).read_text().splitlines(keepends=True)
    (store / name).unlink()
    if change:
        (store / name).write_text("".join(change(lines)), errors="surrogateescape")
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
    with pytest.raises(UsageError, match=r"the run in .*seed1.* cannot be read"):
        keep_all(results)
    assert not store.exists()


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


def test_what_runs_share_is_not_kept_without_a_run(results, store):
    for run in RUNS:
        remove(results, *run)
    with pytest.raises(UsageError, match="no finished run of mini at the quick scale"):
        keep_all(results)
    assert not store.exists()


@pytest.mark.parametrize("of", ["77", "of a partition", "elsewhere"])
def test_an_id_that_is_not_kept_is_refused(of, results, store):
    keep_all(results)
    number = kept.read_index(store)[path_of("partition")]["id"] if "partition" in of else "77"
    where = "mini/paper" if of == "elsewhere" else "mini/quick"
    command = ["runs", json.dumps(GRID.narrow_blocks(*WHAT)), "--kept", where, "--ids", number]
    with pytest.raises(UsageError, match=f"no id of runs in .*index.csv is called `{number}`"):
        collect.main([*command, "--out", "out.csv"])


# -- what products say --------------------------------------------------------------------------

SAID = "(fedgrid 0.1.0, torch 2.15.0, AMD EPYC; code 4630d3819846)"
PRODUCTS = {
    "table": {"from": {"runs": "runs/main", "settings": "settings/main"}},
    "convergence": {"from": {"runs": "runs/main"}},
}


@pytest.fixture
def study(results) -> Path:
    """The file of the made-up study, beside the folder in which runs of it are kept."""
    path = results.parent / "mini.yaml"
    path.write_text(json.dumps(MINI | {"products": PRODUCTS}))
    return path


def drawn(study: Path, product: str, results: Path, *formats: str) -> dict[str, str]:
    """The files of a product by format, drawn from the tables of runs in results, or kept."""
    folder = study.parent / f"drawn_{results.name}"
    for kind in ("runs", "settings"):
        table = there(kind, results)
        table = table if table["kept"].any() else table.drop(columns="kept")
        path = folder / kind / "main.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, index=False)
    wanted = PRODUCTS[product]["from"].items()
    sources = [f"{name}={folder}/{text}.csv" for name, text in wanted]
    out = [folder / f"{product}.{form}" for form in formats]
    words = [product, "--study", str(study), "--sources", *sources, "--out", *map(str, out)]
    draw.main(words)
    return {path.suffix[1:]: path.read_text() for path in out}


def shown(study: Path, product: str, results: Path, capsys) -> str:
    """What `draw --show` prints of a product that is drawn already."""
    path = study.parent / f"drawn_{results.name}" / f"{product}.csv"
    capsys.readouterr()
    draw.main([product, "--study", str(study), "--show", str(path)])
    return capsys.readouterr().out


def test_a_table_says_in_every_format_that_its_runs_are_kept(study, results, capsys):
    keep_all(results)
    said = f"Of 4 runs 4 are kept with the study {SAID}."  # by the code of today
    found = drawn(study, "table", NOWHERE, "csv", "tex", "html")
    assert {*pd.read_csv(StringIO(found["csv"]))["kept"]} == {said}
    for text in (found["tex"], found["html"], shown(study, "table", NOWHERE, capsys)):
        assert text.index("quick scale.") < text.index("Of 4 runs 4 are kept")  # a note below
        assert text.count("kept") == 1
    assert f'<p class="note">{said}</p>' in found["html"]


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_without_kept_runs_does_not_speak_of_them(product, study, results, capsys):
    found = drawn(study, product, results, "csv", "svg" if product == "convergence" else "html")
    assert not any("kept" in text for text in found.values())
    assert "kept" not in shown(study, product, results, capsys)


def test_a_product_says_how_its_runs_were_chosen_and_that_they_are_kept(results, study):
    keep_all(results)
    entry = {"with": {"best": {"over": "lr"}}, **PRODUCTS["table"]}
    product = _product.load_product("mini", "table", entry)
    tables = {kind: _product.drop_kept(there(kind, NOWHERE)) for kind in ("runs", "settings")}
    table = _product.draw_table(product, tables, MINI, "quick")
    table = table.assign(kept="They are kept.")
    assert re.search(r"Of each method, the best lr by .*\.$", product.caption(table))
    assert _product.write_note(table) == "They are kept."
    assert "kept" not in product.caption(table)


def flags(method: str = "fedavg", kept_seeds: tuple = (), seeds: int = 3, **names) -> pd.DataFrame:
    """A row per run of a method, and whether it is kept."""
    table = pd.DataFrame({"seed": range(seeds)}).assign(
        protocol="mini", dataset="digits", partition="dir0.1", method=method, **names
    )
    return table.assign(kept=table["seed"].isin(kept_seeds))


def index_of(*runs: tuple[str, int, dict]) -> dict[str, dict]:
    """An index with what made these runs of a method and a seed."""
    made = {"fedgrid": "0.1.0", "torch": "2.15.0", "device": "AMD EPYC", "code": "aaa"}
    return {f"runs/mini/digits/dir0.1/{m}/seed{s}": made | more for m, s, more in runs}


def test_the_sentence_counts_runs_and_files_that_they_share():
    index = index_of(("fedavg", 0, {}), ("fedavg", 1, {}), ("fedavg", 2, {"code": "bbb"}))
    sources = [("runs", flags(kept_seeds=(0, 1))), ("settings", flags(kept_seeds=(0,)))]
    made = "fedgrid 0.1.0, torch 2.15.0, AMD EPYC; code aaa"
    assert describe_kept(sources, index) == f"Of 3 runs 2 are kept with the study ({made})."
    assert describe_kept(sources[1:], index) == f"Of 3 runs 1 is kept with the study ({made})."
    shared = [("partition", flags(kept_seeds=(0, 2)))]  # what made a run did not make these
    assert describe_kept(shared, index) == "Of 3 partition files 2 are kept with the study."
    both = [("runs", flags()), ("encoding", flags(kept_seeds=(0,), seeds=1))]
    assert describe_kept(both, {}) == "Of 1 saliency file 1 is kept with the study."
    other = pd.DataFrame({"encoder": ["area"], "ssim": [0.5]})  # an experiment
    assert describe_kept([("runs", flags()), ("runs", other)], {}) == ""
    facts = [{"code": "bbb", "device": "Xeon"}, {"code": "ccc"}, {"code": "ccc"}, {"code": "ddd"}]
    index = index_of(*(("fedavg", seed, more) for seed, more in enumerate(facts)))
    said = describe_kept([("runs", flags(kept_seeds=(0, 1, 2, 3), seeds=4))], index)
    assert "AMD EPYC and 1 other; code ccc and 2 others)" in said  # the most frequent first


def test_processors_are_named_if_runs_of_a_seed_had_different_ones():
    other = {"device": "Xeon"}
    index = index_of(
        *(("fedavg", seed, {}) for seed in range(3)), ("moon", 0, {}), ("moon", 1, other)
    )
    sources = [("runs", flags(kept_seeds=(0, 1, 2))), ("runs", flags("moon", kept_seeds=(0, 1)))]
    said = "different processors (AMD EPYC: 1 run, Xeon: 1 run), whose roundings can move"
    assert said in describe_processors(sources, index)
    assert describe_processors(sources[:1], index) == ""
    only_first = [sources[0], ("runs", flags("moon", kept_seeds=(0,)))]  # seed 1 was trained here
    assert describe_processors(only_first, index) == ""


# -- kept runs that are trained again -------------------------------------------------------------


AGAIN = ("--again", "2", "--seed", "7")


@pytest.fixture
def elsewhere(results, monkeypatch) -> Path:
    """An empty folder of results after all runs were kept; training writes what they left.

    The accuracy of FedProx differs in round 5.
    """
    keep_all(results)

    def train(paths: list[str], folder: Path, options: list[str]) -> None:
        for path in paths:
            finish(folder, path.split("/")[-2], int(path[-1]))
            file = folder / path / "metrics.csv"
            table = pd.read_csv(file)
            table.loc[table["round"] == 5, "accuracy"] += 0.25 * ("fedprox" in path)
            write(file, table)

    monkeypatch.setattr(trained_again, "train", train)
    return results.with_name("elsewhere")


def test_a_run_that_is_trained_again_is_compared_and_noted(elsewhere, store, capsys):
    before = texts(store)
    keep_all(elsewhere, *AGAIN)
    same, other = rows_of(store / trained_again.NOTED)
    assert ("fedavg" in same["path"], "fedprox" in other["path"]) == (True, True)
    assert (same["same"], same["largest"], same["last"]) == ("True", "0", "0")
    assert (other["same"], other["from_round"], other["last"]) == ("False", "5", "0")
    assert float(other["largest"]) == pytest.approx(0.25)
    assert (other["drawn_by"], other["code"], other["device"]) == ("7", MADE["code"], "AMD EPYC")
    said = capsys.readouterr().out
    assert f"{same['path']} has the kept evaluations" in said
    assert f"{other['path']} has an accuracy that differs by 0.25 at most, from round 5 on" in said
    assert {n: of for n, of in texts(store).items() if n != trained_again.NOTED} == before


OF_CLIENTS = {"accuracy": "nan", "own_mean": "0.5", "clients_without_tests": "1"}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"accuracy": "0.5"}, {"accuracy": "0.5", "late": "1"}, ("True", "", "0", "0")),
        ({"accuracy": "0.5"}, {"accuracy": "nan"}, ("False", "5", "nan", "nan")),
        ({"accuracy": "nan", "own_mean": "0.75"}, OF_CLIENTS, ("False", "5", "0.25", "0.25")),
        ({"accuracy": "nan", "loss": "nan"}, {"accuracy": "nan", "loss": "1"},
         ("False", "5", "0", "0")),
    ],
)  # fmt: skip
def test_runs_are_compared_by_what_both_have(before, after, found):
    """A column of a later version is no difference; round 0 of both has no accuracy."""
    nothing = dict.fromkeys((*before, *after), "nan")
    rows = [[{"round": "0"} | nothing, {"round": "5"} | of] for of in (before, after)]
    rows[0][0] = {name: of for name, of in rows[0][0].items() if name in (*before, "round")}
    assert (*trained_again.compare(*rows).values(),) == found


def test_every_method_is_drawn_before_another_run_of_the_same(elsewhere, store):
    """What `results` has is not drawn, because it may be the kept run itself."""
    keep_all(elsewhere, "--again", "1")
    keep_all(elsewhere, "--again", "1")
    assert sorted(row["path"].split("/")[-2] for row in rows_of(store / "again.csv")) == [
        *BLOCK["method"]
    ]
    keep_all(elsewhere, "--again", "9")
    assert len({row["path"] for row in rows_of(store / "again.csv")}) == len(RUNS)
    with pytest.raises(UsageError, match="has all of them, or none counts today"):
        keep_all(elsewhere, "--again", "1")
    with pytest.raises(UsageError, match="--again 0 is no number of runs: give at least 1"):
        keep_all(elsewhere, "--again", "0")


def test_the_seed_decides_which_runs_are_drawn(elsewhere, store):
    items = keeping.wanted_items(GRID, "mini", "quick", [])
    by_seed = [trained_again.draw(items, store, elsewhere, 1, seed) for seed in range(9)]
    assert len({*map(str, by_seed)}) > 1
    assert by_seed[3] == trained_again.draw(items, store, elsewhere, 1, 3)


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ({}, ""),
        (
            {0: [("2026-01-02", "True", "0", "a")], 9: [("2026-05-05", "False", "0.5", "a")]},
            "Of 3 kept runs 1 was trained again (2026-01-02): 1 with the same numbers.",
        ),
        (
            {
                0: [("2026-01-02", "False", "0.7", "a"), ("2026-01-04", "True", "0", "b")],
                1: [("2026-01-03", "False", "0.0123", "b")],
                2: [("2026-01-03", "False", "nan", "a")],
            },
            "Of 3 kept runs 3 were trained again (2026-01-03 to 2026-01-04): 1 with the same "
            "numbers, 1 with a last accuracy that differs by up to 1.23 points and 1 that diverged "
            "in only one of the two trainings (1 on another processor than before).",
        ),
    ],
)
def test_a_caption_says_how_far_runs_are_that_were_trained_again(noted, said):
    """The last time that a run was trained again counts, and only those of the product do."""
    rows = [
        {"path": path_of("runs", seed=seed).rpartition("/")[0], "kept_device": "a"}
        | dict(zip(("date", "same", "last", "device"), row, strict=True))
        for seed, of_seed in noted.items()
        for row in of_seed
    ]
    sources = [("runs", flags(kept_seeds=(0, 1, 2), seeds=4))]
    assert describe_again(sources, rows) == said


def test_runs_that_could_not_be_trained_are_counted(elsewhere, monkeypatch, store):
    monkeypatch.setattr(trained_again, "train", lambda *_: None)
    with pytest.raises(SystemExit, match="2 of 2 runs could not be trained"):
        keep_all(elsewhere, *AGAIN)
    assert rows_of(store / trained_again.NOTED) == []


# -- the workflow -------------------------------------------------------------------------------

OPTIONS = ("--config", "study=mini", "device=cpu")
OF_MINI = "results/table.csv results/convergence.csv"
TARGETS = ("--", *OF_MINI.split())
REDRAWN = {"mini_table": 1, "mini_convergence": 1, "results_table": 1, "results_convergence": 1}
COLLECTED_AGAIN = REDRAWN | {"runs_table": 1, "settings_table": 1}


def in_project(project: Path, *command: str) -> str:
    """What a command of the project's own code prints."""
    environment = ENVIRONMENT | {"PYTHONPATH": str(project / "workflow")}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project_with_kept(tmp_path_factory) -> Path:
    """A project with kept runs of a study, and without results; it is drawn from the kept runs."""
    project = copied(tmp_path_factory.mktemp("kept") / "project")
    study = MINI | {"products": PRODUCTS}
    (project / "workflow/studies/mini.yaml").write_text(json.dumps(study))
    for run in RUNS:
        finish(project / "results", *run)
    said = in_project(project, "fedgrid.commands.keep", "mini", "quick")
    assert said.startswith("4 runs are kept in ")
    shutil.rmtree(project / "results")
    snakemake(project, "--cores", "1", *OPTIONS, *TARGETS)
    return project


@pytest.fixture
def kept_project(project_with_kept, tmp_path) -> Path:
    """A copy for a test to change."""
    return shutil.copytree(project_with_kept, tmp_path / "project", symlinks=True)


STORE = "workflow/studies/reference/mini/quick"


@pytest.mark.slow
def test_kept_runs_are_neither_trained_nor_is_their_data_needed(kept_project):
    """The times of their tables do not count, but their rows do; `tests/plan` asks for the rest."""
    table = pd.read_csv(kept_project / "results/table.csv")
    assert table["kept"].str.startswith("Of 4 runs 4 are kept").all()
    assert not (kept_project / "results/data").exists()
    new_times_on_every_file(kept_project)
    assert planned(kept_project, *OPTIONS, target=OF_MINI).jobs == {}
    index = kept_project / STORE / "index.csv"
    index.write_text(index.read_text().replace("AMD EPYC", "Xeon"))
    assert planned(kept_project, *OPTIONS, target=OF_MINI) == (COLLECTED_AGAIN, set())


@pytest.mark.slow
def test_tables_with_kept_runs_are_verified(kept_project):
    said = in_project(kept_project, "fedgrid.commands.verify", "results")
    assert re.search(r"[1-9]\d* good, 0 altered, 0 missing, 0 stale, 0 unknown, 0 unrecorded", said)


@pytest.mark.slow
def test_a_kept_run_is_trained_again_by_one_command(kept_project):
    """The kept numbers are made up, so they differ from the first evaluation on."""
    command = ("fedgrid.commands.keep", "mini", "quick", "--again", "1", "--cores", "1")
    said = in_project(kept_project, *command)
    assert re.search(r"runs/mini/.* has an accuracy that differs by .*, from round 0 on", said)
    (row,) = rows_of(kept_project / STORE / "again.csv")
    assert row["code"] != MADE["code"]
    assert (kept_project / "results" / row["path"] / "metrics.csv").exists()


@pytest.mark.slow
def test_todays_code_trains_a_kept_run_on_real_data(tmp_path):
    """It has the kept evaluations, or other rounding: another processor adds in another order."""
    if not (REAL_DATA / "cifar-10-batches-py").is_dir():
        pytest.skip(f"no real CIFAR-10 in {REAL_DATA}; FEDGRID_DATA can name another folder")
    project = copied(tmp_path / "project")
    (project / "again.yaml").write_text(f"data_root: {REAL_DATA}\ndevice: cpu\n")
    noted = project / "workflow/studies/reference/baselines/small" / trained_again.NOTED
    before = rows_of(noted)
    command = [sys.executable, "-m", "fedgrid", "keep", "baselines", "small", "--grid", "general"]
    command += ["--again", "1", "--cores", "1", "--config", "again.yaml"]
    environment = ENVIRONMENT | {"PYTHONPATH": str(project / "workflow")}
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    (row,) = [row for row in rows_of(noted) if row not in before]
    assert row["same"] == "True" or float(row["last"]) < 0.1
