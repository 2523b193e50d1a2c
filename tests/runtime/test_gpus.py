"""Which GPU a job takes on a machine that has several: `fedgrid.runtime.gpus`. No GPU is needed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedgrid.runtime import gpus
from fedgrid.runtime.names import UsageError

# A job that says which GPU it has, and keeps it until its input ends.
JOB = """
import sys
from fedgrid.runtime import gpus
print(gpus.claim(int(sys.argv[1])), flush=True)
input()
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Starts jobs on a machine with two GPUs of 8 GB; `take` gives the job and its GPU."""
    monkeypatch.setenv("FEDGRID_GPUS", "a:8,b:8")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    started = []

    def take(gigabytes: int, wait: bool = True):
        environment = os.environ | {"PYTHONPATH": str(Path(gpus.__file__).parents[2])}
        job = subprocess.Popen(
            [sys.executable, "-c", JOB, str(gigabytes)],
            **{"env": environment, "text": True, "stdin": subprocess.PIPE},
            stdout=subprocess.PIPE,
        )
        started.append(job)
        return job, job.stdout.readline().strip() if wait else None

    yield take
    for job in started:
        job.kill()
        job.wait()


def test_each_job_has_a_gpu_to_itself(machine):
    assert {machine(0)[1], machine(0)[1]} == {"a", "b"}


def test_jobs_share_a_gpu_as_far_as_its_memory_goes(machine):
    taken = [machine(4)[1] for _ in range(4)]
    assert [taken.count(name) for name in ("a", "b")] == [2, 2]


def test_the_fullest_with_room_is_taken_so_that_whole_ones_stay_free(machine):
    first, second = machine(3)[1], machine(3)[1]
    assert first == second
    assert machine(0)[1] != first


@pytest.mark.parametrize("end", [lambda job: job.kill(), lambda job: job.stdin.close()])
def test_who_finds_no_room_waits_until_a_job_ends_however_it_ends(machine, end):
    (job, name), _ = machine(0), machine(0)
    waiting, _ = machine(2, wait=False)
    time.sleep(1)
    assert waiting.poll() is None
    end(job)
    assert waiting.stdout.readline().strip() == name


def test_what_a_scheduler_has_said_is_left_alone(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert gpus.claim(0) is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_no_gpu_is_none(monkeypatch):
    monkeypatch.delenv("FEDGRID_GPUS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "gpus", dict)
    assert gpus.claim(0) is None


def test_a_job_that_fits_nowhere_is_told(machine):
    with pytest.raises(
        UsageError, match="no GPU has 9 GB: this machine has a with 8 GB, b with 8 GB"
    ):
        gpus.claim(9)


@pytest.mark.parametrize("text", ["a", "a:b", "a:8;b:8"])
def test_a_malformed_list_is_told(text, monkeypatch):
    monkeypatch.setenv("FEDGRID_GPUS", text)
    with pytest.raises(UsageError, match=f"FEDGRID_GPUS is `{text}`, not like 0:80,1:80"):
        gpus.gpus()
