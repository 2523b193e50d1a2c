"""Longer, shared and forced runs: `training/extension.py`, `runtime/forced.py`, `fedgrid train`."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedgrid.commands import data, partition, saliency
from fedgrid.commands import pretrain as pretraining
from fedgrid.federation.protocols import list_needed_stages
from fedgrid.method import Method, by_samples
from fedgrid.methods import fedprox
from fedgrid.runtime import forced, machine
from fedgrid.runtime.names import UsageError
from fedgrid.stages import pretrain
from fedgrid.stages.train import train as train_run
from fedgrid.study import jobs
from fedgrid.study.command import Machine
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import RUN, input_paths
from fedgrid.study.protocol import AXES, PROTOCOL
from fedgrid.training import checkpoint, extension, same_work
from fedgrid.training import results as writing
from fedgrid.training.rounds import is_evaluated
from made import GRID

SMALL = "fedsls-quick-clients5-participation0.6-local2-rounds{}-evaluate_every{}"
FOUR, EIGHT = SMALL.format(4, 2), SMALL.format(8, 2)
TABLES = ("metrics.csv", "predictions.csv", "clients.csv", "model.safetensors")
MOON, SCAFFOLD, PLAIN = "moon", "scaffold", "fedavg"


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder with the data, for all runs of this file."""
    folder = tmp_path_factory.mktemp("extended") / "results"
    data.main(["digits", "--out", str(folder / "data/digits")])
    return folder


def named(protocol: str, method: str) -> dict:
    names = dict(zip(AXES, (protocol, "digits", "dir0.1", method, 0), strict=True))
    return run_of_stage("train", GRID.resolve(names))


@pytest.fixture
def home(results, tmp_path) -> Path:
    """The place of a test's own runs."""
    return results.parent / tmp_path.name


@pytest.fixture
def train(results, home) -> Callable[..., Path]:
    """Trains a run by its names in the test's own place, or in one beside it; gives its folder."""

    def train(protocol: str = FOUR, method: str = PLAIN, beside: str = "") -> Path:
        run, stages = named(protocol, method), ("data", "partition")
        name = RUN.format(**run["name"])
        there = input_paths(run | {"cells": GRID.cells(run["name"]["protocol"])})
        paths = {stage: results / there[stage] for stage in (*stages, *list_needed_stages(run))}
        if not paths["partition"].exists():
            partition.main([name, "--results", str(results)])
        place = home.with_name(f"{home.name}{beside}")
        out, checkpoint = place / "runs" / name, place / f"checkpoints/runs/{name}.safetensors"
        train_run(run, paths, out, checkpoint, Machine("cpu"), home=place)
        return out

    return train


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


# --- longer runs ---------------------------------------------------------------------------------


CLIENTS = "-client_test0.3-clients_every2"  # which are evaluated


@pytest.mark.parametrize(
    ("method", "before", "after", "more"),
    [
        (PLAIN, (4, 2), (8, 2), ""),
        (MOON, (5, 2), (8, 2), ""),  # the last evaluation is not one of the longer run
        (SCAFFOLD, (4, 1), (8, 4), ""),  # means of logged values are over other rounds
        (MOON, (4, 1), (8, 4), ""),
        (PLAIN, (6, 2), (6, 3), ""),  # round 3 was not evaluated: from the start
        (SCAFFOLD, (5, 5), (8, 3), ""),  # nor here
        (PLAIN, (4, 1), (5, 1), "-average_last3"),
        ("fedper", (4, 2), (8, 2), CLIENTS),
    ],
)
def test_a_longer_run_has_the_bytes_of_an_uninterrupted_one(method, before, after, more, train):
    longer = SMALL.format(*after) + more
    train(SMALL.format(*before) + more, method)
    continued = train(longer, method)
    whole = train(longer, method, "-whole")
    assert contents(continued) == contents(whole)
    due = [number for number in range(1, before[0] + 1) if is_due(after, number)]
    possible = all(is_due(before, number) for number in due)
    assert summary(continued)["resumed_at"] == (before[0] if possible else 0)
    assert summary(whole)["resumed_at"] == 0


