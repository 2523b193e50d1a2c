"""Results held to their records: `fedgrid.runtime.records`, `fedgrid verify`."""

import copy
import json
import re
import shutil
import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from conftest import ENVIRONMENT
from fedgrid.commands import verify as verify_module
from fedgrid.runtime import files, machine
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError
from fedgrid.store import trained_again, verifying
from fedgrid.study import sizes
from fedgrid.study.jobs import memory_mb
from fedgrid.study.reading import merge_configs
from made import GRID

NAME = "tiny/digits/dir0.1/{}/seed0"
NAMES = {"protocol": "fedsls-quick", "dataset": "digits", "partition": "dir0.1", "seed": 0}
RUN, PARTITION = "results/runs/tiny/digits/dir0.1/moon/seed0", "results/partition/digits/dir0.1"
TABLES = ("clients.csv", "metrics.csv", "predictions.csv")


@pytest.fixture
def verify(capsys, monkeypatch):
    """Verifies a project: the status, and what is printed."""

    def verified(project: Path, *configs: str) -> tuple[int, str]:
        monkeypatch.chdir(project)
        verifying.checksum.cache_clear()  # the same names are other files there
        status = 0
        try:
            verify_module.main(["results", "--config", *(configs or ["tiny.yaml"])])
        except SystemExit as problem:
            assert problem.code == "results differs from its records"  # noqa: PT017
            status = 1
        return status, capsys.readouterr().out

    return verified


def verified_by_command(project: Path, *arguments: str) -> tuple[int, str]:
    """As `verify`, by the project's own code, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "fedgrid", "verify", *arguments],
        **{"cwd": project, "env": ENVIRONMENT | {"PYTHONPATH": "workflow"}},
        **{"text": True, "capture_output": True, "check": False},
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_what_was_just_made_is_good(finished):
    status, said = verified_by_command(finished, "results", "--config", "tiny.yaml")
    assert status == 0
    assert re.fullmatch(r"\d+ good, 0 altered, 0 missing, 0 stale, 0 unknown, 0 unrecorded\n", said)
    assert int(said.split()[0]) >= 5 + 1 + 3 + 4 * 3 + 1 + 2  # data to table


def test_runs_of_a_configuration_that_is_not_given_are_unknown_and_not_stale(finished, verify):
    status, said = verify(finished, "config.yaml")
    assert status == 0
    reason = "protocol `tiny` is in no study and no configuration: name the file that defines it"
    assert f"unknown    {RUN}/metrics.csv: {reason} with --config\n" in said
    assert re.search(r"0 altered, 0 missing, 0 stale, [1-9]\d* unknown, 0 unrecorded\n", said)


def test_later_configurations_are_laid_over_earlier_ones(project, verify):
    rewrite(project / "tiny.yaml", "local: 2", "local: 3")
    (project / "over.yaml").write_text("protocols: {tiny: {local: 2}}\nvariants: {}\n")
    status, said = verify(project, "config.yaml", "tiny.yaml", "over.yaml")
    assert status == 0
    assert "0 stale, 0 unknown" in said


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def recorded(method: str = "fedavg", command: tuple = (), **record) -> dict:
    """The record of a run of FedSLS's quick protocol."""
    run = GRID.resolve(NAMES | {"method": "fedavg"})
    run["name"]["method"] = method
    code = {"modules": ["stages.train"], "fingerprint": source.fingerprint("stages.train")}
    command = ["fedgrid.commands.train", "a/run", *command]
    return {"command": command, "run": run, "code": code, "inputs": {}} | record


def test_a_method_that_has_no_file_here_is_unknown():
    code = {"modules": ["methods.pull", "stages.train"], "fingerprint": "of both"}
    found = verifying.judged(recorded("pull", code=code), GRID, Path("results"))
    assert found == ("unknown", "its code does not exist: methods/pull.py")
    found = verifying.judged(recorded("pull"), GRID, Path("results"))
    assert found[0] == "unknown"
    assert "method `pull` is in no study and no configuration" in found[1]


def test_code_of_the_package_that_is_gone_is_stale():
    code = {"modules": ["losses", "stages.train"], "fingerprint": "of both"}
    found = verifying.judged(recorded(code=code), GRID, Path("results"))
    assert found == ("stale", "the code that made it has changed since this was made")


