"""Workload G: a small grid of the quick table 1 through Snakemake, on two cores against on one.

Every repeat begins in a new copy of the project, and counts all that Snakemake does: planning, the
jobs' start, the stages that runs share, and the table. Its runs per hour are those of its times.
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tests.benchmarks import compare, measure

CHOICE = ["method=fedavg,fedprox,moon", "seed=0,1", "partition=dir0.1"]
PARTS = ("workflow", "envs", "Snakefile", "config.yaml")
CORES = (1, 2)
TARGET = "results/table1.csv"
UNSET = ("FEDGRID_", "SNAKEMAKE_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")  # not the copy's


def measured(asked) -> tuple[list[dict], list[str]]:
    """A row per number of cores, and the runs per hour."""
    found = {cores: [] for cores in CORES}
    for _ in range(asked.repeats):
        for cores in CORES:
            found[cores].append(played(cores))
    base = found[CORES[0]]
    names = {"workload": "G", "title": "a grid of the quick table 1", "device": asked.device}
    rows = [
        names
        | {"contestant": named(cores), "base": named(CORES[0]), "rounds": len(base[0]["state"])}
        | compare.summed_up(answers, base)
        | compare.judged(farthest(answers, base[0]), base[0], None, "fp32")
        for cores, answers in found.items()
    ]
    notes = [
        f"G: {row['contestant']}: {row['rounds'] * 3600 / row['wall_median']:.0f} runs per hour"
        for row in rows
    ]
    return rows, notes


def farthest(answers: list[dict], base: dict) -> dict:
    """The repeat whose accuracies are farthest from the base's."""
    return max(answers, key=lambda one: compare.distance(one["state"], base["state"], None))


def named(cores: int) -> str:
    """A row's name."""
    return f"fedgrid --cores {cores}"


def played(cores: int) -> dict:
    """Seconds of the grid, and the last accuracy of every run."""
    with tempfile.TemporaryDirectory() as folder:
        project = copied(Path(folder))
        command = ["snakemake", "--workflow-profile", "workflow/profiles/default"]
        command += ["--cores", str(cores), "--quiet", "all", "--config", *CHOICE, "--", TARGET]
        with measure.Clock() as clock:
            done = subprocess.run(command, cwd=project, env=environment(), stdout=sys.stderr)
        if done.returncode:
            raise SystemExit(f"G: {' '.join(command)} ended with status {done.returncode}")
        state = {
            str(file.parent.relative_to(project)): last(file)
            for file in sorted(project.glob("results/runs/**/metrics.csv"))
        }
    return {"wall": clock.wall, "cpu": clock.cpu, "state": state, "accuracies": []}


def environment() -> dict[str, str]:
    """That of the copy: this Python's commands, and nothing of another fedgrid."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(UNSET)}
    return kept | {"PATH": path}


def copied(folder: Path) -> Path:
    """The project in the folder, without its results."""
    for part in PARTS:
        source = measure.ROOT / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / part, ignore=ignored)
        else:
            shutil.copy(source, folder)
    return folder


def last(file: Path) -> torch.Tensor:
    """The last evaluation's accuracy."""
    with file.open() as lines:
        return torch.tensor([float(list(csv.DictReader(lines))[-1]["accuracy"])])
