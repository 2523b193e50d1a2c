"""A run that is killed again and again ends as one that is not: `tests.faults.kills`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_run_survives_a_kill_at_every_operation_on_a_file_and_at_random_moments():
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", "--methods", "moon", "--times", "5"],
        **{"cwd": ROOT, "env": os.environ | {"PYTHONPATH": "workflow"}, "text": True},
        **{"capture_output": True, "check": False},
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert int(last.split()[0]) > 50
    assert last.endswith("every time the same bytes and nothing left over")