def test_results_of_data_that_are_not_there_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv(own_data.VARIABLE, json.dumps({"mine": {"folder": "/not/mounted"}}))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/a.csv").write_text("1")
    digest = files.checksum(tmp_path / "runs/a.csv")
    code = {"modules": ["datasets.mine", "stages.train"], "fingerprint": "of both"}
    text = json.dumps(recorded(code=code, outputs={"a.csv": digest}))
    (tmp_path / "runs/.a.csv.record").write_text(text)
    why = "datasets.mine: there is no folder /not/mounted"
    found = [*verifying.verified(tmp_path, GRID)]
    assert found == [(tmp_path / "runs/a.csv", "unknown", why)]


@pytest.mark.parametrize("folder", ["runs", "interpolation"])
def test_a_file_without_a_record_is_found_in_every_folder_of_results(folder, tmp_path):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "seed0.csv").touch()
    found = [*verifying.verified(tmp_path, GRID)]
    assert found == [(tmp_path / folder / "seed0.csv", "unrecorded", "it has no record")]


def test_the_results_of_another_checkout_are_held_to_its_own_inputs(tmp_path, monkeypatch):
    for folder, text in (("here", "mine"), ("there", "its own")):
        (tmp_path / folder / "results").mkdir(parents=True)
        (tmp_path / folder / "results/a.npz").write_text(text)
    theirs = tmp_path / "there/results"
    record = recorded(inputs={"results/a.npz": files.checksum(theirs / "a.npz")})
    monkeypatch.chdir(tmp_path / "here")
    assert verifying.judged(record, GRID, theirs) == ("good", "")
    assert verifying.judged(record, GRID, Path("results"))[0] == "stale"


def test_configurations_are_merged_as_snakemake_merges_them():
    from snakemake.utils import update_config

    files = [{"a": {"b": {"c": 1, "d": 2}}, "l": [1]}, {"a": {"b": {"c": 3}}, "l": {"x": 1}}]
    files += [{"a": {"b": {"e": None}, "f": 4}, "l": [2]}, {"a": {"f": {"g": 5}}}]
    merged = {}
    for one in copy.deepcopy(files):
        update_config(merged, one)
    assert reduce(merge_configs, files, {}) == merged


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ("alter metrics.csv", 1, "altered    {}/metrics.csv: its content differs"),
        ("alter model.safetensors", 1, "altered    {}/model.safetensors: its content differs"),
        ("remove model.safetensors", 1, "missing    {}/model.safetensors: only its record exists"),
        ("write notes.txt", 0, "unrecorded {}/notes.txt"),
    ],
)
def test_a_file_that_is_not_as_recorded_is_told(change, status, said, project, verify):
    how, name = change.split()
    path = project / RUN / name
    if how == "alter":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif how == "remove":
        path.unlink()
    else:
        path.write_text("mine")
    found, text = verify(project)
    assert found == status
    assert said.format(RUN) in text


@pytest.mark.parametrize("content", ["", "{", "[]", '{"outputs": 3}'])
def test_a_record_that_cannot_be_read_is_altered(content, tmp_path):
    (tmp_path / ".metrics.csv.record").write_text(content)
    ((path, state, why),) = verifying.verified(tmp_path, GRID)
    assert (path.name, state) == (".metrics.csv.record", "altered")
    assert "the record cannot be read" in why


def test_what_depends_on_what_was_changed_is_stale(project, verify):
    """A partition that was altered, and a field of the protocol."""
    partition = next((project / PARTITION).rglob("seed0.npz"))
    content = partition.read_bytes()
    partition.write_bytes(content + b"0")
    _, said = verify(project)
    assert said.count("\nstale") >= 4 * 3  # the runs of all methods
    assert "classwise-5/seed0.npz has changed since this was made" in said
    partition.write_bytes(content)
    rewrite(project / "tiny.yaml", "local: 2", "local: 3")
    _, said = verify(project)
    assert f"stale      {RUN}/metrics.csv: protocol: local was 2 and is 3 now" in said
    assert "stale      results/saliency" not in said


def test_changed_code_makes_stale_what_it_made(project):
    rewrite(
        project / "workflow/fedgrid/methods/moon.py", "def method(", "EXTRA = 1\n\n\ndef method("
    )
    status, said = verified_by_command(project, "results", "--config", "tiny.yaml")
    assert status == 1
    stale = set(re.findall(r"^stale +(\S+):", said, re.M))
    assert stale == {f"{RUN}/{name}" for name in (*TABLES, "model.safetensors", "summary.json")}


