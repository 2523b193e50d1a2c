"""Train finished runs again, and say how far they are from what they were.

`verify --again N` trains runs of a folder of results in a temporary folder, and compares the bytes.
A run has the settings, inputs, backend and number of threads that it had, and this machine. Neither
finished runs nor checkpoints are used. Each run gives a sentence: whether its files are the same;
where not, from which round on and by how much, and what else differs: the machine, the versions of
packages, the code, or an input.

`keep STUDY SCALE --again N` draws kept runs, trains them through Snakemake with today's code, and
adds a row for each to NOTED beside the kept tables: when, by which code and on which machine it was
trained again, and whether its evaluations are the kept ones to the last digit, or how far its
accuracy is from them. What is kept stays. Methods that were trained again least often are drawn
first, and a run that `results` has is not drawn, because it may be the one that was kept.
"""

import csv
import datetime
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedgrid.runtime import files, forced, records
from fedgrid.runtime.names import UsageError, in_words, shown
from fedgrid.runtime.places import PACKAGE
from fedgrid.store import keeping, kept
from fedgrid.store.identity import changed_inputs, input_of, is_finished
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED, INPUTS, input_paths

TABLES = ("metrics.csv", "clients.csv", "predictions.csv")
MODEL = "model.safetensors"
NOT_PASSED_ON = (forced.VARIABLE, "FEDGRID_TRACK", "FEDGRID_WARM")  # to the training
NOTED = "again.csv"
COLUMNS = (
    *("path", "date", "drawn_by", "code", "torch", "device", "kept_device"),
    *("same", "from_round", "largest", "last"),
)
KIND = "runs"  # of the kept tables that are compared
METRICS = Path(COLLECTED[KIND]).name


def check_number(number: int) -> None:
    if number < 1:
        raise UsageError(f"--again {number} is no number of runs: give at least 1")


# -- runs of results: are the bytes the same? -----------------------------------------------------


def chosen(results: Path, number: int) -> list[Path]:
    """Return the folders of so many finished runs, by chance; all if there are fewer.

    UsageError if there is none, or if the number is not at least 1.
    """
    check_number(number)
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
            problem = train_apart(summary, inputs(record, summary, results, everything), place)
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


def train_apart(summary: dict, given: dict[str, Path], place: str) -> str:
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
    places = {differing[0]: "in this round"}
    places.setdefault(rounds[-1], "in the last one")
    for number, which in places.items():
        pairs = zip(before.get(number, []), after.get(number, []), strict=False)
        cells = ((apart(row[n], other.get(n)), n) for row, other in pairs for n in row)
        far, name = max(cells, key=lambda cell: cell[0], default=(0.0, ""))
        if far:
            said += f", {which} by {far:.3g} in {name}"
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


# -- kept runs: how far are the evaluations? ------------------------------------------------------


def draw(
    items: dict[str, keeping.Item], folder: Path, results: Path, number: int, seed: int
) -> list[str]:
    """Return the paths of so many kept runs that `results` does not have, drawn by a seed.

    UsageError if there is none, or if the number is not at least 1.
    """
    check_number(number)
    index = kept.read_index(folder)
    runs = {path: item.run for path, item in items.items() if KIND in item.kinds}
    left = [
        path
        for path in sorted(runs)
        if kept.find_kept(index, KIND, runs[path]) and not is_finished(KIND, runs[path], results)
    ]
    if not left:
        raise UsageError(
            f"no kept run in {folder} can be trained again, because {results} has all of them, or "
            "none counts today: work in a new copy of the project"
        )
    random.Random(seed).shuffle(left)
    times = Counter(method_of(row["path"]) for row in read_noted(folder))
    drawn: list[str] = []
    while left and len(drawn) < number:
        drawn.append(min(left, key=lambda path: times[method_of(path)]))
        left.remove(drawn[-1])
        times[method_of(drawn[-1])] += 1
    return drawn


def method_of(path: str) -> str:
    """Return the method in the path of a run, such as runs/<protocol>/<...>/fedavg/seed0."""
    return path.split("/")[-2]


def read_noted(folder: Path) -> kept.Rows:
    """Return the rows of runs that were trained again; none if there is no such table."""
    path = folder / NOTED
    return kept.read_rows(path, COLUMNS) if path.exists() else []


