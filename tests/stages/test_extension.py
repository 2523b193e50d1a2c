"""Longer, shared and forced runs: `training/extension.py`, `runtime/forced.py`, `fedgrid train`."""

import json
import os
import shutil
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


def trained(results: Path, protocol: str, method: str = PLAIN, place: str = "one") -> Path:
    """Train a run by its names in a place of its own; its folder."""
    run, stages = named(protocol, method), ("data", "partition")
    name = RUN.format(**run["name"])
    there = input_paths(run | {"cells": GRID.cells(run["name"]["protocol"])})
    paths = {stage: results / there[stage] for stage in (*stages, *list_needed_stages(run))}
    if not paths["partition"].exists():
        partition.main([name, "--results", str(results)])
    home = results.parent / place
    out, checkpoint = home / "runs" / name, home / f"checkpoints/runs/{name}.safetensors"
    train_run(run, paths, out, checkpoint, Machine("cpu"), home=home)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


# --- longer runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "before", "after"),
    [
        (PLAIN, (4, 2), (8, 2)),
        (MOON, (5, 2), (8, 2)),  # the evaluation after the last round is not one of the longer run
        (SCAFFOLD, (4, 1), (8, 4)),  # means of logged values are over other rounds
        (MOON, (4, 1), (8, 4)),
        (PLAIN, (6, 2), (6, 3)),  # round 3 was not evaluated: from the start
        (SCAFFOLD, (5, 5), (8, 3)),  # nor here
    ],
)
def test_a_longer_run_has_the_bytes_of_an_uninterrupted_one(
    method, before, after, results, tmp_path
):
    apart = str(tmp_path.relative_to(tmp_path.parents[1]))
    trained(results, SMALL.format(*before), method, f"{apart}/continued")
    continued = trained(results, SMALL.format(*after), method, f"{apart}/continued")
    whole = trained(results, SMALL.format(*after), method, f"{apart}/whole")
    assert contents(continued) == contents(whole)
    due = [number for number in range(1, before[0] + 1) if is_due(after, number)]
    possible = all(is_due(before, number) for number in due)
    assert summary(continued)["resumed_at"] == (before[0] if possible else 0)
    assert summary(whole)["resumed_at"] == 0


def test_the_last_models_of_a_longer_run_are_those_of_an_uninterrupted_one(results, tmp_path):
    apart, averaged = str(tmp_path.relative_to(tmp_path.parents[1])), SMALL + "-average_last3"
    trained(results, averaged.format(4, 1), "fedavg", f"{apart}/continued")
    continued = trained(results, averaged.format(5, 1), "fedavg", f"{apart}/continued")
    whole = trained(results, averaged.format(5, 1), "fedavg", f"{apart}/whole")
    assert contents(continued) == contents(whole)
    assert summary(continued)["resumed_at"] == 4


def test_a_method_that_counts_in_python_is_refused(results, tmp_path, monkeypatch):
    """Its counter would begin anew in a longer run, and the bytes would differ."""
    rounds = 0

    def weigh(cohort):
        nonlocal rounds
        rounds += 1
        return by_samples(cohort)

    monkeypatch.setattr(fedprox, "method", lambda mu=0.1: Method(weigh=weigh))
    with pytest.raises(UsageError, match=r"`rounds`, which `weigh` reads, changes .* resumed"):
        trained(results, SMALL.format(4, 2), "fedprox", tmp_path.name)


def is_due(lengths: tuple[int, int], number: int) -> bool:
    return is_evaluated(PROTOCOL | {"rounds": lengths[0], "evaluate_every": lengths[1]}, number)


def test_a_longer_run_with_clients_evaluated(results, tmp_path):
    protocol = "fedsls-quick-clients5-participation0.6-local2-client_test0.3-rounds{}"
    protocol += "-evaluate_every2-clients_every2"
    trained(results, protocol.format(4), "fedper", tmp_path.name)
    continued = trained(results, protocol.format(8), "fedper", tmp_path.name)
    whole = trained(results, protocol.format(8), "fedper", f"{tmp_path.name}-whole")
    assert contents(continued) == contents(whole)
    assert summary(continued)["resumed_at"] == 4


