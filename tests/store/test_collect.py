"""What runs left, gathered into one table, from files made by hand: `fedgrid collect`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedgrid.commands import collect
from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError
from fedgrid.store import tables as collected
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED, collected_fields
from fedgrid.study.protocol import AXES
from made import STUDIES

BLOCK = {
    **{"protocol": ["p"], "dataset": ["digits"], "partition": ["dir0.1"]},
    **{"method": ["fedavg", "fedsls"], "seed": [0, 1]},
}
SUMMED = {"rounds": 10, "tail": 4, "recipe": "classwise", "clients": 3}
PROTOCOLS = {"p": SUMMED | {"cells": {"saliency": "abc"}}}
CELL = "p/digits/dir0.1"
RUN = "run {method} {seed}"
SUMMARY = {
    **{"seconds": 12.5, "resumed_at": 0, "rounds": 10, "device": "cpu", "versions": {"torch": "2"}},
    "run": {
        "protocol": {"model": "cnn", "augment": ["crop"], "lr": 0.3},
        "method": {"fedsls": {"tau": 0.5}, "fedprox": {"mu": 0.01, "reading": "A"}},
    },
}
METRICS = "round,loss,accuracy,train_loss\n0,2.3,0.1,\n5,1.5,0.4,1.6\n10,1.0,0.6,1.1\n"
PREDICTED = "round,class,predicted\n0,0,5\n0,1,2\n10,0,4\n10,1,3\n"
SALIENCY = "client,size,R,R_per_sample,weight,effective_clients\n0,10,5.0,0.5,0.25,1.6\n"
SALIENCY += "1,30,15.0,0.5,0.75,1.6\n"
CLIENTS = "round,client,samples,server_accuracy,server_loss,own_accuracy,own_loss\n"
CLIENTS += "10,0,5,,,0.5,1.2\n10,2,3,,,0.25,1.3\n"
MIXED = (
    "alpha,beta,mean,weighted,std,loss,clients,divergence,evaluate_clients\n"
    "0.0,0.0,0.5,0.4,0.1,0.7,3,,cohort\n,1.0,0.6,0.5,0.1,0.6,3,0.2,cohort\n"
)
ENCODED = "digits/dir0.1/abc"  # the folder of saliency
COUNTS = np.array([[0, 3], [4, 0], [0, 0]])


def write(path: Path, content: str | dict | np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray):
        np.savez(path, counts=content, members=np.arange(7), test_offsets=np.array([0, 2, 3, 3]))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


FILES = {  # by kind: where a run leaves it, and what
    "runs": ("runs/{cell}/{method}/seed{seed}/metrics.csv", METRICS),
    "predictions": ("runs/{cell}/{method}/seed{seed}/predictions.csv", PREDICTED),
    "seconds": ("runs/{cell}/{method}/seed{seed}/summary.json", SUMMARY),
    "settings": ("runs/{cell}/{method}/seed{seed}/summary.json", SUMMARY),
    "partition": ("partition/digits/dir0.1/classwise-3/seed{seed}.npz", COUNTS),
    "sizes": ("partition/digits/dir0.1/classwise-3/seed{seed}.npz", COUNTS),
    "saliency": (f"saliency/{ENCODED}/seed{{seed}}.csv", SALIENCY),
    "encoding": (f"saliency/{ENCODED}/seed{{seed}}.json", {"seconds": 2, "pretrain_seconds": 3}),
    "clients": ("runs/{cell}/{method}/seed{seed}/clients.csv", CLIENTS),
    "interpolation": ("interpolation/{cell}/{method}/seed{seed}.csv", MIXED),
}
SHARED = ("partition", "sizes", "saliency", "encoding")  # by all methods of a seed


def path_of(kind: str, method: str = "fedavg", seed: int = 0) -> str:
    return FILES[kind][0].format(cell=CELL, method=method, seed=seed)


@pytest.fixture
def results(tmp_path) -> Path:
    """What two methods and two seeds left of everything."""
    for kind, (_, content) in FILES.items():
        for method in BLOCK["method"]:
            for seed in BLOCK["seed"]:
                write(tmp_path / path_of(kind, method, seed), content)
    return tmp_path


def gathered(kind: str, results: Path, *blocks: dict) -> pd.DataFrame:
    """By the command, as it is read again."""
    out, grid = results / "out.csv", json.dumps(list(blocks or [BLOCK]))
    protocols = ["--protocols", json.dumps(PROTOCOLS)]
    collect.main([kind, grid, *protocols, "--results", str(results), "--out", str(out)])
    return pd.read_csv(out)


@pytest.mark.parametrize("kind", FILES)
def test_every_row_has_the_names_of_its_run_and_what_goes_along(kind, results):
    table = gathered(kind, results)
    methods = ["fedavg"] if kind in SHARED else BLOCK["method"]
    names = table[[*AXES]].drop_duplicates().values.tolist()
    assert names == [["p", "digits", "dir0.1", m, s] for m in methods for s in (0, 1)]
    for key, value in SUMMED.items():
        assert set(table[key]) == {value}
    assert len(table) % len(names) == 0


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_runs_share_is_read_once(kind, results):
    again = BLOCK | {"method": ["fedavg"]}
    table = gathered(kind, results, BLOCK, again)
    pd.testing.assert_frame_equal(table, gathered(kind, results))


def test_runs_are_their_evaluations(results):
    table = gathered("runs", results)
    first = table[(table["method"] == "fedavg") & (table["seed"] == 0)]
    assert first[["round", "accuracy"]].values.tolist() == [[0, 0.1], [5, 0.4], [10, 0.6]]
    assert not table["diverged"].any()
    assert len(table) == 4 * 3
    assert "kept" not in table


@pytest.mark.parametrize("last", ["4,nan,0.1,1", "4,inf,0.1,1", "4,2,0.1,nan", "4,2,0.1,inf"])
def test_a_run_that_ended_in_an_infinite_loss_diverged(last, results):
    ended = "round,loss,accuracy,train_loss\n0,2.3,0.1,\n" + last + "\n"
    write(results / path_of("runs", "fedsls", 1), ended)
    table = gathered("runs", results)
    lost = table[table["diverged"]]
    assert set(zip(lost["method"], lost["seed"], strict=True)) == {("fedsls", 1)}
    assert lost["round"].tolist() == [0, 4]


def test_seconds_are_what_a_summary_says_but_for_what_is_nested(results):
    table = gathered("seconds", results)
    assert set(table["seconds"]) == {12.5}
    assert set(table["resumed_at"]) == {0}
    assert not {"run", "versions"} & set(table.columns)
    assert len(table) == 4


def test_settings_are_every_field_of_the_protocol_and_the_methods(results):
    table = gathered("settings", results, BLOCK | {"method": ["fedsls"], "seed": [0]})
    values = table.fillna({"of": ""}).set_index(["of", "field"])["value"].to_dict()
    assert values == {
        **{("", "model"): '"cnn"', ("", "augment"): '["crop"]', ("", "lr"): "0.3"},
        **{("fedsls", "tau"): "0.5", ("fedprox", "mu"): "0.01", ("fedprox", "reading"): '"A"'},
    }


def test_a_method_without_hyper_parameters_has_a_row_of_its_file(results):
    summary = SUMMARY | {"run": {"protocol": {"lr": 0.3}, "method": {"fedavg": {}}}}
    write(results / path_of("settings"), summary)
    table = gathered("settings", results, BLOCK | {"method": ["fedavg"], "seed": [0]})
    rows = table[["of", "field", "value"]].astype(object).fillna("").astype(str).values.tolist()
    assert rows == [["", "lr", "0.3"], ["fedavg", "", ""]]


def test_a_partition_is_who_has_how_many_of_which_class(results):
    table = gathered("partition", results, BLOCK | {"seed": [1]})
    rows = table[["client", "class", "samples", "seed"]].values.tolist()
    assert rows == [[0, 1, 3, 1], [1, 0, 4, 1]]  # what nobody has is left out


def test_saliency_and_its_costs_are_gathered(results):
    table = gathered("saliency", results, BLOCK | {"seed": [1]})
    assert table[["client", "size", "R"]].values.tolist() == [[0, 10, 5], [1, 30, 15]]
    table = gathered("encoding", results)
    assert table[["seed", "seconds", "pretrain_seconds"]].values.tolist() == [[0, 2, 3], [1, 2, 3]]


# --- what cannot be read ---------------------------------------------------------------------


def assert_refused(kind: str, results: Path, *words: str) -> None:
    """UsageError with one sentence that names the file; what was collected stays."""
    (results / "out.csv").write_text("of last week\n")
    with pytest.raises(UsageError) as refused:
        gathered(kind, results)
    said = str(refused.value)
    assert all(word in said for word in (*words, path_of(kind, "fedavg", 1)))
    assert "\n" not in said
    assert (results / "out.csv").read_text() == "of last week\n"
    assert not list(results.glob(".*.tmp"))


@pytest.mark.parametrize("size", [None, 0, 12])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_missing_or_cut_is_named(kind, size, results):
    path = results / path_of(kind, "fedavg", 1)
    content = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(content[:size])
    assert_refused(kind, results, "cannot be read")


@pytest.mark.parametrize(
    ("kind", "content", "word"),
    [
        ("runs", METRICS.splitlines()[0] + "\n", "cannot be read"),
        ("saliency", SALIENCY.splitlines()[0] + "\n", "cannot be read"),
        ("settings", {"seconds": 2}, "'run'"),
    ],
)
def test_a_file_that_lacks_what_is_read_is_named(kind, content, word, results):
    write(results / path_of(kind, "fedavg", 1), content)
    assert_refused(kind, results, word)


def test_sizes_are_of_each_client_for_each_use(results):
    table = gathered("sizes", results, BLOCK | {"seed": [1]})
    columns = ["client", "training", "test", "validation", "seed"]
    assert table[columns].values.tolist() == [[0, 3, 2, 0, 1], [1, 4, 1, 0, 1], [2, 0, 0, 0, 1]]


@pytest.mark.parametrize("kind", ["partition", "sizes"])
def test_a_partition_without_counts_is_named(kind, results):
    np.savez(results / path_of(kind, "fedavg", 1), other=COUNTS)
    assert_refused(kind, results, "damaged")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "[]"], "no kind is called `run`: did you mean runs"),
        (["runs", "[]"], "the grid has no runs"),
        (["runs", "[{"], "the grid is not a list of blocks in JSON"),
        (["runs", "{}"], "the grid has no runs"),
        (["runs", "3"], "the grid is not a list of blocks in JSON"),
        (["runs", '[{"protocol": ["p"]}]'], "the grid is not a list of blocks in JSON: 'dataset'"),
        (["runs", '["p"]'], "the grid is not a list of blocks in JSON"),
        (["runs", "[]", "--protocols", "{"], "not a list of blocks in JSON"),
    ],
)
def test_a_wrong_command_is_answered_in_one_sentence(arguments, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        collect.main([*arguments, "--out", str(tmp_path / "out.csv")])
    assert not list(tmp_path.iterdir())


def test_a_grid_can_be_in_a_file(results, tmp_path):
    words = [json.dumps([BLOCK]), "--protocols", json.dumps(PROTOCOLS)]
    outs = [tmp_path / "out.csv", tmp_path / "other.csv"]
    file = cli.write_arguments(words, tmp_path / "grids", write=False)
    assert not file.exists()
    assert file == cli.write_arguments(words, tmp_path / "grids")
    for given, out in zip((words, [f"@{file}"]), outs, strict=True):
        collect.main(["runs", *given, "--results", str(results), "--out", str(out)])
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_file_that_protocols_share_is_there_for_each(results):
    """The protocols agree in what the stage reads, so that they have one file."""
    out, both = results / "out.csv", json.dumps([BLOCK | {"protocol": ["p", "q"]}])
    protocols = json.dumps(PROTOCOLS | {"q": PROTOCOLS["p"] | {"rounds": 20}})
    for kind, rows in (("saliency", 2 * 2 * 2), ("partition", 2 * 2), ("sizes", 2 * 3)):
        command = [kind, both, "--protocols", protocols, "--results", str(results)]
        collect.main([*command, "--out", str(out)])
        table = pd.read_csv(out)
        assert len(table) == rows
        assert {*table["rounds"]} == ({10, 20} if kind == "saliency" else {10})


@pytest.mark.parametrize("kind", COLLECTED)
def test_what_the_command_is_told_of_a_protocol_is_short_and_enough(kind):
    """Linux allows 128 KiB for one argument: a sweep over 200 protocols must fit into it."""
    grid = Grid(STUDIES)
    whole = grid.list_protocols([{"protocol": ["fedsls-quick"]}])["fedsls-quick"]
    told = collected_fields(kind, whole)
    assert len(json.dumps({"fedsls-quick-lr0.1-local20": told})) < 500
    run = dict(zip(AXES, ("fedsls-quick", "digits", "dir0.1", "fedsls", 0), strict=True))
    (path, names), (short, fewer) = (
        collected.find_files(kind, [run], {"fedsls-quick": of}, Path("results"))[0]
        for of in (whole, told)
    )
    assert (path, names) == (short, fewer)


@pytest.mark.parametrize("kind", ["runs", "seconds", "partition", "sizes"])
def test_a_table_has_the_number_of_clients_that_are_writers(kind, results, monkeypatch):
    monkeypatch.setitem(PROTOCOLS["p"], "clients", "writers")
    for path in results.rglob("summary.json"):
        write(path, SUMMARY | {"clients": 2})
    for path in [*results.rglob("classwise-3/*")]:
        made = path.parent.with_name("classwise-writers") / path.name
        made.parent.mkdir(exist_ok=True)
        np.savez(made, counts=COUNTS[:2], test_offsets=np.array([0, 2, 3]))
    assert gathered(kind, results)["clients"].unique().tolist() == [2]