def count_again(noted: kept.Rows, paths: Collection[str]) -> dict[str, Any]:
    """Count which of the kept runs with these paths were trained again; empty if none was.

    The last row of a run counts. Of runs that are not `identical`, `once` diverged in one of both
    trainings only, `farthest` is the largest distance of the others' last accuracies, in points,
    and `elsewhere` ran on another processor than before. `said` has it all in words.
    """
    latest = {row["path"]: row for row in noted if row["path"] in paths}
    if not latest:
        return {}
    others = [row for row in latest.values() if row["same"] != "True"]
    distances = [100 * float(row["last"]) for row in others]
    finite = [distance for distance in distances if not math.isnan(distance)]
    dates = sorted(row["date"] for row in latest.values())
    found = {
        **{"kept": len(paths), "again": len(latest), "identical": len(latest) - len(others)},
        **{"differing": len(finite), "farthest": max(finite, default=0.0)},
        "once": len(others) - len(finite),
        "elsewhere": sum(row["device"] != row["kept_device"] for row in others),
        **{"first_date": dates[0], "last_date": dates[-1]},
    }
    return found | {"said": write_count(found)}


def write_count(found: dict[str, Any]) -> str:
    when = " to ".join(dict.fromkeys((found["first_date"], found["last_date"])))
    forms = {
        "identical": "{identical} with the same numbers",
        "differing": "{differing} with a last accuracy that differs by up to {farthest:.2f} points",
        "once": "{once} that diverged in only one of the two trainings",
    }
    parts = in_words([form.format(**found) for name, form in forms.items() if found[name]])
    moved = f" ({found['elsewhere']} on another processor than before)" * bool(found["elsewhere"])
    were = "was" if found["again"] == 1 else "were"
    said = f"Of {found['kept']} kept runs {found['again']} {were} trained again ({when})"
    return f"{said}: {parts}{moved}."


def train(paths: list[str], results: Path, options: list[str]) -> None:
    """Train runs through Snakemake in this folder; some of them may fail."""
    targets = [str(results / path / METRICS) for path in paths]
    command = [sys.executable, "-m", "snakemake", "--keep-going", *options]
    subprocess.run([*command, "--", *targets], check=False)


def note(paths: list[str], folder: Path, results: Path, seed: int) -> list[dict[str, str]]:
    """Compare finished runs with what is kept, and add a row for each; return these rows."""
    index = kept.read_index(folder)
    rows_by_id = kept.read_items(folder, KIND, index)
    made = [
        describe(index[path], rows_by_id[index[path]["id"]], results / path, seed)
        for path in paths
        if (results / path / "summary.json").exists()
    ]
    with files.alone(folder), files.replacing(folder / NOTED) as temporary:
        rows = sorted([*read_noted(folder), *made], key=lambda row: (row["path"], row["date"]))
        keeping.write_rows(temporary, COLUMNS, rows)
    return made


def describe(entry: kept.Entry, before: kept.Rows, run: Path, seed: int) -> dict[str, str]:
    after = kept.select_own_columns(keeping.read_item_rows(KIND, run / METRICS))
    now = keeping.read_makers(run / "summary.json")
    return {
        "path": entry["path"],
        "date": datetime.date.today().isoformat(),
        "drawn_by": str(seed),
        **{name: now[name] for name in ("code", "torch", "device")},
        "kept_device": entry["device"],
        **compare(before, after),
    }


def compare(before: kept.Rows, after: kept.Rows) -> dict[str, str]:
    """Say whether the evaluations are the same, or from which round on and how far they are not.

    Columns that only one of the two runs has do not count. Distances are of the test accuracy: the
    largest one, and that of the last round. They are `nan` if only one of the runs has an accuracy.
    """
    names = before[0].keys() & after[0].keys()
    then, now = (
        {row["round"]: {name: row.get(name, "") for name in names} for row in rows}
        for rows in (before, after)
    )
    rounds = sorted(then.keys() | now.keys(), key=int)
    differing = [number for number in rounds if then.get(number) != now.get(number)]
    far = [find_distance(then.get(number), now.get(number)) for number in rounds]
    return {
        "same": str(not differing),
        "from_round": next(iter(differing), ""),
        "largest": keeping.write_value(math.nan if any(map(math.isnan, far)) else max(far)),
        "last": keeping.write_value(far[-1]),
    }


def find_distance(one: dict[str, str] | None, other: dict[str, str] | None) -> float:
    """Return how far the accuracies of two evaluations are apart; 0 if neither has one."""
    first, second = (accuracy_of(row or {}) for row in (one, other))
    return 0.0 if math.isnan(first) and math.isnan(second) else abs(second - first)


def accuracy_of(row: dict[str, str]) -> float:
    """Return the accuracy of the server's model, or else of clients' own models."""
    texts = (row.get(name) or "nan" for name in ("accuracy", "own_mean"))
    return next((float(text) for text in texts if text != "nan"), math.nan)
