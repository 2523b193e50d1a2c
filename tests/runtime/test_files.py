"""Files that appear whole, and work that nobody does twice: `fedgrid.runtime.files`."""

import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedgrid.runtime import cli, files, records
from fedgrid.runtime.names import UsageError

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(files.__file__).parents[2])}
# Holds a path until its input ends, and says so.
HOLD = """
import logging, sys
from pathlib import Path
from fedgrid.runtime import files
logging.basicConfig(stream=sys.stderr)
with files.alone(Path(sys.argv[1])):
    print("alone", flush=True)
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
    assert first.stdout.readline() == "alone\n"
    assert (tmp_path / "run.lock").read_text().startswith(f"process {first.pid} on ")
    second = hold()
    assert f"waiting for process {first.pid} on " in second.stderr.readline()
    assert not select.select([second.stdout], [], [], 0.5)[0]
    first.stdin.close()
    assert second.stdout.readline() == "alone\n"
    second.stdin.close()
    assert second.wait(60) == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_process_holds_nothing(hold, tmp_path):
    first = hold()
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (tmp_path / "run.lock").exists()
    assert hold().stdout.readline() == "alone\n"


def test_many_that_come_and_go_are_never_two(tmp_path):
    script = """
import sys
from pathlib import Path
from fedgrid.runtime import files
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


def test_two_processes_can_write_the_same_record(tmp_path, monkeypatch):
    """The second writes its record when the first has not put its own in place yet."""
    work = records.Work([tmp_path / "table"])
    work.outputs[0].touch()
    replace = Path.replace

    def replace_late(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr(os, "getpid", lambda: 1)
        records.write(work)
        return path.replace(target)

    monkeypatch.setattr(Path, "replace", replace_late)
    records.write(work)
    assert {path.name for path in tmp_path.iterdir()} == {"table", ".table.record"}


def test_leftovers_of_killed_processes_are_swept(tmp_path):
    for name in (".table.12.tmp", ".table.345.tmp", ".other.12.tmp", "table"):
        (tmp_path / name).mkdir()
    files.sweep(tmp_path / "table")
    assert {path.name for path in tmp_path.iterdir()} == {".other.12.tmp", "table"}


def test_a_file_has_the_rights_of_any_new_file(tmp_path):
    """Also if its writer makes it private, as safetensors does."""
    (tmp_path / "any").touch()
    with files.replacing(tmp_path / "file") as temporary:
        temporary.touch(0o600)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.EMFILE, "Too many open files", "p.npz"),
        PermissionError(errno.EACCES, "Permission denied", "p.npz"),
        MemoryError("Unable to allocate 7 TiB"),
    ],
)
def test_a_file_is_not_damaged_if_the_machine_does_not_read_it(problem):
    with pytest.raises(type(problem)) as found, files.whole("p.npz"):
        raise problem
    assert "p.npz" in cli.refused(found.value)
    assert "damaged" not in cli.refused(found.value)


@pytest.mark.parametrize(
    "problem", [OSError("half an image"), OSError(errno.EINVAL, "x"), KeyError]
)
def test_a_file_that_its_reader_does_not_understand_is_damaged(problem):
    with pytest.raises(UsageError, match=r"p\.npz is damaged"), files.whole("p.npz"):
        raise problem


@pytest.mark.parametrize("links", [True, False])
def test_a_second_name_outlives_the_first(links, tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", link)
    (tmp_path / "first").write_text("all of it")
    files.share(tmp_path / "first", tmp_path / "folder/second")
    assert (tmp_path / "first").samefile(tmp_path / "folder/second") == links
    (tmp_path / "first").unlink()
    assert (tmp_path / "folder/second").read_text() == "all of it"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["second"]


def test_a_folder_is_packed_into_an_archive_and_unpacked(tmp_path):
    with files.packed(tmp_path / "models.tar") as folder:
        folder.mkdir()
        (folder / "client0").write_text("weights")
    assert [path.name for path in tmp_path.iterdir()] == ["models.tar"]
    with files.unpacked(tmp_path / "models.tar") as folder:
        assert (folder / "client0").read_text() == "weights"
    assert [path.name for path in tmp_path.iterdir()] == ["models.tar"]


def test_a_path_that_is_no_archive_is_the_folder_itself(tmp_path):
    with files.packed(tmp_path) as written, files.unpacked(tmp_path) as read:
        assert written == read == tmp_path
