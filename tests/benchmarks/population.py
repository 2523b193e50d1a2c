"""Measure what grows with the number of clients, from a hundred to a million of them.

    python -m tests.benchmarks.population
    python -m tests.benchmarks.population --populations 100 1000 --cohorts 10 --method scaffold

Run it from the repository's root with `PYTHONPATH=workflow`. Each client has four samples of four
pixels, two of them for its own test, and the model is linear. Each pair of population and cohort
has a process of its own, which measures in CPU seconds:

    partition   draw it by the recipe `classwise`, keep the tests of clients out, and write the file
    read        read the data and the partition, and check that they fit
    round       the median of the rounds after the first one
    evaluate    all clients on their own tests
    save        a checkpoint after that evaluation; each client has a memory if the method keeps one
    save next   the checkpoint after one more round
    load        read that checkpoint

and the process's peak memory. Below the table is, for each column, the slope of log(measured) over
log(population) between each population and the next one: 1 is linear growth, 2 is quadratic. Small
populations have slopes below 1, because their fixed costs are most of what is measured.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from tests.benchmarks import measure
from torch import nn

from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.federation import members
from fedgrid.federation.federation import Federation, load_federation
from fedgrid.federation.holdout import hold_out
from fedgrid.federation.stored import open_data
from fedgrid.models import Classifier
from fedgrid.partitions import draw_partition
from fedgrid.study.protocol import PROTOCOL
from fedgrid.training import checkpoint
from fedgrid.training.build import build_part
from fedgrid.training.history import History

POPULATIONS = (100, 1_000, 10_000, 100_000, 1_000_000)
COHORTS = (10, 100)
SAMPLES, CLASSES, SHAPE, TESTS = 4, 10, (1, 2, 2), 1000
ROUNDS = 9
NAMES = {"dataset": "population", "partition": "dir0.5", "seed": 0}
FIELDS = {"client_test": 0.5, "batch": 2, "smallest_batch": 1, "local": 2, "rounds": ROUNDS}
COLUMNS = ("partition", "read", "round", "evaluate", "save", "save next", "load")
COLUMNS += ("memory_mb",)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    asked = parser().parse_args(arguments)
    if asked.alone:
        print(json.dumps(measured(asked.populations[0], asked.cohorts[0], asked)))
        return
    for cohort in asked.cohorts:
        sizes = sorted(size for size in asked.populations if size >= cohort)
        print(f"\ncohorts of {cohort}, {asked.method}, {asked.batches} batches; CPU seconds")
        print("clients".rjust(12) + "".join(name.rjust(12) for name in COLUMNS), flush=True)
        rows = {}
        for size in sizes:
            rows[size] = row = in_process(size, cohort, asked)
            print(f"{size:12,}" + "".join(f"{row[name]:12.4g}" for name in COLUMNS), flush=True)
        print("\n".join(slopes(rows)), flush=True)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.population",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--populations", nargs="+", type=int, default=POPULATIONS, metavar="CLIENTS")
    made.add_argument("--cohorts", nargs="+", type=int, default=COHORTS, metavar="CLIENTS")
    made.add_argument("--method", default="fedprox", help="a file of methods/, such as scaffold")
    made.add_argument("--batches", choices=("fresh", "continued"), default="fresh")
    made.add_argument("--alone", action="store_true", help="measure one pair, and print JSON")
    return made


def in_process(population: int, cohort: int, asked) -> dict[str, float]:
    """What is measured of one pair, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.population", "--alone"]
    command += ["--populations", str(population), "--cohorts", str(cohort)]
    command += ["--method", asked.method, "--batches", asked.batches]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        command, cwd=measure.ROOT, env=os.environ | threads, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def measured(population: int, cohort: int, asked) -> dict[str, float]:
    """CPU seconds by column, and the peak memory in megabytes."""
    protocol = PROTOCOL | FIELDS | {"clients": population, "participation": cohort / population}
    protocol["batches"] = asked.batches
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), {}
        write_data(folder, population)
        found["partition"], _ = timed(write_partition, folder, protocol)
        found["read"], data = timed(read, folder, protocol)
        engine = Engine(build, build_part(asked.method, {}), protocol, data)
        state, history = checkpoint.new(engine.start(0), folder / "checkpoint")
        rounds = []
        for _ in range(ROUNDS):
            seconds, state = timed(engine.round, state)
            rounds.append(seconds)
        found["round"] = statistics.median(rounds[1:])
        remember_all(engine, state)
        found["evaluate"], row = timed(evaluate, engine, state)
        found["save"], _ = timed(save, folder / "checkpoint", state, history, [row])
        state = engine.round(state)
        found["save next"], _ = timed(save, folder / "checkpoint", state, history, [])
        found["load"], _ = timed(checkpoint.load, folder / "checkpoint", "key", state.memory.device)
    return found | {"memory_mb": measure.memory("VmHWM") / 2**20}