def test_a_run_says_where_it_comes_from(finished):
    summary = json.loads((finished / RUN / "summary.json").read_text())
    assert summary["run"]["protocol"]["local"] == 2
    assert re.fullmatch(r"[0-9a-f]{12}", summary["code"])
    assert summary["versions"].keys() >= {"python", "torch", "numpy", "safetensors"}
    assert summary["run"]["seed"] == 0
    assert {"device", "threads", "seconds", "peak_memory_mb"} <= summary.keys()
    record = json.loads((finished / RUN / ".metrics.csv.record").read_text())
    assert record["command"][0] == "fedgrid.commands.train"
    assert set(record["inputs"]) == {
        "results/data/digits",
        "results/partition/digits/dir0.1/classwise-5/seed0.npz",
    }
    assert "methods.moon" in record["code"]["modules"]
    assert "methods.fedau" not in record["code"]["modules"]


@pytest.mark.parametrize(
    ("flags", "name"),
    [("fma avx avx2 avx512f avx512bw", " (AVX-512)"), ("avx avx2 sse", " (AVX2)"), ("sse", "")],
)
def test_a_processor_is_named_with_its_widest_vectors(flags, name):
    about = f"processor\t: 0\nmodel name\t: AMD EPYC: 7\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
    assert machine.named(about) == f"AMD EPYC: 7{name}"
    with pytest.raises(LookupError):  # Linux names no processor
        machine.named("processor\t: 0\nFeatures\t: fp asimd\n")


def test_every_stage_stays_under_the_memory_that_its_rule_asks_for(finished):
    stages = set()
    for path in (finished / "results").rglob(".*.record"):
        record = json.loads(path.read_text())
        if (run := record["run"]) and "model" in run["protocol"]:
            assert record["peak_memory_mb"] < memory_mb(run), path
            stages.add(record["command"][0])
    assert stages == {"fedgrid.commands.train", "fedgrid.commands.saliency"}