def test_the_same_name_with_more_rounds_goes_on(results, tmp_path, monkeypatch):
    """As after an edit of the study: the name stays, and `rounds` grows."""
    first = trained(results, SMALL.format(4, 2), place=tmp_path.name)
    longer = named(SMALL.format(8, 2), PLAIN)
    longer["name"] = named(SMALL.format(4, 2), PLAIN)["name"]
    monkeypatch.setattr("test_extension.named", lambda *names: longer)
    assert trained(results, "the same", place=tmp_path.name) == first
    assert summary(first)["resumed_at"] == 4
    assert summary(first)["rounds"] == 8


def test_fewer_rounds_than_are_finished_are_refused(results, tmp_path, monkeypatch):
    trained(results, SMALL.format(4, 2), place=tmp_path.name)
    shorter = named(SMALL.format(2, 2), PLAIN)
    shorter["name"] = named(SMALL.format(4, 2), PLAIN)["name"]
    monkeypatch.setattr("test_extension.named", lambda *names: shorter)
    with pytest.raises(UsageError, match="trained for 4 rounds before, and `rounds` is 2 now"):
        trained(results, "the same", place=tmp_path.name)


def test_a_shorter_run_of_its_own_name_is_trained(results, tmp_path):
    trained(results, SMALL.format(4, 2), place=tmp_path.name)
    assert summary(trained(results, SMALL.format(2, 2), place=tmp_path.name))["resumed_at"] == 0


@pytest.mark.parametrize("other", ["lr0.2", "batch16", "client_test0.2"])
def test_another_run_is_not_gone_on_from(other, results, tmp_path):
    trained(results, SMALL.format(4, 2), place=tmp_path.name)
    found = trained(results, f"{SMALL.format(8, 2)}-{other}", place=tmp_path.name)
    assert summary(found)["resumed_at"] == 0