def timed(function: Callable, *arguments) -> tuple[float, object]:
    """CPU seconds of a call, and what it returns."""
    with measure.Clock() as clock:
        found = function(*arguments)
    return clock.cpu, found


def write_data(folder: Path, population: int) -> None:
    """Random images and labels as a decoded dataset."""
    rng, sizes = np.random.default_rng(0), {"train": SAMPLES * population, "test": TESTS}
    for part, size in sizes.items():
        images = rng.integers(0, 256, (size, *SHAPE), np.uint8)
        np.save(folder / f"{part}_images.npy", images)
        np.save(folder / f"{part}_labels.npy", rng.permutation(np.arange(size) % CLASSES))
    about = {"dataset": NAMES["dataset"], "classes": CLASSES, "shape": SHAPE, "sizes": sizes}
    about["statistics"] = {PROTOCOL["normalization"]: [[0.5], [0.25]]}
    (folder / "meta.json").write_text(json.dumps(about))


def write_partition(folder: Path, protocol: dict) -> None:
    """The partition of the data, as `python -m fedgrid partition` makes it."""
    data, names = open_data(folder), NAMES.values()
    drawn = NAMES["dataset"], NAMES["seed"]
    made = draw_partition(NAMES["partition"], data, protocol["clients"], protocol["recipe"], *drawn)
    made = hold_out(made, data.train_labels, len(data.test_labels), protocol, *names)
    members.write_partition(made, folder / "partition.npz")


def read(folder: Path, protocol: dict) -> Federation:
    """The data of a run."""
    paths = {"data": folder, "partition": folder / "partition.npz"}
    return load_federation(NAMES | {"protocol": protocol}, paths, torch.device("cpu"))


def build(seed: int) -> nn.Module:
    """A linear model of 50 weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Classifier(nn.Flatten(), math.prod(SHAPE), CLASSES)


def evaluate(engine: Engine, state: RunState) -> dict:
    """The row of the run's history with the evaluation of all clients."""
    found = engine.evaluation.evaluate_all_clients(state).results(state.server)
    return {"round": state.round} | found


def remember_all(engine: Engine, state: RunState) -> None:
    """Give each client the memory that it has after a round, if the method keeps one."""
    for client in range(len(engine.federation.members)):
        if memory := engine.population.memory(state, client):
            state.memory[client] = {
                name: {entry: tensor.clone() for entry, tensor in kept.items()}
                for name, kept in memory.items()
            }


def save(path: Path, state: RunState, history: History, rows: list[dict]) -> None:
    """Write more evaluations and a checkpoint, as train.py does."""
    for row in rows:
        history.append(row)
    checkpoint.save(path, "key", state, history)


def slopes(rows: dict[int, dict[str, float]]) -> list[str]:
    """A line for each population but the first: the slopes of all columns up to it."""
    return [
        f"slope to 1e{math.log10(large):.0f}".rjust(12)
        + "".join(slope(rows, small, large, name) for name in COLUMNS)
        for small, large in pairwise(rows)
    ]


def slope(rows: dict[int, dict[str, float]], small: int, large: int, name: str) -> str:
    """The cell of the slope of a column between two populations."""
    rise = math.log(rows[large][name] / rows[small][name])
    return f"{rise / math.log(large / small):12.2f}"


if __name__ == "__main__":
    main()
