"""Snakemake in a copy of the project: what it says, what it would do, and edits of the copy."""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from conftest import ENVIRONMENT, TABLE

RUNS = "results/runs/tiny/digits/dir0.1"
# The part of the study that tiny.yaml asks for.
PART_OF_TINY = "protocol=tiny/partition=dir0.1/method=fedavg,moon,fedau,fedsls/seed=0"


class Plan(NamedTuple):
    """What a dry run would do: jobs by rule, and the methods that would be trained."""

    jobs: dict[str, int]
    trained: set[str]


def start(project: Path, *arguments) -> subprocess.Popen:
    """Snakemake in the project, started and not waited for."""
    command = ["snakemake", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=project, env=ENVIRONMENT, text=True, encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def snakemake(project: Path, *arguments) -> str:
    """What Snakemake says, if it succeeds."""
    process = start(project, *arguments)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def planned(project: Path, *options, target: str = TABLE) -> Plan:
    """What has to be done for the target, or for several."""
    said = snakemake(project, "--dry-run", *options, "--", *target.split())
    jobs = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)}
    assert jobs or "Nothing to be done" in said, said
    jobs.pop("total", None)
    return Plan(jobs, set(re.findall(r"train: (\S+) on ", said)))


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace what is there exactly once."""
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new))


def new_times_on_every_file(project: Path) -> None:
    """Now, with every input newer than what was made of it."""
    files = [
        path for path in project.rglob("*") if path.is_file() and ".snakemake" not in path.parts
    ]
    files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    now = time.time() - len(files)
    for second, path in enumerate(files):
        os.utime(path, (now + second, now + second))
