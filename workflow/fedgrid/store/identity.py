"""What a result was made with, and whether the same would make it today.

An identity has four parts: the settings of the run, the code, the inputs, and the versions of the
packages. Whoever asks whether a result is current compares some of these parts, by this module; the
documentation has the table of who compares which, and why (docs/reference/identity.md).
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid.runtime import files, machine, records
from fedgrid.runtime.code import source
from fedgrid.runtime.hashes import hash_facts, hash_text
from fedgrid.runtime.resolved import Run
from fedgrid.study.jobs import dataset_modules, run_of_stage, stage_modules
from fedgrid.study.paths import OF_RUN, RUN, collected_path, collecting_stage
from fedgrid.study.protocol import PROTOCOL

Checksum = Callable[[Path], str]  # of a file's content

REGISTRIES = ("datasets.", "methods.", "models.", "partitions.")  # of files that people add


class Identity(NamedTuple):
    """What the work of a stage is made with; the names of its run are no part of it."""

    settings: dict[str, Any]  # the resolved run without its names
    code: str  # the fingerprint of the stage's code
    inputs: tuple[str, ...]  # the checksums of its inputs
    versions: dict[str, str]  # of Python and of the packages that can change numbers

    @property
    def key(self) -> str:
        """The hash of settings, code and inputs, by which unfinished work is found again."""
        parts = [json.dumps(self.settings, sort_keys=True), self.code, *self.inputs]
        return hash_text("\n".join(parts), 64)

    def made(self, summary: dict[str, Any]) -> bool:
        """Whether a finished run, by its summary, was made with exactly this."""
        return (summary.get("key"), summary.get("versions")) == (self.key, self.versions)


def identify(stage: str, run: Run, paths: dict[str, Path]) -> Identity:
    """Return what a stage would work with now: its resolved run, and the paths of its inputs."""
    settings = {key: value for key, value in run.items() if key != "name"}
    code = source.fingerprint(*stage_modules(stage, run))
    inputs = tuple(files.checksum(path) for path in paths.values())
    return Identity(settings, code, inputs, machine.versions())


# -- settings alone -------------------------------------------------------------------------------


def hash_content(kind: str, run: Run) -> str:
    """Return a hash of the settings that a run's collected table of a kind depends on.

    The names of protocol and method do not count. Fields of the protocol with their default are
    left out, so that what is kept still counts when fedgrid has one more field.
    """
    content = run_of_stage(collecting_stage(kind), run)
    changed = {k: v for k, v in content["protocol"].items() if v != PROTOCOL[k]}
    return hash_facts({k: v for k, v in content.items() if k != "name"} | {"protocol": changed})


def is_finished(kind: str, run: Run, results: Path) -> bool:
    """Whether `results` holds a run's output of a kind, made with these settings.

    Only a run's summary says what it was made with; other files have it in their path, but for data
    of one's own, which their records know.
    """
    names, protocol = run["name"], {**run["protocol"], "cells": run["cells"]}
    if not (made := results / collected_path(kind, names, protocol)).exists():
        return False
    if kind not in OF_RUN:
        return "data" not in run or is_of_today(made, run["dataset"], results)
    try:
        then = json.loads((results / "runs" / RUN.format(**names) / "summary.json").read_text())
        then = then["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return True  # whoever reads a missing or damaged summary refuses it
    try:
        return hash_content("runs", then) == hash_content("runs", run)
    except (KeyError, TypeError, AttributeError):  # a field of today was not there then
        return False


def is_of_today(made: Path, dataset: str, results: Path) -> bool:
    """Whether a file was made of the data of one's own that are there now, by the records.

    A file without a record was made by other means, and is taken as it is.
    """
    decoded = results / "data" / dataset / "meta.json"
    try:
        of_file, of_data = (json.loads(records.path(path).read_text()) for path in (made, decoded))
        code = of_data["code"]["fingerprint"]
        return code == source.fingerprint(*dataset_modules(dataset)) and not any(
            changed_inputs(of_file, results)
        )
    except (OSError, ValueError, KeyError):
        return True


# -- code and inputs, by a record -----------------------------------------------------------------


def changed_parts(
    record: dict, results: Path, checksum: Checksum = files.checksum
) -> Iterator[str]:
    """Yield what has changed since a result was made, by its record: the code, or an input.

    Whoever asks about many records gives a `checksum` that reads each file once.
    """
    code = record["code"]
    gone = [module for module in code["modules"] if not source.exists(module)]
    if gone:  # a file that a user added and is gone is no change
        changed = not all(module.startswith(REGISTRIES) for module in gone)
    else:
        changed = source.fingerprint(*code["modules"]) != code["fingerprint"]
    if changed:
        yield "the code that made it"
    yield from changed_inputs(record, results, checksum)


ENGINE = "engine"  # the code has changed since a run was made, the files of its method have not
UNRECORDED = "unrecorded"  # the code has changed; the files of the method were not recorded


def list_changed_code(code: str, files: dict[str, str], run: Run) -> str:
    """Return what has changed in the code of a run since it was made: files, ENGINE, or "".

    `code` is the fingerprint of the code that made it, and `files` those of its method's files, by
    `hash_method_files`. Changed files of the method are listed with spaces between them. Without
    fingerprints of all files it is UNRECORDED whether one of them has changed.
    """
    if code == source.fingerprint(*stage_modules("train", run)):
        return ""
    now = hash_method_files(run)
    if files.keys() != now.keys():
        return UNRECORDED
    changed = [source.file(f"methods.{name}") for name in now if now[name] != files[name]]
    return " ".join(changed) or ENGINE


def hash_method_files(run: Run) -> dict[str, str]:
    """Return the fingerprint of each file of a run's method, with what it imports of methods/."""
    return {name: source.fingerprint_of_file(f"methods.{name}") for name in run["method"]}


def changed_inputs(record: dict, results: Path, checksum: Checksum = files.checksum) -> list[str]:
    """Return the recorded inputs that have other content now; a missing file is no change."""
    return [
        name
        for name, digest in record.get("inputs", {}).items()
        if (path := input_of(name, results)).exists() and checksum(path) != digest
    ]


def input_of(name: str, results: Path) -> Path:
    """Return the path of a recorded input; `results` replaces the folder of that name."""
    home = results.resolve()
    return home.parent / name if Path(name).parts[:1] == (home.name,) else Path(name).absolute()