def is_due(lengths: tuple[int, int], number: int) -> bool:
    return is_evaluated(PROTOCOL | {"rounds": lengths[0], "evaluate_every": lengths[1]}, number)


def test_a_method_that_counts_in_python_is_refused(monkeypatch, train):
    """Its counter would begin anew in a longer run, and the bytes would differ."""
    rounds = 0

    def weigh(cohort):
        nonlocal rounds
        rounds += 1
        return by_samples(cohort)

    monkeypatch.setattr(fedprox, "method", lambda mu=0.1: Method(weigh=weigh))
    with pytest.raises(UsageError, match=r"`rounds`, which `weigh` reads, changes .* resumed"):
        train(FOUR, "fedprox")


@pytest.fixture
def edited(monkeypatch):
    """As after an edit of the study: the name stays that of four rounds, and `rounds` changes."""

    def edit(rounds: int) -> None:
        before, run = (named(SMALL.format(number, 2), PLAIN) for number in (4, rounds))
        run["name"] = before["name"]
        monkeypatch.setattr("test_extension.named", lambda *names: run)

    return edit


def test_the_same_name_with_more_rounds_goes_on(edited, train):
    first = train()
    edited(8)
    assert train("the same") == first
    assert (summary(first)["resumed_at"], summary(first)["rounds"]) == (4, 8)


def test_fewer_rounds_than_are_finished_are_refused(edited, train):
    train()
    edited(2)
    with pytest.raises(UsageError, match="trained for 4 rounds before, and `rounds` is 2 now"):
        train("the same")


OTHERS = [SMALL.format(2, 2), EIGHT + "-lr0.2", EIGHT + "-client_test0.2"]


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_is_not_gone_on_from(other, train):
    train()
    assert summary(train(other))["resumed_at"] == 0


def test_a_damaged_state_is_not_used(caplog, train, home):
    train()
    (state,) = home.rglob("*.ended")
    state.write_bytes(state.read_bytes()[:-9] + b"123456789")
    longer = train(EIGHT)
    assert summary(longer)["resumed_at"] == 0
    assert "is not used" in caplog.text


def test_a_run_that_diverged_stays_as_it_ended(train):
    protocol = SMALL + "-lr1e+30"
    first = train(protocol.format(4, 2))
    assert summary(first)["diverged"] == 2
    longer = train(protocol.format(8, 2))
    assert summary(longer)["rounds"] == 2
    assert contents(longer)["metrics.csv"] == contents(first)["metrics.csv"]


def test_means_are_over_the_rounds_between_evaluations():
    names, values = ("train_loss", "effective_clients"), ([1.0, 2.0], [3.0, 5.0], [7.0])
    logs = [{}, *(dict.fromkeys(names, one) for one in values)]
    numbers = zip((0, 2, 4, 5), logs, strict=True)
    history = [{"round": number, "accuracy": 0.5, "logged": log} for number, log in numbers]
    protocol = PROTOCOL | {"rounds": 8, "evaluate_every": 4}
    state = extension.RunState({"w": extension.torch.zeros(1)}, {}, round=5)
    found, rows = extension.adapt(state, history, protocol)
    assert [one["round"] for one in rows] == [0, 4]
    assert rows[1]["train_loss"] == (1 + 2 + 3 + 5) / 4
    assert found.logged["train_loss"].tolist() == [7.0]


@pytest.mark.parametrize("problem", [OSError(28, "full"), ValueError("header"), RuntimeError()])
def test_results_are_there_whatever_happens_to_the_last_state(
    problem, monkeypatch, caplog, train, home
):
    def fails(*arguments):
        raise problem

    whole = contents(train(FOUR, SCAFFOLD, "-whole"))
    monkeypatch.setattr(checkpoint, "save", fails)
    out = train(FOUR, SCAFFOLD)
    assert contents(out) == whole
    assert "the last state is not kept" in caplog.text
    assert not [*home.rglob("*.ended*")]


