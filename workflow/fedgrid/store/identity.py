"""Whether a result is current: settings, code, inputs and versions that it was made with."""

import json
from functools import cache
from hashlib import sha256
from pathlib import Path

from fedgrid.runtime import files
from fedgrid.runtime.code import source
from fedgrid.runtime.resolved import Run
from fedgrid.study.jobs import run_of_stage, stage_modules
from fedgrid.study.paths import (
    OF_RUN,
    RUN,
    collected_path,
    collecting_stage,
)
from fedgrid.study.protocol import PROTOCOL

REGISTRIES = ("datasets.", "methods.", "models.", "partitions.")  # of files that people add


def changed(code: dict) -> bool:
    """Whether code has changed; a missing file that a user added does not count as a change."""
    gone = [module for module in code["modules"] if not source.exists(module)]
    if gone:
        return not all(module.startswith(REGISTRIES) for module in gone)
    return source.of(code["modules"]) != code["fingerprint"]


def input_of(name: str, results: Path) -> Path:
    """Return the path of a recorded input; `results` replaces the folder of that name."""
    path = results.resolve().parent / name
    return path if Path(name).parts[:1] == (results.resolve().name,) else Path(name)


@cache
def checksum(file: Path) -> str:
    """Return the sha256 of a file's content."""
    return files.checksum(file)


def hash_content(kind: str, run: Run) -> str:
    """Return a hash of what a run's item depends on, without the names of protocol and method.

    Fields of the protocol with their default are left out, so that what is kept still counts when
    fedgrid has one more field.
    """
    whole = run_of_stage(collecting_stage(kind), run)
    changed = {k: v for k, v in whole["protocol"].items() if v != PROTOCOL[k]}
    content = {k: v for k, v in whole.items() if k != "name"} | {"protocol": changed}
    return hash_text(json.dumps(content, sort_keys=True))


def hash_text(text: str) -> str:
    """Return a short hash of a text."""
    return sha256(text.encode()).hexdigest()[:12]


def is_finished(kind: str, run: Run, results: Path) -> bool:
    """Whether what a resolved run leaves of a kind is in `results`, made with today's settings.

    Only a run's summary says what it was made with; other files have it in their path.
    """
    names, protocol = run["name"], {**run["protocol"], "cells": run["cells"]}
    if not (results / collected_path(kind, names, protocol)).exists():
        return False
    summary = results / "runs" / RUN.format(**names) / "summary.json"
    return kind not in OF_RUN or not summary.exists() or has_content(summary, run)


def has_content(summary: Path, run: Run) -> bool:
    """Whether a run was made with the content of a resolved run, by its summary.

    A damaged summary does not say otherwise: whoever reads it refuses it.
    """
    try:
        then = json.loads(summary.read_text())["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    try:
        return hash_content("runs", then) == hash_content("runs", run)
    except (KeyError, TypeError, AttributeError):  # a field of today was not there then
        return False


def work_key(stage: str, run: Run, paths: dict[str, Path]) -> str:
    """Return a hash of the resolved run, its code and its inputs, to recognise finished work.

    The names of the run are left out: the same work under other names has the same hash.
    """
    content = {key: value for key, value in run.items() if key != "name"}
    parts = [json.dumps(content, sort_keys=True), source.fingerprint(*stage_modules(stage, run))]
    parts += [files.checksum(path) for path in paths.values()]
    return sha256("\n".join(parts).encode()).hexdigest()