def test_a_state_that_is_too_large_is_not_kept(results, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGRID_KEEP_STATE_GB", "0")
    trained(results, SMALL.format(4, 2), place=tmp_path.name)
    assert not [*results.parent.rglob(f"{tmp_path.name}/**/*.ended")]
    longer = trained(results, SMALL.format(8, 2), place=tmp_path.name)
    assert summary(longer)["resumed_at"] == 0


def test_a_damaged_state_is_not_used(results, tmp_path, caplog):
    trained(results, SMALL.format(4, 2), place=tmp_path.name)
    (state,) = (results.parent / tmp_path.name).rglob("*.ended")
    state.write_bytes(state.read_bytes()[:-9] + b"123456789")
    longer = trained(results, SMALL.format(8, 2), place=tmp_path.name)
    assert summary(longer)["resumed_at"] == 0
    assert "is not used" in caplog.text


def test_a_run_that_diverged_stays_as_it_ended(results, tmp_path):
    protocol = SMALL + "-lr1e+30"
    first = trained(results, protocol.format(4, 2), place=tmp_path.name)
    assert summary(first)["diverged"] == 2
    longer = trained(results, protocol.format(8, 2), place=tmp_path.name)
    assert summary(longer)["rounds"] == 2
    assert contents(longer)["metrics.csv"] == contents(first)["metrics.csv"]


def test_means_are_over_the_rounds_between_evaluations():
    row = {"clients": [], "accuracy": 0.5}
    logs = [{}, {"train_loss": [1.0, 2.0]}, {"train_loss": [3.0, 5.0]}, {"train_loss": [7.0]}]
    effective = [{"effective_clients": values} for log in logs for values in log.values()]
    both = [log | more for log, more in zip(logs, [{}, *effective], strict=True)]
    history = [row | {"round": n, "logged": log} for n, log in zip((0, 2, 4, 5), both, strict=True)]
    for one in history:
        del one["clients"]
    protocol = PROTOCOL | {"rounds": 8, "evaluate_every": 4}
    state = extension.RunState({"w": extension.torch.zeros(1)}, {}, round=5)
    found, rows = extension.adapt(state, history, protocol)
    assert [one["round"] for one in rows] == [0, 4]
    assert rows[1]["train_loss"] == (1 + 2 + 3 + 5) / 4
    assert found.logged["train_loss"].tolist() == [7.0]


@pytest.mark.parametrize("problem", [OSError(28, "full"), ValueError("header"), RuntimeError()])
def test_results_are_there_whatever_happens_to_the_last_state(
    problem, results, tmp_path, monkeypatch, caplog
):
    def fails(*arguments):
        raise problem

    whole = contents(trained(results, SMALL.format(4, 2), SCAFFOLD, f"{tmp_path.name}-whole"))
    monkeypatch.setattr(checkpoint, "save", fails)
    out = trained(results, SMALL.format(4, 2), SCAFFOLD, tmp_path.name)
    assert contents(out) == whole
    assert "the last state is not kept" in caplog.text
    assert not [*(results.parent / tmp_path.name).rglob("*.ended*")]


def test_a_run_whose_results_cannot_be_written_goes_on_after_its_last_round(
    results, tmp_path, monkeypatch
):
    whole = contents(trained(results, SMALL.format(4, 2), SCAFFOLD, f"{tmp_path.name}-whole"))
    monkeypatch.setattr(writing, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained(results, SMALL.format(4, 2), SCAFFOLD, tmp_path.name)
    monkeypatch.undo()
    out = trained(results, SMALL.format(4, 2), SCAFFOLD, tmp_path.name)
    assert (contents(out), summary(out)["resumed_at"]) == (whole, 4)


def test_a_state_that_a_product_reads_is_kept_whatever_its_size(results, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGRID_KEEP_STATE_GB", "0")
    blocks = [{axis: [value] for axis, value in named(SMALL.format(4, 2), MOON)["name"].items()}]
    monkeypatch.setenv(jobs.STATES_READ, json.dumps(blocks))
    for method in (MOON, SCAFFOLD):
        trained(results, SMALL.format(4, 2), method, tmp_path.name)
    (ended,) = (results.parent / tmp_path.name).rglob("*.ended")
    assert f"/{MOON}/" in str(ended)


# --- the same work under other names --------------------------------------------------------------


def test_the_same_work_under_another_name_is_linked(results, tmp_path):
    first = trained(results, SMALL.format(4, 2), "fedprox", tmp_path.name)
    again = trained(results, f"{SMALL.format(4, 2)}-tail3", "fedprox-mu0.01", tmp_path.name)
    for name in TABLES:
        assert (first / name).samefile(again / name)
    names = named(f"{SMALL.format(4, 2)}-tail3", "fedprox-mu0.01")["name"]
    assert summary(again)["run"]["name"] == names
    assert summary(again)["trained_as"] == summary(first)["run"]["name"]
    assert "trained_as" not in summary(first)


def test_a_job_reads_no_run_but_those_of_its_key(results, tmp_path, monkeypatch):
    """Its time does not depend on the number of runs."""
    trained(results, SMALL.format(4, 2), "fedprox", tmp_path.name)
    for mu in (0.1, 0.2, 0.3):
        trained(results, SMALL.format(4, 2), f"fedprox-mu{mu}", tmp_path.name)
    read, readers = [], (writing.read_summary, extension.rounds_of)
    monkeypatch.setattr(writing, "read_summary", lambda f: read.append(f) or readers[0](f))
    monkeypatch.setattr(extension, "rounds_of", lambda f, key: read.append(f) or readers[1](f, key))
    trained(results, SMALL.format(4, 2), "fedprox-mu0.4", tmp_path.name)
    assert all("fedprox-mu0.4" in str(path) for path in read)


@pytest.mark.parametrize("lost", ["all notes", "the run", "no note"])
def test_notes_of_runs_may_be_lost(lost, results, tmp_path):
    home = results.parent / tmp_path.name
    first = trained(results, SMALL.format(4, 2), "fedprox", tmp_path.name)
    if lost == "all notes":  # they are made again from the runs that are there
        shutil.rmtree(home / same_work.NOTES)
    elif lost == "the run":
        shutil.rmtree(home / same_work.RUNS)
    again = trained(results, f"{SMALL.format(4, 2)}-tail3", "fedprox", tmp_path.name)
    assert ("trained_as" in summary(again)) == (lost != "the run")
    assert contents(again) == contents(first)
    longer = trained(results, SMALL.format(6, 2), "fedprox", tmp_path.name)
    assert summary(longer)["resumed_at"] == 4


def test_work_of_other_content_code_or_packages_is_not_linked(results, tmp_path, monkeypatch):
    first = trained(results, SMALL.format(4, 2), "fedprox", tmp_path.name)
    other = trained(results, SMALL.format(4, 2), "fedprox-mu0.02", tmp_path.name)
    assert not (first / "model.safetensors").samefile(other / "model.safetensors")
    monkeypatch.setattr(machine, "versions", lambda: {"torch": "0.1"})
    other = trained(results, f"{SMALL.format(4, 2)}-tail3", "fedprox", tmp_path.name)
    assert not (first / "model.safetensors").samefile(other / "model.safetensors")


def test_stages_before_the_training_are_shared_by_protocols_that_agree(results):
    names = dict(zip(AXES, ("", "digits", "dir0.1", "fedsls", 0), strict=True))
    protocols = [SMALL.format(4, 2), SMALL.format(8, 2), f"{SMALL.format(4, 2)}-pretrain_epochs2"]
    runs = [GRID.resolve(names | {"protocol": protocol}) for protocol in protocols]
    one, other, third = (input_paths(run)["saliency"] for run in runs)
    assert one == other != third
    for stage in (pretraining, saliency):
        name = RUN.format(**runs[0]["name"])
        stage.main([name, "--results", str(results), "--device", "cpu"])
    folder = trained(results, SMALL.format(8, 2), "fedsls", "shared")
    assert summary(folder)["rounds"] == 8


# --- forced runs ----------------------------------------------------------------------------------


@pytest.fixture
def command(results, tmp_path, monkeypatch):
    """Begins a command of Snakemake that forces something, with the run of a name in `tmp_path`."""
    monkeypatch.setenv(forced.VARIABLE, "")
    monkeypatch.chdir(results.parent)

    def begun(**settings) -> None:
        given = {"forceall": False, "forcerun": set(), "forcetargets": False, "targets": set()}
        rules = {"train": "fedgrid_train", "pretrain": "fedgrid_pretrain"}
        forced.tell(SimpleNamespace(**given | settings), rules)

    return begun


FILE = f"runs/{SMALL.format(4, 2)}/digits/dir0.1/{MOON}/seed0/clients.csv"
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
def test_only_a_forced_run_is_trained_again(settings, command, results, tmp_path):
    first = trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    was = contents(first)
    os.link(first / "model.safetensors", tmp_path / "kept")
    command(**asked_for(settings, tmp_path.name))
    again = trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    is_kept = (again / "model.safetensors").samefile(tmp_path / "kept")
    assert is_kept == (settings in FORCES_NOT)
    assert (summary(again)["resumed_at"], contents(again)) == (0, was)


def test_a_forced_run_is_neither_linked_nor_goes_on_from_a_shorter_one(command, results, tmp_path):
    first = trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    command(forceall=True)
    same = trained(results, f"{SMALL.format(4, 2)}-tail3", MOON, tmp_path.name)
    longer = trained(results, SMALL.format(6, 2), MOON, tmp_path.name)
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


def test_a_forced_run_that_was_stopped_resumes(command, stops, results, tmp_path, monkeypatch):
    """Whether the command tries it again, or a later command does, which forces nothing."""
    was = contents(trained(results, SMALL.format(4, 2), MOON, tmp_path.name))
    command(forceall=True)
    for number in (1, 3):
        stops(number)
        with pytest.raises(Stopped):
            trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    monkeypatch.undo()
    os.environ.pop(forced.VARIABLE, None)
    again = trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    assert (summary(again)["resumed_at"], contents(again)) == (3, was)
    assert not [*(results.parent / tmp_path.name).rglob("*.forced")]


def test_forced_again_a_stopped_run_begins_anew(command, stops, results, tmp_path, monkeypatch):
    command(forceall=True)
    stops(2)
    with pytest.raises(Stopped):
        trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    monkeypatch.undo()
    monkeypatch.chdir(results.parent)
    command(forceall=True)
    again = trained(results, SMALL.format(4, 2), MOON, tmp_path.name)
    os.environ.pop(forced.VARIABLE, None)
    assert summary(again)["resumed_at"] == 0


def test_a_forced_pretraining_begins_with_its_first_client(command, tmp_path, monkeypatch):
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