def test_a_run_whose_results_cannot_be_written_goes_on_after_its_last_round(monkeypatch, train):
    whole = contents(train(FOUR, SCAFFOLD, "-whole"))
    monkeypatch.setattr(writing, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(FOUR, SCAFFOLD)
    monkeypatch.undo()
    out = train(FOUR, SCAFFOLD)
    assert (contents(out), summary(out)["resumed_at"]) == (whole, 4)


def test_a_state_that_a_product_reads_is_kept_whatever_its_size(monkeypatch, train, home):
    monkeypatch.setenv("FEDGRID_KEEP_STATE_GB", "0")
    blocks = [{axis: [value] for axis, value in named(FOUR, MOON)["name"].items()}]
    monkeypatch.setenv(jobs.STATES_READ, json.dumps(blocks))
    for method in (MOON, SCAFFOLD):
        train(FOUR, method)
    (ended,) = home.rglob("*.ended")
    assert f"/{MOON}/" in str(ended)


# --- the same work under other names --------------------------------------------------------------


def test_the_same_work_under_another_name_is_linked(train):
    first = train(FOUR, "fedprox")
    again = train(f"{FOUR}-tail3", "fedprox-mu0.01")
    for name in TABLES:
        assert (first / name).samefile(again / name)
    names = named(f"{FOUR}-tail3", "fedprox-mu0.01")["name"]
    assert summary(again)["run"]["name"] == names
    assert summary(again)["trained_as"] == summary(first)["run"]["name"]
    assert "trained_as" not in summary(first)


def test_a_job_reads_no_run_but_those_of_its_key(monkeypatch, train):
    """Its time does not depend on the number of runs."""
    train(FOUR, "fedprox")
    for mu in (0.1, 0.2, 0.3):
        train(FOUR, f"fedprox-mu{mu}")
    read, readers = [], (writing.read_summary, extension.rounds_of)
    monkeypatch.setattr(writing, "read_summary", lambda f: read.append(f) or readers[0](f))
    monkeypatch.setattr(extension, "rounds_of", lambda f, key: read.append(f) or readers[1](f, key))
    train(FOUR, "fedprox-mu0.4")
    assert all("fedprox-mu0.4" in str(path) for path in read)


@pytest.mark.parametrize("lost", ["all notes", "the run", "no note"])
def test_notes_of_runs_may_be_lost(lost, train, home):
    first = train(FOUR, "fedprox")
    if lost == "all notes":  # they are made again from the runs that are there
        shutil.rmtree(home / same_work.NOTES)
    elif lost == "the run":
        shutil.rmtree(home / same_work.RUNS)
    again = train(f"{FOUR}-tail3", "fedprox")
    assert ("trained_as" in summary(again)) == (lost != "the run")
    assert contents(again) == contents(first)
    longer = train(SMALL.format(6, 2), "fedprox")
    assert summary(longer)["resumed_at"] == 4


def test_work_of_other_content_code_or_packages_is_not_linked(monkeypatch, train):
    first = train(FOUR, "fedprox")
    other = train(FOUR, "fedprox-mu0.02")
    assert not (first / "model.safetensors").samefile(other / "model.safetensors")
    monkeypatch.setattr(machine, "versions", lambda: {"torch": "0.1"})
    other = train(f"{FOUR}-tail3", "fedprox")
    assert not (first / "model.safetensors").samefile(other / "model.safetensors")


def test_stages_before_the_training_are_shared_by_protocols_that_agree(train, results):
    names = dict(zip(AXES, ("", "digits", "dir0.1", "fedsls", 0), strict=True))
    protocols = [FOUR, EIGHT, f"{FOUR}-pretrain_epochs2"]
    runs = [GRID.resolve(names | {"protocol": protocol}) for protocol in protocols]
    one, other, third = (input_paths(run)["saliency"] for run in runs)
    assert one == other != third
    for stage in (pretraining, saliency):
        name = RUN.format(**runs[0]["name"])
        stage.main([name, "--results", str(results), "--device", "cpu"])
    folder = train(EIGHT, "fedsls")
    assert summary(folder)["rounds"] == 8


# --- forced runs ----------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, results, tmp_path):
    """Begins a command of Snakemake that forces something, with the run of a name in `tmp_path`."""
    monkeypatch.setenv(forced.VARIABLE, "")
    monkeypatch.chdir(results.parent)

    def begun(**settings) -> None:
        given = {"forceall": False, "forcerun": set(), "forcetargets": False, "targets": set()}
        rules = {"train": "fedgrid_train", "pretrain": "fedgrid_pretrain"}
        forced.tell(SimpleNamespace(**given | settings), rules)

    return begun


FILE = f"runs/{FOUR}/digits/dir0.1/{MOON}/seed0/clients.csv"
FORCES = [
    {"forceall": True},
    {"forcerun": {"fedgrid_train"}},
    {"forcerun": {"{}"}},
    {"forcetargets": True, "targets": {"{}"}},
]
FORCES_NOT = [
    {},
    {"forcerun": {"fedgrid_pretrain"}},
    {"targets": {"{}"}},
    {"forcetargets": True, "targets": {"results/table1.csv"}},
]


def asked_for(settings: dict, place: str) -> dict:
    """Settings in which `{}` is a file of the run."""
    file = f"./{place}/{FILE}"
    return {k: {w.format(file) for w in v} if v is not True else v for k, v in settings.items()}


@pytest.mark.parametrize("settings", [*FORCES, *FORCES_NOT])
def test_only_a_forced_run_is_trained_again(settings, command, train, tmp_path):
    first = train(FOUR, MOON)
    was = contents(first)
    os.link(first / "model.safetensors", tmp_path / "kept")
    command(**asked_for(settings, tmp_path.name))
    again = train(FOUR, MOON)
    is_kept = (again / "model.safetensors").samefile(tmp_path / "kept")
    assert is_kept == (settings in FORCES_NOT)
    assert (summary(again)["resumed_at"], contents(again)) == (0, was)


def test_a_forced_run_is_neither_linked_nor_goes_on_from_a_shorter_one(command, train):
    first = train(FOUR, MOON)
    command(forceall=True)
    same = train(f"{FOUR}-tail3", MOON)
    longer = train(SMALL.format(6, 2), MOON)
    assert not (first / "model.safetensors").samefile(same / "model.safetensors")
    assert contents(same) == contents(first)
    assert "trained_as" not in summary(same)
    assert summary(longer)["resumed_at"] == 0


class Stopped(Exception):  # noqa: N818
    """The end of a process."""


@pytest.fixture
def stops(monkeypatch):
    """Ends a training after its checkpoint of a round."""

    def after(number: int) -> None:
        def keep(self, state, history, now, check):
            checkpoint.save(self.path, self.key, state, history)
            if state.round == number:
                raise Stopped

        monkeypatch.setattr(checkpoint.Saved, "keep", keep)

    return after


def test_a_forced_run_that_was_stopped_resumes(command, stops, monkeypatch, train, home):
    """Whether the command tries it again, or a later command does, which forces nothing."""
    was = contents(train(FOUR, MOON))
    command(forceall=True)
    for number in (1, 3):
        stops(number)
        with pytest.raises(Stopped):
            train(FOUR, MOON)
    monkeypatch.undo()
    os.environ.pop(forced.VARIABLE, None)
    again = train(FOUR, MOON)
    assert (summary(again)["resumed_at"], contents(again)) == (3, was)
    assert not [*home.rglob("*.forced")]


def test_forced_again_a_stopped_run_begins_anew(command, stops, monkeypatch, train, results):
    command(forceall=True)
    stops(2)
    with pytest.raises(Stopped):
        train(FOUR, MOON)
    monkeypatch.undo()
    monkeypatch.chdir(results.parent)
    command(forceall=True)
    again = train(FOUR, MOON)
    os.environ.pop(forced.VARIABLE, None)
    assert summary(again)["resumed_at"] == 0


def test_a_forced_pretraining_begins_with_its_first_client(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    unfinished = tmp_path / "pretrain.partial"
    for settings, kept in [({}, True), ({"forceall": True}, False)]:
        command(**settings)
        pretrain.begin(unfinished, "key")
        (unfinished / "client0.safetensors").touch()
        pretrain.begin_forced(tmp_path / "pretrain", unfinished)
        assert unfinished.exists() == kept
    pretrain.begin(unfinished, "key")
    pretrain.begin_forced(tmp_path / "pretrain", unfinished)  # another attempt of this command
    assert unfinished.exists()
