"""The speed benchmark's command line and its judgement; no times are asserted."""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from fedgrid.study import reading
from fedgrid.study.grid import Grid

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
from tests.benchmarks import __main__ as benchmarks  # noqa: E402
from tests.benchmarks import gpu, many_runs, population  # noqa: E402

OPTIONS = ["--workloads", "E", "--peers", "plain", "tensors", "--repeats", "1", "--rounds", "2"]


def run_module(name: str, *options: str) -> str:
    """What a module of the benchmarks prints, which must succeed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    command = [sys.executable, "-m", f"tests.{name}", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_engine_and_the_loops_end_at_the_same_weights(tmp_path):
    options = [*OPTIONS[:4], "flower", *OPTIONS[4:], "--peer-python", str(tmp_path / "none")]
    said = run_module("benchmarks", *options, "--out", str(tmp_path))
    rows = pd.read_csv(tmp_path / "benchmarks.csv")
    assert list(rows.contestant) == ["fedgrid", "plain", "tensors"]
    assert rows.counts.all()
    assert (rows.difference < 1e-5).all()
    assert (rows.wall_median > 0).all()
    assert (tmp_path / "benchmarks.svg").stat().st_size
    assert "torch" in said.splitlines()[0]
    assert "E: flower: not installed" in said


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("triton"), reason="there is no Triton")
def test_the_code_for_a_gpu_is_written_without_one():
    """A step is few launches there, and no kernel adds in a changing order (status 1)."""
    said = run_module("benchmarks.gpu_code", "E", "--methods", "fedlmd")
    found = dict(re.findall(r"^(\w+): (\d+) launches", said, re.MULTILINE))
    assert found.keys() == {"E", "fedlmd"}
    assert int(found["E"]) < 15  # of 100 operations


@pytest.mark.slow
@pytest.mark.parametrize(  # the round that is compared, or those measured
    "cheated", [1, pytest.param(2, marks=pytest.mark.exhaustive)]
)
def test_who_computes_something_else_does_not_count(cheated, monkeypatch, tmp_path, capsys):
    play = benchmarks.measure.Contestant.play

    def cheat(contestant, rounds):
        answer = play(contestant, rounds)
        if contestant.row == "tensors" and rounds == cheated:
            answer["state"] = contestant.initial()
        return answer

    monkeypatch.setattr(benchmarks.measure.Contestant, "play", cheat)
    assert benchmarks.main([*OPTIONS, "--out", str(tmp_path)]) == 1
    rows = pd.read_csv(tmp_path / "benchmarks.csv").set_index("contestant")
    assert list(rows.index[~rows.counts]) == ["tensors"]
    assert "tensors does not count" in capsys.readouterr().out


@pytest.mark.parametrize(("last", "counts"), [(0.9, True), (0.8, False)])
def test_a_grid_that_ends_elsewhere_in_a_repeat_does_not_count(last, counts, monkeypatch):
    ends = iter([0.9, 0.9, 0.9, last])

    def played(cores):
        state = {"run": torch.tensor([next(ends)])}
        return {"wall": 1.0, "cpu": 1.0, "accuracies": [], "state": state}

    monkeypatch.setattr(benchmarks.grids, "played", played)
    rows, _ = benchmarks.grids.measured(SimpleNamespace(repeats=2, device="cpu"))
    assert [row["counts"] for row in rows] == [True, counts]


def test_all_contestants_share_one_gpu(monkeypatch, tmp_path):
    """Each would wait for the others' end, if each took a GPU for itself."""
    claimed = []
    monkeypatch.setattr(benchmarks.gpus, "claim", claimed.append)
    monkeypatch.setattr(benchmarks.machine, "describe", lambda device: device)
    monkeypatch.setattr(benchmarks, "measured", lambda name, asked: ([], []))
    benchmarks.main(["--device", "cuda", "--workloads", "A", "E", "--out", str(tmp_path)])
    assert claimed == [0]


def test_the_distance_is_relative_to_the_way_from_the_start():
    initial = {"a": torch.zeros(2), "b.running_mean": torch.zeros(1)}
    base = {"a": torch.tensor([3.0, 4.0]), "b.running_mean": torch.ones(1)}
    far = benchmarks.compare.distance(base | {"a": torch.tensor([3.0, 5.0])}, base, initial)
    assert far == pytest.approx(1 / 5)
    far = benchmarks.compare.distance(base | {"b.running_mean": torch.zeros(1)}, base, initial)
    assert far == 1


@pytest.mark.parametrize(
    ("end", "done"),
    [([5.0, 0.0], True), ([-4.0, 3.0], True), ([0.0, 0.0], False), ([30.0, 40.0], False)],
)
def test_measured_rounds_are_done_if_they_lead_far_enough_wherever_rounding_leads(end, done):
    initial, base, state = ({"a": torch.tensor(a)} for a in ([0.0, 0.0], [3.0, 4.0], end))
    assert benchmarks.compare.is_done(state, base, initial) is done
    assert benchmarks.compare.is_done(state, base, None) is done  # as for an encoder's result


@pytest.mark.parametrize("method", ["fedprox", "scaffold"])
def test_everything_that_grows_with_the_clients_is_measured(method):
    asked = population.parser().parse_args(["--method", method, "--batches", "continued"])
    found = population.measured(30, 10, asked)
    assert [*found] == [*population.COLUMNS]
    assert all(value > 0 for value in found.values())


def test_the_slope_of_a_square_is_two():
    rows = {n: dict.fromkeys(population.COLUMNS, n**2) for n in (100, 1000, 10_000)}
    assert [line.split() for line in population.slopes(rows)] == [
        ["slope", "to", power, *["2.00"] * len(population.COLUMNS)] for power in ("1e3", "1e4")
    ]


