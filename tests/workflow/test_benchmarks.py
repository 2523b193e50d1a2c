"""The speed benchmark's command line and its judgement; no times are asserted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from fedgrid.study import reading
from fedgrid.study.grid import Grid

ROOT = Path(__file__).parents[2]
OPTIONS = ["--workloads", "E", "--peers", "plain", "tensors", "--repeats", "1", "--rounds", "2"]


@pytest.fixture
def benchmarks(monkeypatch):
    """The package, which is run from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))
    from tests.benchmarks import __main__ as benchmarks

    return benchmarks


@pytest.mark.slow
def test_the_engine_and_the_loops_end_at_the_same_weights(tmp_path):
    command = [sys.executable, "-m", "tests.benchmarks", *OPTIONS[:4], "flower", *OPTIONS[4:]]
    command += ["--peer-python", str(tmp_path / "none"), "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pd.read_csv(tmp_path / "benchmarks.csv")
    assert list(rows.contestant) == ["fedgrid", "plain", "tensors"]
    assert rows.counts.all()
    assert (rows.difference < 1e-5).all()
    assert (rows.wall_median > 0).all()
    assert (tmp_path / "benchmarks.svg").stat().st_size
    assert "torch" in done.stdout.splitlines()[0]
    assert "E: flower: not installed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("cheated", [1, 2])  # the round that is compared, or those measured
def test_who_computes_something_else_does_not_count(
    cheated, benchmarks, monkeypatch, tmp_path, capsys
):
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
def test_a_grid_that_ends_elsewhere_in_a_repeat_does_not_count(
    last, counts, benchmarks, monkeypatch
):
    ends = iter([0.9, 0.9, 0.9, last])

    def played(cores):
        state = {"run": torch.tensor([next(ends)])}
        return {"wall": 1.0, "cpu": 1.0, "accuracies": [], "state": state}

    monkeypatch.setattr(benchmarks.grids, "played", played)
    rows, _ = benchmarks.grids.measured(SimpleNamespace(repeats=2, device="cpu"))
    assert [row["counts"] for row in rows] == [True, counts]


def test_all_contestants_share_one_gpu(benchmarks, monkeypatch, tmp_path):
    """Each would wait for the others' end, if each took a GPU for itself."""
    claimed = []
    monkeypatch.setattr(benchmarks.gpus, "claim", claimed.append)
    monkeypatch.setattr(benchmarks.machine, "describe", lambda device: device)
    monkeypatch.setattr(benchmarks, "measured", lambda name, asked: ([], []))
    benchmarks.main(["--device", "cuda", "--workloads", "A", "E", "--out", str(tmp_path)])
    assert claimed == [0]


def test_the_distance_is_relative_to_the_way_from_the_start(benchmarks):
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
def test_measured_rounds_are_done_if_they_lead_far_enough_wherever_rounding_leads(
    end, done, benchmarks
):
    initial, base, state = ({"a": torch.tensor(a)} for a in ([0.0, 0.0], [3.0, 4.0], end))
    assert benchmarks.compare.is_done(state, base, initial) is done
    assert benchmarks.compare.is_done(state, base, None) is done  # as for an encoder's result


@pytest.fixture
def population(benchmarks):
    """The script that measures populations."""
    from tests.benchmarks import population

    return population


@pytest.mark.parametrize("method", ["fedprox", "scaffold"])
def test_everything_that_grows_with_the_clients_is_measured(method, population):
    asked = population.parser().parse_args(["--method", method, "--batches", "continued"])
    found = population.measured(30, 10, asked)
    assert [*found] == [*population.COLUMNS]
    assert all(value > 0 for value in found.values())


def test_the_slope_of_a_square_is_two(population):
    rows = {n: dict.fromkeys(population.COLUMNS, n**2) for n in (100, 1000, 10_000)}
    assert [line.split() for line in population.slopes(rows)] == [
        ["slope", "to", power, *["2.00"] * len(population.COLUMNS)] for power in ("1e3", "1e4")
    ]


@pytest.fixture
def many_runs(benchmarks):
    """The script that measures grids of many runs."""
    from tests.benchmarks import many_runs

    return many_runs


def test_the_study_of_many_runs_has_so_many(many_runs, tmp_path):
    (tmp_path / "workflow/studies").mkdir(parents=True)
    many_runs.write_study(tmp_path, 300)
    about = reading.read_study(tmp_path / "workflow/studies/many.yaml")
    grid = Grid(reading.read_studies() | {"many": about})
    assert len(grid.runs("many", "quick", "table1")) == 300


def test_the_files_of_a_run_that_was_not_trained_have_its_name(many_runs, tmp_path):
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps({"run": {"name": {}, "method": {"fedprox": {}}}}))
    run = json.loads(many_runs.renamed(summary, "fedprox-mu0.5"))["run"]
    assert run == {"name": {"method": "fedprox-mu0.5"}, "method": {"fedprox": {"mu": 0.5}}}
