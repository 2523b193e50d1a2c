"""A run that is killed again and again ends as one that is not: `tests.faults.kills`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import needs_compiler

ROOT = Path(__file__).parents[2]
COMPILED = ["--compile", "--methods", "scaffold", "--times"]


@pytest.mark.parametrize(
    ("options", "least"),
    [
        pytest.param(["--kinds", "--times", "2"], 30, marks=pytest.mark.slow),
        pytest.param(["--times", "5"], 100, marks=pytest.mark.exhaustive),
        pytest.param([*COMPILED, "20"], 30, marks=[pytest.mark.exhaustive, needs_compiler]),
    ],
)
def test_a_run_survives_a_kill_at_operations_on_files_and_at_random_moments(options, least):
    """An operation of each kind; with `-m exhaustive`, every one, and some with compiled steps."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", "--methods", "moon", *options],
        **{"cwd": ROOT, "env": os.environ | {"PYTHONPATH": "workflow"}, "text": True},
        **{"capture_output": True, "check": False},
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert int(last.split()[0]) > least
    assert last.endswith("every time the same bytes and nothing left over")
