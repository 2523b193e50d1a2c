"""Results held to their records: `fedgrid.records`, `fedgrid.verify`."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ENVIRONMENT, copied
from fedgrid import energy, records, source, spec

NAME = "tiny/digits/dir0.1/{}/seed0"
RUN, PARTITION = "results/runs/tiny/digits/dir0.1/moon/seed0", "results/partition/digits/dir0.1"


def command(project: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        arguments,
        **{"cwd": project, "env": ENVIRONMENT | {"PYTHONPATH": "workflow"}},
        **{"text": True, "capture_output": True, "check": False},
    )


def verify(project: Path) -> tuple[int, str]:
    """The status, and what is printed."""
    done = command(project, sys.executable, "-m", "fedgrid.verify", "--config", "tiny.yaml")
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A project with its table made."""
    project = copied(tmp_path_factory.mktemp("finished"))
    snakemake = ("snakemake", "--cores", "2", "--configfile", "tiny.yaml")
    done = command(project, *snakemake, "--", "results/table1.csv")
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(finished, tmp_path) -> Path:
    """A copy to be changed."""
    return shutil.copytree(finished, tmp_path / "project", symlinks=True)


def test_what_was_just_made_is_good(finished):
    status, said = verify(finished)
    assert status == 0
    assert re.fullmatch(r"\d+ good, 0 altered, 0 missing, 0 stale, 0 unrecorded\n", said)
    assert int(said.split()[0]) >= 5 + 1 + 3 + 4 * 3 + 1 + 2  # data to table


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("file", ["metrics.csv", "model.safetensors", "summary.json"])
def test_an_altered_file_is_seen(project, file):
    flip(project / RUN / file)
    status, said = verify(project)
    assert status == 1
    assert f"altered    {RUN}/{file}: its content is not what was recorded" in said
    assert "1 altered, 0 missing" in said


def test_what_was_made_from_an_altered_file_is_stale(project):
    flip(next((project / PARTITION).rglob("seed0.npz")))
    _, said = verify(project)
    assert said.count("\nstale") >= 4 * 3  # the runs of all methods
    assert "classwise-5/seed0.npz was another when this was made" in said


def test_a_missing_file_is_seen(project):
    (project / RUN / "model.safetensors").unlink()
    status, said = verify(project)
    assert status == 1
    assert f"missing    {RUN}/model.safetensors: its record is there" in said


def test_a_changed_study_makes_stale_what_depends_on_it(project):
    rewrite(project / "tiny.yaml", "local: 2", "local: 3")
    status, said = verify(project)
    assert status == 1
    assert f"stale      {RUN}/metrics.csv: protocol: local was 2 and is 3 now" in said
    assert "stale      results/saliency" not in said


def test_changed_code_makes_stale_what_it_made(project):
    rewrite(
        project / "workflow/fedgrid/methods/moon.py", "def method(", "EXTRA = 1\n\n\ndef method("
    )
    _, said = verify(project)
    stale = set(re.findall(r"^stale +(\S+):", said, re.M))
    assert stale == {
        f"{RUN}/{name}"
        for name in ("metrics.csv", "model.safetensors", "predictions.csv", "summary.json")
    }


def test_a_file_without_a_record_is_named(project):
    (project / RUN / "notes.txt").write_text("mine")
    status, said = verify(project)
    assert status == 0
    assert f"unrecorded {RUN}/notes.txt" in said


@pytest.mark.parametrize("content", ["", "{", "[]", '{"outputs": 3}'])
def test_a_record_that_cannot_be_read_is_altered(project, content):
    (project / RUN / ".metrics.csv.record").write_text(content)
    status, said = verify(project)
    assert status == 1
    assert f"altered    {RUN}/.metrics.csv.record: the record cannot be read" in said


def test_no_folder_is_told(tmp_path):
    done = command(tmp_path, sys.executable, "-m", "fedgrid.verify", "nowhere")
    assert done.returncode == 1


def test_a_run_says_where_it_comes_from(finished):
    summary = json.loads((finished / RUN / "summary.json").read_text())
    assert summary["run"]["protocol"]["local"] == 2
    assert re.fullmatch(r"[0-9a-f]{12}", summary["code"])
    assert summary["versions"].keys() >= {"python", "torch", "numpy", "safetensors"}
    assert summary["run"]["seed"] == 0
    assert {"device", "threads", "seconds", "peak_memory_mb", "joules"} <= summary.keys()
    record = json.loads((finished / RUN / ".metrics.csv.record").read_text())
    assert record["command"][0] == "fedgrid.train"
    assert set(record["inputs"]) == {
        "results/data/digits",
        "results/partition/digits/dir0.1/classwise-5/seed0.npz",
    }
    assert "methods.moon" in record["code"]["modules"]
    assert "methods.fedau" not in record["code"]["modules"]


def test_every_stage_stays_under_the_memory_that_its_rule_asks_for(finished):
    stages = set()
    for path in (finished / "results").rglob(".*.record"):
        record = json.loads(path.read_text())
        if (run := record["run"]) and "model" in run["protocol"]:
            assert record["peak_memory_mb"] < spec.memory_mb(run), path
            stages.add(record["command"][0])
    assert stages == {"fedgrid.train", "fedgrid.saliency"}


def test_memory_is_for_the_model_the_cohort_and_what_clients_keep():
    protocol = {"model": "resnet18", "clients": 100, "participation": 0.1}
    asked = [
        spec.memory_mb({"protocol": protocol, "method": {name: {}}}) for name in ("fedavg", "moon")
    ]
    assert asked == [4000 + 45 * (12 + 2 * 10), 4000 + 45 * (12 + 2 * 10 + 2 * 100)]


def test_a_fingerprint_is_of_these_modules_only():
    assert source.of(["seeds"]) != source.of(["seeds", "schedule"])


def test_counters_that_nobody_may_read_are_left_out(monkeypatch, tmp_path):
    import torch

    monkeypatch.setattr(energy, "RAPL", tmp_path)
    meter = energy.Meter(torch.device("cpu"))
    assert meter.joules() == {}
    for name, joules in (("intel-rapl:0", 5), ("intel-rapl:1", 7), ("intel-rapl:0:0", 100)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(str(joules * 1_000_000))
    meter = energy.Meter(torch.device("cpu"))
    (tmp_path / "intel-rapl:0/energy_uj").write_text("8000000")
    assert meter.joules() == {"processor": 3.0}


def test_a_record_is_found_from_where_its_files_are(tmp_path):
    assert records.path(Path("a/b.csv")) == Path("a/.b.csv.record")
    assert records.relative(tmp_path / "x/y.npz", tmp_path / "x") == "y.npz"
    assert records.relative(tmp_path / "z.npz", tmp_path / "x") == os.path.join("..", "z.npz")
