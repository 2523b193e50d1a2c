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
from fedgrid.runtime.resolved import Run
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
            if not file.exists():
                yield file, "missing", "only its record exists"
            elif checksum(file) != digest:
                yield file, "altered", "its content differs from the recorded content"
            else:
                yield file, *found
    for file in sorted(results.rglob("*")):
        if is_result(file, results) and os.path.normpath(file) not in seen:
            yield file, "unrecorded", "it has no record"


def judged(record: dict, everything: Grid, results: Path) -> tuple[str, str]:
    """Whether a recorded result is good, stale or unknown, and why, if its files are unchanged."""
    nameless = ""
    try:
        if record["run"]:
            stage = record["command"][0].rpartition(".")[2]
            then = run_of_stage(stage, record["run"])
            nameless = find_nameless(then["name"], everything)
            if not nameless and (reason := find_difference(stage, then, everything)):
                return "stale", reason
        if changed := next(changed_parts(record, results, checksum), ""):
            return "stale", f"{changed} has changed since this was made"
        for module in record["code"]["modules"]:
            if not source.exists(module):
                return "unknown", f"its code does not exist: {module.replace('.', '/')}.py"
    except (UsageError, OSError) as problem:  # of what is needed to compare, not of the record
        return "unknown", str(problem)
    return ("unknown", nameless) if nameless else ("good", "")


def find_nameless(names: Any, everything: Grid) -> str:
    """Say which recorded protocol or method no longer exists; "" if both do."""
    for kind in ("protocol", "method"):
        name = names.get(kind, ANY)
        if name != ANY and not everything.knows(kind, name):
            told = "name the file that defines it with --config"
            return f"{kind} `{shown(name)}` is in no study and no configuration: {told}"
    return ""


def find_difference(stage: str, then: Run, everything: Grid) -> str:
    """Return how a recorded run's settings differ from the present ones, or ""."""
    called = then["name"].copy()
    if called["protocol"] == ANY:
        return ""  # its path names all that it depends on
    if called["method"] == ANY:
        called["method"] = ANY_METHOD
    try:
        now = run_of_stage(stage, everything.resolve(called))
    except UsageError as problem:
        return str(problem)
    for part in ("protocol", "method"):
        for name in sorted({*then[part], *now[part]}):
            old, new = (side[part].get(name, "nothing") for side in (then, now))
            if old != new:
                return f"{part}: {name} was {old} and is {new} now"
    return ""


def is_result(file: Path, results: Path) -> bool:
    inside = file.relative_to(results).parts
    hidden = any(part.startswith(".") for part in inside) or file.name == RUNNING
    return file.is_file() and inside[0] in FOLDERS and not hidden


@cache
def checksum(file: Path) -> str:
    """Return the sha256 of a file's content, read once in this process."""
    return files.checksum(file)
