"""Files that appear whole, and work that nobody does twice: `fedgrid.files`."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedgrid import files

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(files.__file__).parents[1])}
# Holds a path until its input ends; says so, and whether it had to wait.
HOLD = """
import logging, sys
from pathlib import Path
from fedgrid import files
logging.basicConfig(stream=sys.stderr)
with files.alone(Path(sys.argv[1])) as waited:
    print("waited" if waited else "at once", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path):
    """Starts processes that hold one path."""
    started = []

    def begin() -> subprocess.Popen:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
        started.append(subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_a_path_has_one_process_at_a_time(hold, tmp_path):
    first = hold()
    assert first.stdout.readline() == "at once\n"
    assert (tmp_path / "run.lock").read_text().startswith(f"process {first.pid} on ")
    second = hold()
    assert f"waiting for process {first.pid} on " in second.stderr.readline()
    first.stdin.close()
    assert second.stdout.readline() == "waited\n"
    second.stdin.close()
    assert second.wait(10) == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_process_holds_nothing(hold, tmp_path):
    first = hold()
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (tmp_path / "run.lock").exists()
    assert hold().stdout.readline() == "at once\n"


def test_many_that_come_and_go_are_never_two(tmp_path):
    script = """
import sys
from pathlib import Path
from fedgrid import files
path = Path(sys.argv[1])
for _ in range(50):
    with files.alone(path):
        (path.parent / "inside").mkdir()
        (path.parent / "inside").rmdir()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    started = [subprocess.Popen(command, env=ENVIRONMENT) for _ in range(4)]
    assert [process.wait(60) for process in started] == [0] * 4


def test_what_fails_halfway_appears_nowhere(tmp_path):
    (tmp_path / "table").write_text("before")
    with pytest.raises(OSError, match="No space"):
        half_written(tmp_path / "table")
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert (tmp_path / "table").read_text() == "before"


def half_written(path: Path) -> None:
    with files.replacing(path) as temporary:
        temporary.write_text("hal")
        raise OSError(errno.ENOSPC, "No space left on device")


def test_leftovers_of_killed_processes_are_swept(tmp_path):
    for name in (".table.12.tmp", ".table.345.tmp", ".other.12.tmp", "table"):
        (tmp_path / name).mkdir()
    files.sweep(tmp_path / "table")
    assert {path.name for path in tmp_path.iterdir()} == {".other.12.tmp", "table"}
