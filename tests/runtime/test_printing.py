"""What commands print, in any terminal and into a closed pipe: `fedgrid.runtime.cli`."""

import os
import subprocess
import sys

import pytest

import made
from conftest import ENVIRONMENT
from fedgrid.commands import draw
from fedgrid.runtime import cli
from fedgrid.runtime.places import PACKAGE

SHOW = ("draw", "table1", "--study", "fedsls", "--show", "table.csv")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a finished table."""
    monkeypatch.chdir(tmp_path)
    made.runs({"fedavg": [50, 60]}).to_csv("runs.csv", index=False)
    draw.main(["table1", "--study", "fedsls", "--sources", "runs=runs.csv", "--out", "table.csv"])


def start(words: tuple[str, ...], stdout: int, **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "fedgrid", *words],
        env=ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)} | more,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_a_letter_that_the_terminal_lacks_is_replaced(encoding, place):
    ended = start(SHOW, subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "55.00 ± 7.07".encode(encoding, "replace") in ended.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [SHOW, ("verify", "--help"), ("--help",), ("--version",), ()])
def test_a_closed_pipe_ends_a_command_quietly(words, unbuffered, place):
    read, write = os.pipe()
    os.close(read)
    ended = start(words, write, PYTHONUNBUFFERED=unbuffered)
    os.close(write)
    assert ended.stderr == b""
    assert ended.returncode in (0, cli.CLOSED)  # argparse itself ends well if nobody reads its help
