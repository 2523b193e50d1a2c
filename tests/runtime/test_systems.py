"""What Linux alone has is not needed elsewhere: the package without the modules of POSIX."""

import subprocess
import sys

import pytest

from conftest import ENVIRONMENT
from fedgrid.runtime.places import PACKAGE

MODULES = sorted(
    ".".join(["fedgrid", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(
        ".__init__"
    )
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)
# What Python on Windows does not have, of what programs for Linux use.
HIDE = """
import os, signal, socket, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "readline", "syslog", "curses"):
    sys.modules[name] = None
import {first}
for name in ("fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "setsid", "killpg",
             "sched_getaffinity", "getloadavg", "uname", "mkfifo", "statvfs", "chown", "nice"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGCONT"):
    if hasattr(signal, name):
        delattr(signal, name)
del socket.AF_UNIX
"""
RUN = "fedsls-quick-rounds2-tail1/digits/dir0.1/fedavg/seed0"


def python(code: str, folder, first: str) -> subprocess.CompletedProcess:
    """What a Python without POSIX does; the library `first` is imported before all is hidden."""
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(first=first) + code],
        cwd=folder, env=ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)}, text=True,
        capture_output=True,
    )  # fmt: skip


@pytest.mark.slow
def test_every_module_is_imported_without_posix(tmp_path):
    code = f"import importlib\nfor name in {MODULES}:\n    importlib.import_module(name)"
    done = python(code, tmp_path, "torch, pandas, matplotlib.pyplot, sklearn.datasets, torchvision")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_run_is_trained_without_posix(tmp_path):
    code = f"""
from fedgrid.commands import data, partition, train
data.main(["digits"])
partition.main(["{RUN}"])
train.main(["{RUN}"])
"""
    done = python(code, tmp_path, "torch, sklearn.datasets")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"results/runs/{RUN}/metrics.csv").exists()


def test_no_file_of_the_package_has_a_name_that_windows_refuses():
    names = {part for path in PACKAGE.rglob("*") for part in path.relative_to(PACKAGE).parts}
    assert not [name for name in names if set(name) & set('<>:"|?*\\')]
    files = [str(path).lower() for path in PACKAGE.rglob("*.py")]
    assert len(files) == len(set(files))
