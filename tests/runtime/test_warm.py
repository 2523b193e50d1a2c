"""Jobs forked from a process that has imported PyTorch: `fedgrid.runtime.warm`."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedgrid.runtime import warm

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has warm starts")

# An entry point that says what it was given and whether somebody had imported torch for it, and
# torch._dynamo, which a stacked run imports.
ENTRY = """
import os, sys, time
from fedgrid.runtime import cli
from fedgrid.runtime.names import UsageError

def main(arguments):
    warm = {"torch", "torch._dynamo"} <= {*sys.modules}
    print(warm, sys.argv[1:], os.getcwd(), os.environ.get("COLOUR"), sys.stdin.read(), flush=True)
    if "wrong" in sys.argv:
        raise UsageError("that is wrong")
    if "defect" in sys.argv:
        raise ValueError("a defect")
    if "crash" in sys.argv:
        os.abort()
    if "sleep" in sys.argv:
        print(os.getpid(), flush=True)
        time.sleep(60)

if __name__ == "__main__":
    cli.run(main)
"""

# Imports what the keeper imports, and writes what this asked of CUDA: after CUDA has started in a
# process, it works in no fork of it.
ASKING = """
import torch
from fedgrid.runtime import warm

asked = []

def noted(name, function):
    return lambda *given, **named: (asked.append(name), function(*given, **named))[1]

for module, names in ((torch._C, dir(torch._C)), (torch.cuda, ("is_available", "device_count"))):
    for name in names:
        if name.startswith("_cuda_") or module is torch.cuda:
            setattr(module, name, noted(name, getattr(module, name)))
torch.cuda.is_available()
control = len(asked)
warm.import_each(warm.PACKAGES + warm.LATER)
print(control, asked[control:])
"""


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """A process to which a keeper belongs, and which lives as long as the tests."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def place(tmp_path_factory, owner) -> Path:
    place = tmp_path_factory.mktemp("warm")
    (place / "entry.py").write_text(ENTRY)
    started(place, owner)
    return place


def started(place: Path, owner) -> None:
    """Returns when jobs are forked."""
    for _ in range(600):
        if run(place, owner).stdout.startswith("True"):
            return
        time.sleep(0.5)
    raise AssertionError("no keeper was started")


def settings(place: Path, owner, **more) -> dict:
    package = Path(warm.__file__).parents[2]
    search = {"PYTHONPATH": f"{package}{os.pathsep}{place}"}
    return {**os.environ, **search, "FEDGRID_WARM": str(owner.pid), **more}


def run(
    place: Path, owner, *arguments: str, given: str = "", **more
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "entry", *arguments],
        **{"env": settings(place, owner, **more), "cwd": place, "input": given},
        **{"text": True, "capture_output": True, "check": False},
    )


def begin(place: Path, owner) -> tuple[subprocess.Popen, int]:
    """A forked job that sleeps, and its child's process id."""
    job = subprocess.Popen(
        [sys.executable, "-m", "entry", "sleep"],
        **{"env": settings(place, owner), "cwd": place, "text": True},
        **dict.fromkeys(("stdin", "stderr"), subprocess.DEVNULL),
        stdout=subprocess.PIPE,
    )
    assert job.stdout.readline().startswith("True")
    return job, int(job.stdout.readline())


def gone(pid: int) -> bool:
    """Whether a process ends within a minute."""
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not psutil.pid_exists(pid)


def test_a_job_gets_its_arguments_folder_environment_and_streams(place, owner):
    done = run(place, owner, "a b", "ü", given="hello", COLOUR="red")
    assert done.stdout == f"True ['a b', 'ü'] {place} red hello\n"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("argument", "status", "says"),
    [
        ("wrong", 1, "error: that is wrong\n"),
        ("defect", 1, "ValueError: a defect\n"),
        ("crash", -signal.SIGABRT, ""),
    ],
)
def test_a_job_ends_as_a_usual_one(place, owner, argument, status, says):
    warm, usual = run(place, owner, argument), run(place, owner, argument, FEDGRID_WARM="")
    assert warm.stdout.startswith("True")
    assert usual.stdout.startswith("False")
    assert warm.returncode == usual.returncode == status
    assert warm.stderr.endswith(says)
    assert usual.stderr.endswith(says)


def test_signals_are_passed_on(place, owner):
    job, child = begin(place, owner)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == -signal.SIGTERM
    assert gone(child)


def test_a_killed_job_does_not_live_on_in_its_child(place, owner):
    job, child = begin(place, owner)
    job.kill()
    job.wait(60)
    assert gone(child)


def test_a_signal_to_all_processes_of_a_slurm_job_leaves_the_keeper(place, owner):
    job, child = begin(place, owner)
    os.kill(psutil.Process(child).ppid(), signal.SIGTERM)
    assert run(place, owner).stdout.startswith("True")
    job.kill()
    job.wait(60)


@pytest.mark.slow
def test_a_job_of_a_killed_keeper_says_so(place):
    with subprocess.Popen(["sleep", "100"]) as owner:
        started(place, owner)
        job, child = begin(place, owner)
        os.kill(psutil.Process(child).ppid(), signal.SIGKILL)
        assert job.wait(60) == 1
        assert gone(child)
        owner.kill()


@pytest.mark.slow
def test_a_keeper_ends_with_its_owner_but_not_before_its_jobs(place):
    with subprocess.Popen(["sleep", "100"]) as owner:
        started(place, owner)
        job, child = begin(place, owner)
        keeper = psutil.Process(child).ppid()
        owner.kill()
    time.sleep(0.5)
    assert job.poll() is None
    assert run(place, owner).stdout.startswith("False")
    job.terminate()
    job.wait(60)
    assert gone(keeper)


def test_nobody_elses_keeper_is_asked(monkeypatch):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0fedgrid-test")
        listener.listen()
        warm.connected("\0fedgrid-test").close()
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert warm.connected("\0fedgrid-test") is None


def test_other_threads_mean_another_keeper(monkeypatch):
    one = warm.name("1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert warm.name("1") != one != warm.name("2")


@pytest.mark.slow
def test_the_keepers_imports_leave_cuda_alone():
    package = str(Path(warm.__file__).parents[2])
    command = [sys.executable, "-c", ASKING]
    said = subprocess.check_output(command, env=os.environ | {"PYTHONPATH": package}, text=True)
    control, _, asked = said.strip().partition(" ")
    assert int(control), "the test does not see what is asked of CUDA"
    assert asked == "[]"


@pytest.mark.slow
def test_differentiation_imports_nothing_that_the_keeper_lacks():
    call = "from torch.func import grad, vmap; import torch; old = {*sys.modules}; "
    call += "vmap(grad(torch.sum))(torch.ones(2, 3)); print(*sys.modules.keys() - old)"
    imports = "import sys; from fedgrid.runtime import warm; "
    imports += "warm.import_each(warm.PACKAGES + warm.LATER); "
    environment = os.environ | {"PYTHONPATH": str(Path(warm.__file__).parents[2])}
    command = [sys.executable, "-c", imports + call]
    assert not subprocess.check_output(command, env=environment, text=True).split()
