"""Jobs that Snakemake is told to make again: with --force, --forceall or --forcerun.

Snakemake tells a job nothing of this, and starts every job of a cluster with --force. So the
Snakefile writes what its command forces into a variable of the environment, which all jobs get. A
forced job begins anew once in each command: a later attempt of the same command goes on from the
job's own checkpoint, and so does the same job in a later command that forces nothing.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedgrid.runtime import files

VARIABLE = "FEDGRID_FORCED"


def tell(settings: Any, rules: dict[str, str]) -> None:
    """Write down for the jobs what a command of Snakemake forces; nothing if it forces nothing.

    `settings` are the `dag_settings` of Snakemake's workflow. `rules` has the name of each stage's
    rule, which differs from the stage's if another workflow uses these rules as a module.
    """
    words = {*settings.forcerun, *(settings.targets if settings.forcetargets else ())}
    stages = [stage for stage, rule in rules.items() if settings.forceall or rule in words]
    known = {"stages": stages, "files": sorted(map(os.path.relpath, words))}
    command = {"command": f"{time.time_ns()} {os.getpid()}"}
    os.environ[VARIABLE] = json.dumps(known | command) if any(known.values()) else ""


def told() -> dict[str, Any]:
    return json.loads(os.environ.get(VARIABLE) or "{}")


def is_forced(stage: str, outputs: Iterable[str | Path]) -> bool:
    """Whether a job of a stage is forced, by its stage or by one of its outputs."""
    about, paths = told(), [f"/{os.path.relpath(path)}" for path in outputs]
    ends = tuple(f"/{file}" for file in about.get("files", ()))  # a storage's copies end so, too
    return stage in about.get("stages", ()) or any(path.endswith(ends) for path in paths)


def has_begun(checkpoint: Path) -> bool:
    """Whether an earlier attempt of the same command has begun a forced job."""
    note = note_beside(checkpoint)
    return note.exists() and note.read_text(encoding="utf-8") == told().get("command")


def begin(checkpoint: Path) -> None:
    """Note that a forced job begins, after all has been deleted that it could go on from."""
    with files.replacing(note_beside(checkpoint)) as temporary:
        temporary.write_text(told()["command"], encoding="utf-8")


def end(checkpoint: Path) -> None:
    note_beside(checkpoint).unlink(missing_ok=True)


def note_beside(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.forced")