def test_the_study_of_many_runs_has_so_many(tmp_path):
    (tmp_path / "workflow/studies").mkdir(parents=True)
    many_runs.write_study(tmp_path, 300)
    about = reading.read_study(tmp_path / "workflow/studies/many.yaml")
    grid = Grid(reading.read_studies() | {"many": about})
    assert len(grid.runs("many", "quick", "table1")) == 300


def test_the_files_of_a_run_that_was_not_trained_have_its_name(tmp_path):
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps({"run": {"name": {}, "method": {"fedprox": {}}}}))
    run = json.loads(many_runs.renamed(summary, "fedprox-mu0.5"))["run"]
    assert run == {"name": {"method": "fedprox-mu0.5"}, "method": {"fedprox": {"mu": 0.5}}}


# --- the script for a machine with a GPU ------------------------------------------------------

SCRIPT = ROOT / "tests/benchmarks/gpu.sh"
ON_GPU = ROOT / "tests/engine/test_gpu.py"


def scripted(*arguments, **variables) -> str:
    command = ["bash", str(SCRIPT), *map(str, arguments)]
    return subprocess.check_output(command, env=os.environ | variables, text=True)


def parts() -> dict[str, tuple[int, list[str]]]:
    """The seconds and the command of every part of the script, by its name."""
    lines = [shlex.split(line) for line in scripted("--list").splitlines()]
    return {name: (int(seconds), command) for seconds, name, *command in lines}


def test_every_part_for_a_gpu_is_a_command_that_there_is():
    parsers = {"tests.benchmarks": benchmarks.parser(), "tests.benchmarks.gpu": gpu.parser()}
    for _, (_, module, name, *arguments) in parts().values():
        assert module == "-m"
        if name in parsers:
            parsers[name].parse_args(arguments)
        else:
            assert name == "pytest"
            assert ROOT / next(word for word in arguments if word.endswith(".py")) == ON_GPU
            words = set(re.findall(r"\w+", arguments[arguments.index("-k") + 1])) - {"and", "or"}
            assert all(word in ON_GPU.read_text() + "stacked" for word in words)


def test_all_ways_to_measure_a_gpu_are_parts():
    called = {command[3:][2] for _, command in parts().values() if command[2].endswith("gpu")}
    assert called == gpu.WAYS.keys() - {"served"}  # which is called by `shared`


def test_what_is_compiled_beforehand_is_what_the_benchmark_compiles():
    rows = []
    for name in "ACDE":
        asked = benchmarks.parser().parse_args(parts()[f"bench-{name}"][1][3:])
        rows += [(name, precision) for precision in ["", *asked.compiled_in]]
    assert rows == [*gpu.COMPILED]


@pytest.fixture
def fake(tmp_path):
    """In place of Python: prints its arguments, and fails."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\n[ "$1" = -c ] || { echo "measured $2 $5"; exit 3; }\n')
    path.chmod(0o755)
    return path


def test_a_part_that_fails_leaves_what_it_printed_in_the_summary_and_the_archive(fake, tmp_path):
    out = tmp_path / "out"
    said = scripted(out, "resumed", "waits", PYTHON=str(fake))
    assert re.sub(r"\d+ s", "N s", said) == "resumed: status 3, N s\nwaits: status 3, N s\n"
    assert "measured tests.benchmarks.gpu resumed" in (out / "summary.txt").read_text()
    with tarfile.open(out / "all.tar.gz") as archive:
        assert {"summary.txt", "parts/resumed.txt", "parts/waits.err"} <= {*archive.getnames()}


def test_no_part_begins_after_the_end(fake, tmp_path):
    assert "no time left" in scripted(tmp_path / "out", "resumed", PYTHON=str(fake), END="0")


def test_a_part_that_there_is_not_is_refused(tmp_path):
    command = ["bash", str(SCRIPT), str(tmp_path / "out"), "resumed", "wait"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no part wait: see " in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_machine_that_has_only_python3_uses_it():
    assert " python3 -m " in scripted("--list", PYTHON="no-such-python")


@pytest.mark.parametrize(
    "way",
    ["cell", "resumed", "evaluation", "profile", pytest.param("shared", marks=pytest.mark.slow)],
)
def test_what_is_measured_on_a_gpu_is_measured_on_a_cpu_to_try_it(way, capfd):
    options = "--small --device cpu --compile off --rounds 2 --runs 1 2"
    gpu.main([way, *options.split()])
    said = capfd.readouterr().out
    if way == "profile":
        assert "Self CPU time total" in said
    else:
        assert {json.loads(line)["way"] for line in said.splitlines()} == {way}


def test_a_cpu_leaves_checks_for_later_where_waits_are_counted(capsys):
    with pytest.raises(SystemExit) as end:
        gpu.main(["waits", "--small", "--device", "cpu"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["waits"] == 0


def test_a_machine_without_nvidia_s_mps_says_so(monkeypatch):
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="no nvidia-cuda-mps-control"):
        gpu.main(["shared", "--mps", "--small", "--device", "cpu"])


@pytest.mark.slow
def test_rows_that_are_not_compared_in_float64_are_judged_by_their_way(monkeypatch, tmp_path):
    monkeypatch.setitem(benchmarks.workloads.WORKLOADS["E"], "judged", "fp64")
    monkeypatch.setattr(benchmarks, "repeated", None)
    options = [*OPTIONS, "--out", str(tmp_path), "--without-fp64"]
    assert benchmarks.main([o for o in options if o != "tensors"]) == 0
    assert list(pd.read_csv(tmp_path / "benchmarks.csv").judged) == ["way", "way"]
