"""Write files that appear only when they are complete; lock work that must not run twice."""

import glob
import hashlib
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from fedgrid.runtime.names import UsageError, is_refusal

log = logging.getLogger(__name__)


@contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces it when all is written and, if asked, synced.

    It has its own folder, because writers may make temporary files beside it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    folder.mkdir(exist_ok=True)
    temporary = folder / path.name
    try:
        yield temporary
        temporary.chmod(folder.stat().st_mode & 0o666)  # safetensors makes private files
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def packed(path: Path) -> Iterator[Path]:
    """A folder to write into: `path`, or for a path that ends with .tar what it then contains."""
    if path.suffix != ".tar":
        yield path
        return
    folder = path.with_suffix("")
    yield folder
    shutil.make_archive(str(folder), "tar", folder)
    shutil.rmtree(folder)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The folder `path`, or for an archive a temporary folder with what it contains."""
    if path.suffix != ".tar":
        yield path
        return
    with TemporaryDirectory(dir=path.parent) as folder:
        shutil.unpack_archive(path, folder, filter="data")
        yield Path(folder)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock of this path, then hold it.

    The kernel releases the lock when the process ends. It works on all machines that share a file
    system with locks. `<path>.lock` names the holder, and is removed at the end.
    """
    file = path.with_name(f"{path.name}.lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.warning("%s: waiting for %s, which is working on it", file, holder(file))
        lock.acquire()
    try:
        with suppress(OSError):  # Windows does not allow writing to a locked file
            said = f"process {os.getpid()} on {socket.gethostname()}"
            file.write_text(said, encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            file.unlink()  # a waiting process notices this and locks a new file
        lock.release()


def holder(file: Path) -> str:
    """The process that holds a lock, as its file names it."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8") or "another process"
    return "another process"


def share(path: Path, other: Path) -> None:
    """Give a file a second name (a hard link), or copy it if the file system has no links."""
    with replacing(other) as temporary:
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)


def sweep(*paths: Path) -> None:
    """Remove incomplete copies of these files that killed processes left behind."""
    for path in paths:
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def whole(what: str) -> Iterator[None]:
    """Turn every error while the file `what` is read into a UsageError that names the file.

    A damaged file can make its reader fail in any way. Errors of the machine stay as they are: the
    file may be good if memory is full, or if it may not be opened.
    """
    try:
        yield
    except UsageError:
        raise
    except MemoryError as problem:
        raise MemoryError(f"{what}: {problem}") from problem
    except FileNotFoundError as problem:
        raise UsageError(f"{problem.filename} is missing: make it first") from problem
    except Exception as problem:
        if is_refusal(problem):
            raise
        said = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise UsageError(f"{what} is damaged ({said}): delete it and make it again") from problem


def checksum(file: Path) -> str:
    """Return the sha256 of a file, or of the `meta.json` of a folder."""
    with (file / "meta.json" if file.is_dir() else file).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
