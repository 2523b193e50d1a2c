"""One timer for Snakemake's scheduler, instead of one more for each job: `fedgrid.runtime.timers`.

Snakemake itself runs small jobs with the project's `common.smk`.
"""

import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.scheduling.job_scheduler import JobScheduler

from conftest import ENVIRONMENT
from fedgrid.runtime import timers

HERE = Path(__file__).parents[1]
# Each job writes how many threads Snakemake has: Snakemake is the parent of the job's shell.
WORKFLOW = """
configfile: "{project}/config.yaml"
include: "{project}/workflow/rules/common.smk"

rule every:
    default_target: True
    input: expand("{{number}}.txt", number=range({jobs}))

rule one:
    output: "{{number}}.txt"
    shell: "grep Threads /proc/$PPID/status > {{output}}"
"""


class Timer:
    """A timer of a test: it ends when the test says so."""

    made: list["Timer"]

    def __init__(self, delay, function, arguments):
        self.delay, self.end, self.cancelled = delay, lambda: function(*arguments), False
        Timer.made.append(self)

    def start(self) -> None:
        """Wait for `end`."""

    def cancel(self) -> None:
        """Note that the timer is not needed."""
        self.cancelled = True


@pytest.fixture
def scheduler(monkeypatch):
    """A scheduler that counts its looks, on which timers end only in `ended`."""
    Timer.made = []
    monkeypatch.setattr(timers.threading, "Timer", Timer)
    monkeypatch.setattr(timers.time, "monotonic", lambda: 100.0)
    return SimpleNamespace(_open_jobs=threading.Semaphore(0))


def ended(timer: Timer, monkeypatch) -> None:
    """End a timer, as in its own thread."""
    with monkeypatch.context() as patch:
        patch.setattr(timers.threading, "current_thread", lambda: timer)
        timer.end()


def looks(scheduler) -> int:
    """How many times the scheduler was asked to look since the last call."""
    number = 0
    while scheduler._open_jobs.acquire(blocking=False):
        number += 1
    return number


def test_every_timer_is_followed_by_a_look_and_then_by_another_timer(scheduler, monkeypatch):
    for number in range(3):
        for _ in range(400):
            timers.look_later(scheduler, 1)
        assert Timer.made[-1].daemon
        ended(Timer.made[-1], monkeypatch)
        assert (len(Timer.made), looks(scheduler)) == (number + 1, 1)


def test_an_earlier_wish_is_not_late(scheduler, monkeypatch):
    for delay in (10, 1, 5):
        timers.look_later(scheduler, delay)
    assert [(timer.delay, timer.cancelled) for timer in Timer.made] == [(10, True), (1, False)]
    ended(Timer.made[0], monkeypatch)  # it ended while it was cancelled
    timers.look_later(scheduler, 1)
    assert len(Timer.made) == 2, "the timer that waits was forgotten"


def test_two_schedulers_have_a_timer_each(scheduler):
    timers.look_later(scheduler, 1)
    timers.look_later(SimpleNamespace(_open_jobs=threading.Semaphore(0)), 1)
    assert len(Timer.made) == 2


def test_snakemake_still_has_the_method_that_is_replaced():
    assert timers.merge(), (
        "Snakemake's JobScheduler._schedule_reevalutation has changed, so fedgrid no longer "
        "replaces it: read the method of the installed Snakemake. If it starts a thread at every "
        "call, change EXPECTED and `look_later` in fedgrid/runtime/timers.py. If it does not, "
        "delete this module, its call in common.smk, and the limit in systems.md"
    )
    assert JobScheduler._schedule_reevalutation is timers.look_later


@pytest.mark.parametrize("other", [lambda self, delay: None, None, len], ids=["text", "none", "C"])
def test_another_method_stays(monkeypatch, other):
    monkeypatch.setattr(JobScheduler, "_schedule_reevalutation", other)
    assert not timers.merge()
    assert JobScheduler._schedule_reevalutation is other


def run(folder: Path, jobs: int, *options: str) -> list[int]:
    """The threads of Snakemake during each job."""
    text = WORKFLOW.format(project=HERE.parent, jobs=jobs)
    (folder / "Snakefile").write_text(text, encoding="utf-8")
    command = ["snakemake", "--cores", "1", "--scheduler", "greedy", *options]
    ended = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return [int((folder / f"{n}.txt").read_text().split()[1]) for n in range(jobs)]


def test_threads_do_not_grow_with_the_jobs_that_have_ended(tmp_path):
    """A Snakemake of its own runs the jobs: some seconds."""
    assert max(run(tmp_path, 60)) < 15


@pytest.mark.slow
def test_a_rate_limit_starves_no_job(tmp_path):
    assert max(run(tmp_path, 7, "--max-jobs-per-timespan", "2/1s")) < 15
