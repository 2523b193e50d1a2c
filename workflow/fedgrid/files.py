"""Files that appear under their name only when they are whole, and work that nobody does twice."""

import errno
import fcntl
import glob
import logging
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from fedgrid import records
from fedgrid.names import UsageError

CHANGES_RESULTS = False

log = logging.getLogger(__name__)


@contextmanager
def replacing(path: Path, result: bool = True) -> Iterator[Path]:
    """A temporary place beside `path`; what is written there is synced and takes its place.

    It is in a folder of its own, since writers have temporary files too. A `result` is noted in the
    command's record; a checkpoint is none.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    folder.mkdir(exist_ok=True)
    temporary = folder / path.name
    try:
        yield temporary
        temporary.chmod(folder.stat().st_mode & 0o666)  # safetensors' own are private
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        if result:
            records.NOTES.outputs.append(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process is in here with this path.

    The lock is the kernel's: it ends with its process, however that ends, and holds on all machines
    that share a file system with locks. `<path>.lock` says who holds it, and is removed in the end.
    """
    lock = path.with_name(f"{path.name}.lock")
    file = locked(lock)
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()


def locked(lock: Path) -> TextIO:
    """The lock file, open, locked and still of that name."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = lock.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            log.warning(
                "%s: waiting for %s, which is at work on it", lock, file.read() or "another"
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if os.fstat(file.fileno()).st_ino == lock.stat().st_ino:
                return file
        except FileNotFoundError:
            pass  # whoever held it has finished and removed it
        file.close()


def share(path: Path, other: Path) -> None:
    """The same file under another name too, or a copy where the file system has one name a file."""
    with replacing(other, result=False) as temporary:
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)


def save_array(array, path: Path) -> None:
    """A .npy file; numpy does not say why it could not write on, and only a full disk does that."""
    import numpy as np

    try:
        np.save(path, array)
    except OSError as problem:
        if problem.errno is not None:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from problem


def save_tensors(tensors: dict, path: Path, about: dict[str, str] | None = None) -> None:
    """A .safetensors file; OSError, as for any other file, if the disk is full."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, about)
    except SafetensorError as problem:
        if not (code := re.search(r"os error (\d+)", str(problem))):
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path)) from problem


def sweep(*paths: Path) -> None:
    """Remove what killed processes left half written of these files, which nobody else writes."""
    for path in paths:
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def whole(what: str) -> Iterator[None]:
    """Reading `what`, a file: UsageError if that fails in any way, for bytes may be any bytes."""
    try:
        yield
    except UsageError:
        raise
    except FileNotFoundError as problem:
        raise UsageError(f"{problem.filename} is missing: make it first") from problem
    except Exception as problem:
        said = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise UsageError(f"{what} is damaged ({said}): delete it and make it again") from problem


def read_arrays(path: Path, *names: str) -> dict[str, Any]:
    """The arrays `names` of an .npz file; UsageError if it is damaged or lacks one."""
    import numpy as np

    with whole(str(path)), np.load(path) as arrays:
        return {name: arrays[name] for name in names}