def test_memory_is_for_the_model_the_cohort_and_what_clients_keep(monkeypatch):
    size = {"weights": 45, "training": 3, "evaluation": 0.5}
    monkeypatch.setattr(sizes, "measure_sizes", lambda model, inputs: size)
    protocol = {"model": "resnet18", "clients": 100, "participation": 0.1, "batch": 64}
    run = {"protocol": protocol, "dataset": "cifar10"}
    asked = [memory_mb(run | {"method": {name: {}}}) for name in ("fedavg", "moon")]
    batch = max(64 * 3, 1000 * 0.5)
    kept = 45 * 2 * 10 + 1500
    assert asked == [4000 + 45 * (12 + 2 * 10) + batch, 4000 + 45 * (12 + 2 * 10) + kept + batch]


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The commands that measure a model; the folder of caches is empty."""
    commands = []

    def run(command, **options):
        commands.append(command[-2:])
        fails = "broken" in command
        out = "" if fails else '{"weights": 2, "training": 1, "evaluation": 0.1}'
        return subprocess.CompletedProcess(command, int(fails), out, "error: a reason\n" * fails)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sizes.subprocess, "run", run)
    sizes.measure_sizes.cache_clear()
    yield commands
    sizes.measure_sizes.cache_clear()


def test_a_model_is_measured_once_for_each_shape_and_each_code(asked, monkeypatch):
    for model, inputs in (("cnn", "{}"), ("cnn", "{}"), ("cnn", '{"shape": [1]}'), ("mlp", "{}")):
        assert sizes.measure_sizes(model, inputs)["weights"] == 2
        sizes.measure_sizes.cache_clear()  # as in the next command
    assert asked == [["cnn", "{}"], ["cnn", '{"shape": [1]}'], ["mlp", "{}"]]
    monkeypatch.setattr(source, "fingerprint", lambda *modules: "other")
    sizes.measure_sizes("cnn", "{}")
    assert len(asked) == 4


def test_a_model_that_cannot_be_measured_is_told_once_and_asked_again(asked, capsys, monkeypatch):
    monkeypatch.setattr(source, "fingerprint", lambda *modules: "any")
    assert [sizes.measure_sizes("broken", "{}") for _ in range(2)] == [sizes.UNKNOWN] * 2
    said = capsys.readouterr().err
    assert said.count("the memory of the model broken cannot be measured (error: a reason)") == 1
    sizes.measure_sizes.cache_clear()
    sizes.measure_sizes("broken", "{}")
    assert len(asked) == 2


def test_a_folder_of_caches_that_cannot_be_written_stops_nothing(asked, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert sizes.measure_sizes("cnn", "{}")["weights"] == 2


# --- runs that are trained again -----------------------------------------------------------------


@pytest.mark.slow
def test_runs_are_the_same_when_they_are_trained_again(finished):
    status, said = verified_by_command(finished, "results", "--config", "tiny.yaml", "--again", "9")
    assert status == 0
    *runs, count = said.splitlines()
    assert count == "4 of 4 runs are the same"
    assert all("seed0 is the same, to the byte; machine, versions, code" in one for one in runs)


def test_a_run_that_is_not_the_same_is_told_with_round_and_amount(project):
    for other in ("fedavg", "fedau", "fedsls"):
        (project / RUN.replace("moon", other) / "summary.json").unlink()
    metrics, model = project / RUN / "metrics.csv", project / RUN / "model.safetensors"
    lines = metrics.read_text().splitlines()
    names, first, *between, last = lines
    at = names.split(",").index("loss")
    changed = last.split(",")
    changed[at] = str(float(changed[at]) + 0.25)
    rewritten(metrics, "\n".join([names, first, *between, ",".join(changed)]).encode() + b"\n")
    tensors = load_file(model)
    entry = sorted(tensors)[0]
    rewritten(model, save(tensors | {entry: tensors[entry] + np.float32(0.5)}))
    status, said = verified_by_command(project, "results", "--config", "tiny.yaml", "--again", "1")
    assert status == 1
    assert (
        f"{RUN} is not the same: metrics.csv differs from round 2 on, in this round by 0.25" in said
    )
    assert "in loss; model.safetensors differs by at most 0.5; machine, versions, code and" in said
    assert "0 of 1 runs are the same" in said


def rewritten(path: Path, content: bytes) -> None:
    """Another file of the same name: the copy beside the checkpoint stays as it is."""
    path.unlink()
    path.write_bytes(content)


def test_a_run_whose_input_is_gone_cannot_be_trained_again(project):
    shutil.rmtree(project / "results/data")
    status, said = verified_by_command(project, "results", "--config", "tiny.yaml", "--again", "1")
    assert status == 1
    assert re.search(r"seed0 cannot be trained again: .*results/data/digits is missing: ", said)


MADE = {"device": "A", "versions": {"torch": "2.8"}, "code": "a"}


@pytest.mark.parametrize(
    ("now", "found", "said"),
    [
        ({}, [], "is the same, to the byte; machine, versions, code and inputs are the same, too"),
        (
            {"device": "B"},
            [],
            "is the same, to the byte; what has changed since: the machine, A then and B now",
        ),
        (
            {"device": "B", "versions": {"torch": "2.9"}},
            ["x"],
            "is not the same: x; what has changed since: the machine, A then and B now and the "
            "version of torch, 2.8 then and 2.9 now, so that the bytes may differ by rounding",
        ),
        (
            {"code": "b"},
            ["x"],
            "is not the same: x; what has changed since: the code, a then and b now",
        ),
    ],
)
def test_what_has_changed_since_is_told(now, found, said):
    assert trained_again.sentence(found, trained_again.others(MADE, MADE | now)) == said


def test_tables_differ_from_their_first_round_on(tmp_path):
    one, other = tmp_path / "clients.csv", tmp_path / "other.csv"
    one.write_text("round,client,a,b\n0,0,1,2\n0,1,1,2\n4,0,1,nan\n8,0,1,2\n")
    other.write_text("round,client,a,b\n0,0,1,2\n0,1,1,2.5\n4,0,1,nan\n8,0,4,2\n")
    assert trained_again.of_table(one, other) == (
        "clients.csv differs from round 0 on, in this round by 0.5 in b, in the last one by 3 in a"
    )
    other.write_text("round,client,a,b\n0,0,1,2\n0,1,1,2\n4,0,1,3\n")
    assert trained_again.of_table(one, other) == (
        "clients.csv differs from round 4 on, in this round by inf in b"
    )


@pytest.mark.parametrize(
    ("number", "said"), [(0, "--again 0 is no number of runs"), (2, "has no finished run")]
)
def test_runs_that_cannot_be_chosen_are_refused(number, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        trained_again.chosen(tmp_path, number)
