"""Train finished runs again in a temporary folder, and compare the bytes (`verify --again N`).

A run has the settings, inputs, backend and number of threads that it had, and this machine. Neither
finished runs nor checkpoints are used. Each run gives a sentence: whether its files are the same;
where not, from which round on and by how much, and what else differs: the machine, the versions of
packages, the code, or an input.
"""

import csv
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedgrid.runtime import files, forced, records
from fedgrid.runtime.names import UsageError, in_words, shown
from fedgrid.runtime.places import PACKAGE
from fedgrid.store.identity import changed_inputs, input_of
from fedgrid.study.grid import Grid
from fedgrid.study.paths import INPUTS, input_paths

TABLES = ("metrics.csv", "clients.csv", "predictions.csv")
MODEL = "model.safetensors"
NOT_PASSED_ON = (forced.VARIABLE, "FEDGRID_TRACK", "FEDGRID_WARM")  # to the training


def chosen(results: Path, number: int) -> list[Path]:
    """Return the folders of so many finished runs, by chance; all if there are fewer.

    UsageError if there is none, or if the number is not at least 1.
    """
    if number < 1:
        raise UsageError(f"--again {number} is no number of runs: give at least 1")
    there = sorted(path.parent for path in (results / "runs").rglob("summary.json"))
    finished = [folder for folder in there if (folder / TABLES[0]).exists()]
    if not finished:
        raise UsageError(f"{results / 'runs'} has no finished run: train one first")
    return sorted(random.SystemRandom().sample(finished, min(number, len(finished))))


def compared(results: Path, number: int, everything: Grid) -> Iterator[tuple[Path, bool, str]]:
    """Yield the folder of each run that is trained again, whether it is the same, and in words."""
    for folder in chosen(results, number):
        summary, record = read(folder / "summary.json"), read(records.path(folder / TABLES[0]))
        with TemporaryDirectory() as place:
            problem = train(summary, inputs(record, summary, results, everything), place)
            if problem:
                yield folder, False, f"cannot be trained again: {problem}"
                continue
            again = Path(place) / "run"
            found = differences(folder, again)
            also = others(summary, json.loads((again / "summary.json").read_text()))
            also += [f"the input {name}" for name in changed_inputs(record, results)]
            yield folder, not found, sentence(found, also)


def read(path: Path) -> dict:
    """Return what a file has as JSON; nothing if it is missing, as the record of a cached result.

    UsageError if it is damaged.
    """
    if not path.exists():
        return {}
    with files.whole(str(path)):
        return json.loads(path.read_text(encoding="utf-8"))


def inputs(record: dict, summary: dict, results: Path, everything: Grid) -> dict[str, Path]:
    """Return the inputs of a run by name: those of its command, or those that its name leads to."""
    words = record.get("command", ())
    given = [one.partition("=")[::2] for one in words if one.partition("=")[0] in INPUTS]
    if given:
        return {name: input_of(path, results) for name, path in given}
    run = everything.resolve(summary["run"]["name"])
    there = {name: results / path for name, path in input_paths(run).items() if name != "metrics"}
    return {name: path for name, path in there.items() if path.exists()}


def train(summary: dict, given: dict[str, Path], place: str) -> str:
    """Train a run again in a folder; return why it fails, or ""."""
    device = "cuda" if summary["peak_gpu_memory_mb"] else "cpu"
    command = [sys.executable, "-m", "fedgrid", "train", json.dumps(summary["run"]), "--inputs"]
    command += [f"{name}={path}" for name, path in given.items()]
    command += ["--results", place, "--out", f"{place}/run", "--device", device]
    command += ["--backend", summary["backend"], "--threads", str(summary["threads"])]
    command += ["--compile", "on" if summary.get("compiled") else "off"]
    environment = {name: v for name, v in os.environ.items() if name not in NOT_PASSED_ON}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    *_, last = ["it says nothing", *done.stderr.split("\n")[:-1]]
    return shown(last.removeprefix("error: ")) if done.returncode else ""


# -- what differs ---------------------------------------------------------------------------------


def differences(folder: Path, again: Path) -> list[str]:
    """Return what is not the same in two folders of a run, in words; nothing if the bytes are."""
    found = []
    for name in (*TABLES, MODEL):
        one, other = folder / name, again / name
        if not one.exists():
            found.append(f"{name} is missing")
        elif one.read_bytes() != other.read_bytes():
            found.append(of_model(one, other) if name == MODEL else of_table(one, other))
    return found


def of_table(one: Path, other: Path) -> str:
    """Say from which round on two tables differ, and how far in this round and in the last."""
    before, after = by_round(one), by_round(other)
    rounds = sorted({*before, *after})
    differing = [number for number in rounds if before.get(number) != after.get(number)]
    if not differing:
        return f"{one.name} has the same values in another form"
    said = f"{one.name} differs from round {differing[0]} on"
    number = differing[0]
    for which in ("in this round", "in the last one"):
        pairs = zip(before.get(number, []), after.get(number, []), strict=False)
        cells = ((apart(row[n], other.get(n)), n) for row, other in pairs for n in row)
        far, name = max(cells, key=lambda cell: cell[0], default=(0.0, ""))
        if far:
            said += f", {which} by {far:.3g} in {name}"
        if number == rounds[-1]:
            break
        number = rounds[-1]
    return said


def by_round(path: Path) -> dict[int, list[dict[str, str]]]:
    found: dict[int, list[dict[str, str]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(int(row["round"]), []).append(row)
    return found


def apart(one: Any, other: Any) -> float:
    """Return how far two cells are apart: infinite if only one of them is a finite number."""
    if one == other:
        return 0.0
    try:
        far = abs(float(one) - float(other))
    except (TypeError, ValueError):
        return math.inf
    return math.inf if math.isnan(far) else far


def of_model(one: Path, other: Path) -> str:
    from safetensors.numpy import load_file

    before, after = load_file(one), load_file(other)
    if {n: w.shape for n, w in before.items()} != {n: w.shape for n, w in after.items()}:
        return f"{one.name} has other entries"
    far = max(float(abs(w.astype(float) - after[n].astype(float)).max()) for n, w in before.items())
    return f"{one.name} differs by at most {far:.3g}"


# -- why ------------------------------------------------------------------------------------------


def others(then: dict, now: dict) -> list[str]:
    found = []
    if then["device"] != now["device"]:
        found.append(f"the machine, {then['device']} then and {now['device']} now")
    for name in sorted({*then["versions"], *now["versions"]}):
        was, is_now = (side["versions"].get(name, "none") for side in (then, now))
        if was != is_now:
            found.append(f"the version of {name}, {was} then and {is_now} now")
    if then["code"] != now["code"]:
        found.append(f"the code, {then['code']} then and {now['code']} now")
    return found


def sentence(found: list[str], also: list[str]) -> str:
    said = f"is not the same: {'; '.join(found)}" if found else "is the same, to the byte"
    if not also:
        return f"{said}; machine, versions, code and inputs are the same, too"
    by_rounding = all(one.startswith(("the machine", "the version")) for one in also)
    hint = ", so that the bytes may differ by rounding" if found and by_rounding else ""
    return f"{said}; what has changed since: {in_words(also)}{hint}"
