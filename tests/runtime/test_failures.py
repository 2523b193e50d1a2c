"""The sentences of failed jobs at the end of what Snakemake prints."""

import logging

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from fedgrid.runtime.watch import failures
from fedgrid.runtime.watch.failures import Failures


@pytest.fixture
def failed(tmp_path):
    """Give the end of a job's log to a command, as Snakemake tells of a failed job."""
    told = Failures()

    def fail(name: str, text: str | None) -> Failures:
        log = tmp_path / name
        if text is not None:
            log.write_text(text)
        record = logging.makeLogRecord({"event": LogEvent.JOB_ERROR, "log": [str(log)]})
        told.emit(record)
        return told

    return fail


def test_each_sentence_of_failed_jobs_is_told_once(failed, capsys):
    end = "error: no space is left: delete files"
    for number in range(3):
        failed(f"{number}.log", f"2026-11-29 20:06:21 begun\n2026-11-29 20:06:22 {end}\n")
    failed("cluster.log", "error: one\nerror: FEMNIST is not there: put it there\nan error: no\n")
    failed("killed.log", "2026-11-29 20:06:21 round 3\n")
    failed("gone.log", None).tell()
    assert capsys.readouterr().err == f"{end}\nerror: FEMNIST is not there: put it there\n"


def test_a_later_attempt_counts_and_other_events_are_no_failures(failed, capsys, tmp_path):
    told = failed("one.log", "error: the disk is full\n")
    (tmp_path / "one.log").write_text("2026-11-29 20:06:21 finished\n")
    (tmp_path / "other.log").write_text("error: of another event\n")
    for event in ({"event": LogEvent.PROGRESS, "log": [str(tmp_path / "other.log")]}, {}):
        told.emit(logging.makeLogRecord(event))
    told.tell()
    assert not capsys.readouterr().err


def test_many_sentences_are_counted(failed, capsys):
    for number in range(failures.MOST + 2):
        told = failed(f"{number}.log", f"error: number {number}\n")
    told.tell()
    *lines, last = capsys.readouterr().err.splitlines()
    assert (len(lines), last) == (failures.MOST, "and 2 other errors")
