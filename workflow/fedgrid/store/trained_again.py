"""Train kept runs again with today's code, and note how far they are from what is kept.

`keep STUDY SCALE --again N` draws runs, trains them through Snakemake, and adds a row for each to
NOTED beside the kept tables: when, by which code and on which machine it was trained again, and
whether its evaluations are the kept ones to the last digit, or how far its accuracy is from them.
What is kept stays. Methods that were trained again least often are drawn first, and a run that
`results` has is not drawn, because it may be the one that was kept.
"""

import datetime
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError, in_words
from fedgrid.runtime.resolved import Run
from fedgrid.store import keeping, kept
from fedgrid.store.identity import is_finished
from fedgrid.study.paths import COLLECTED

NOTED = "again.csv"
COLUMNS = (
    *("path", "date", "drawn_by", "code", "torch", "device", "kept_device"),
    *("same", "from_round", "largest", "last"),
)
KIND = "runs"  # of the kept tables that are compared
METRICS = Path(COLLECTED[KIND]).name


def draw(
    items: dict[str, keeping.Item], folder: Path, results: Path, number: int, seed: int
) -> list[str]:
    """Return the paths of so many kept runs that `results` does not have, drawn by a seed.

    UsageError if there is none, or if the number is not at least 1.
    """
    if number < 1:
        raise UsageError(f"--again {number} is no number of runs: give at least 1")
    index = kept.read_index(folder)
    runs = {path: item.run for path, item in items.items() if KIND in item.kinds}
    left = [path for path in sorted(runs) if is_drawable(index, runs[path], results)]
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


def is_drawable(index: dict[str, kept.Entry], run: Run, results: Path) -> bool:
    return bool(kept.find_kept(index, KIND, run)) and not is_finished(KIND, run, results)


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
    """Write a sentence about kept runs that were trained again."""
    when = " to ".join(dict.fromkeys((found["first_date"], found["last_date"])))
    forms = {
        "identical": "{identical} with the same numbers",
        "differing": "{differing} with a last accuracy that differs by up to {farthest:.2f} points",
        "once": "{once} that diverged in one of both trainings only",
    }
    parts = in_words([form.format(**found) for name, form in forms.items() if found[name]])
    moved = f" ({found['elsewhere']} on another processor than before)" * bool(found["elsewhere"])
    said = f"Of {found['kept']} kept runs {found['again']} were trained again ({when})"
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
    """Return the row of a run that was trained again."""
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
    then, now = ({row["round"]: select(row, names) for row in rows} for rows in (before, after))
    rounds = sorted(then.keys() | now.keys(), key=int)
    differing = [number for number in rounds if then.get(number) != now.get(number)]
    far = [find_distance(then.get(number), now.get(number)) for number in rounds]
    return {
        "same": str(not differing),
        "from_round": next(iter(differing), ""),
        "largest": keeping.write_value(math.nan if any(map(math.isnan, far)) else max(far)),
        "last": keeping.write_value(far[-1]),
    }


def select(row: dict[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: row.get(name, "") for name in names}


def find_distance(one: dict[str, str] | None, other: dict[str, str] | None) -> float:
    """Return how far the accuracies of two evaluations are apart; 0 if neither has one."""
    first, second = (accuracy_of(row or {}) for row in (one, other))
    return 0.0 if math.isnan(first) and math.isnan(second) else abs(second - first)


def accuracy_of(row: dict[str, str]) -> float:
    """Return the accuracy of the server's model, or else of clients' own models."""
    texts = (row.get(name) or "nan" for name in ("accuracy", "own_mean"))
    return next((float(text) for text in texts if text != "nan"), math.nan)
