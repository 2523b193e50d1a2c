"""Every result held to its record: altered, missing, stale, unknown or good."""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fedgrid.runtime import files
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, shown
from fedgrid.runtime.resolved import Names
from fedgrid.runtime.watch.trackers.csv import RUNNING
from fedgrid.store.identity import changed_parts
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.protocol import ANY, ANY_METHOD

WRONG = ("altered", "missing", "stale")
STATES = ("good", *WRONG, "unknown", "unrecorded")
# Folders with results. Others have logs, measurements, checkpoints, temporary models and copies.
FOLDERS = (
    *("data", "weights", "partition", "saliency"),
    *("latents", "runs", "interpolation", "studies"),
)


def verified(results: Path, everything: Grid) -> Iterator[tuple[Path, str, str]]:
    """Yield every result, its state and the reason."""
    seen = set()
    for path in sorted(results.rglob(".*.record")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            outputs = {path.parent / name: digest for name, digest in record["outputs"].items()}
            found = judged(record, everything, results)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            yield path, "altered", f"the record cannot be read ({problem})"
            continue
        for file, digest in outputs.items():
            seen.add(os.path.normpath(file))
            yield file, *state(file, digest, found)
    for file in sorted(results.rglob("*")):
        if is_result(file, results) and os.path.normpath(file) not in seen:
            yield file, "unrecorded", "it has no record"


def state(file: Path, digest: str, found: tuple[str, str]) -> tuple[str, str]:
    """Return the state of a file and the reason; `found` is the state if the file is unchanged."""
    if not file.exists():
        return "missing", "only its record exists"
    if checksum(file) != digest:
        return "altered", "its content differs from the recorded content"
    return found


def judged(record: dict, everything: Grid, results: Path) -> tuple[str, str]:
    """Whether a recorded result is good, stale or unknown, and why."""
    try:
        if reason := stale(record, everything, results):
            return "stale", reason
        reason = unknown(record, everything)
    except (UsageError, OSError) as problem:  # of what is needed to compare, not of the record
        reason = str(problem)
    return ("unknown", reason) if reason else ("good", "")


def stale(record: dict, everything: Grid, results: Path) -> str:
    """Why a recorded result would differ today; empty if it would not."""
    if record["run"] and (reason := difference(record, everything)):
        return reason
    changed = next(changed_parts(record, results, checksum), "")
    return changed and f"{changed} has changed since this was made"


def unknown(record: dict, everything: Grid) -> str:
    """Why it is unknown whether a recorded result would differ today; empty if it is known."""
    for module in record["code"]["modules"]:
        if not source.exists(module):
            return f"its code does not exist: {module.replace('.', '/')}.py"
    kind, name = nameless(record, everything)
    told = "name the file that defines it with --config"
    return kind and f"{kind} `{shown(name)}` is in no study and no configuration: {told}"


def nameless(record: dict, everything: Grid) -> tuple[str, str]:
    """Return the kind and name of a recorded protocol or method that no longer exists, or ""s."""
    then: Any = names(record) if record["run"] else {}
    for kind in ("protocol", "method"):
        name = then.get(kind, ANY)
        if name != ANY and not everything.knows(kind, name):
            return kind, name
    return "", ""


def names(record: dict) -> Names:
    """Return the recorded run's names of those axes that its stage depends on."""
    return run_of_stage(stage(record), record["run"])["name"]


def stage(record: dict) -> str:
    """Return the stage of a record's command."""
    return record["command"][0].rpartition(".")[2]


def difference(record: dict, everything: Grid) -> str:
    """Return how a recorded run's settings differ from the present ones, or ""."""
    then = run_of_stage(stage(record), record["run"])
    called = then["name"].copy()
    if called["method"] == ANY:
        called["method"] = ANY_METHOD
    if called["protocol"] == ANY or any(nameless(record, everything)):
        return ""  # its path names all that it depends on, or a name is unknown
    try:
        now = run_of_stage(stage(record), everything.resolve(called))
    except UsageError as problem:
        return str(problem)
    for part in ("protocol", "method"):
        for name in sorted({*then[part], *now[part]}):
            old, new = (side[part].get(name, "nothing") for side in (then, now))
            if old != new:
                return f"{part}: {name} was {old} and is {new} now"
    return ""


def is_result(file: Path, results: Path) -> bool:
    """Whether a file was written by a command."""
    inside = file.relative_to(results).parts
    hidden = any(part.startswith(".") for part in inside) or file.name == RUNNING
    return file.is_file() and inside[0] in FOLDERS and not hidden


@cache
def checksum(file: Path) -> str:
    """Return the sha256 of a file's content, read once in this process."""
    return files.checksum(file)
