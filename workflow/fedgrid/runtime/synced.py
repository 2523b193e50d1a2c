"""Checkpoints on a node that may be lost: copies in another place, such as a mounted volume.

`checkpoints:` in config.yaml names the place: a folder that all nodes see, or an address that
`fsspec` knows, such as s3://bucket/checkpoints (with the package s3fs). A job works on its own
disk. Before it begins, the copy of its checkpoint is brought, unless the disk has one; while it
works, each new checkpoint is copied. A copy is one archive, which is replaced as a whole, so that
files of two checkpoints are never mixed.
"""

import glob
import logging
import os
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedgrid.runtime.names import UsageError

VARIABLE = "FEDGRID_CHECKPOINTS"
HOME = "checkpoints"  # the folder in results/ of whose files there are copies
EVERY = 2.0  # seconds between two looks for a new checkpoint
SHARE = 0.1  # of the time that copies may take
PAUSE = 60.0  # seconds after a copy that failed
PASSING = (".lock", ".tmp", ".tar")  # ends of names that only a running process has

log = logging.getLogger(__name__)


@contextmanager
def synced(path: Path) -> Iterator[None]:
    """Bring what was saved under a checkpoint's path, and copy what is saved there meanwhile."""
    if not (place := os.environ.get(VARIABLE, "")):
        yield
        return
    copy = Copy(place, path)
    try:
        copy.bring()
    except Exception as problem:  # each kind of place has errors of its own
        raise UsageError(f"checkpoints: {place} cannot be read: {problem}") from problem
    ended = threading.Event()
    thread = threading.Thread(target=copy.follow, args=[ended], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if copy.files() != copy.taken:
            copy.take()


class Copy:
    """The copy of one checkpoint: of a file or folder, and of those whose names go on after a dot.

    `path` is the file of the state, which is replaced last, or a folder without such a file.
    """

    def __init__(self, place: str, path: Path):
        self.path, self.taken = path, dict[str, int]()
        parts = path.absolute().parts
        inside = parts[len(parts) - parts[::-1].index(HOME) :] if HOME in parts else parts[1:]
        self.system, home = find_place(place)
        self.there = "/".join([home.rstrip("/"), *inside[:-1], f"copy-of-{path.name}.tar"])
        self.here = path.parent / f".copy-of-{path.name}.{os.getpid()}.tar"

    def files(self) -> dict[str, int]:
        """Return the files of the checkpoint, relative to its folder, with their times."""
        folder, found = self.path.parent, {}
        tops = [self.path, *folder.glob(f"{glob.escape(self.path.name)}.*")]
        inside = (
            Path(at) / name for top in tops for at, _, names in os.walk(top) for name in names
        )
        for file in [*tops, *inside]:
            name = file.relative_to(folder)
            if not any(part.endswith(PASSING) for part in name.parts):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    if file.is_file():
                        found[name.as_posix()] = file.stat().st_mtime_ns
        return found

    def bring(self) -> None:
        """Unpack the copy, if there is one, and this disk has nothing of the checkpoint."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left in self.path.parent.glob(f".copy-of-{glob.escape(self.path.name)}.*.tar"):
            left.unlink()  # by a job that was killed
        self.system.invalidate_cache()
        if not self.files() and self.system.exists(self.there):
            self.system.get_file(self.there, str(self.here))
            with tarfile.open(self.here) as archive:
                archive.extractall(self.path.parent, filter="data")
            self.here.unlink()
            log.info("%s was brought from %s", self.path, self.there)
        self.taken = self.files()

    def follow(self, ended: threading.Event) -> None:
        wait = EVERY
        while not ended.wait(wait):
            began = time.monotonic()
            took = self.take() if self.is_new() else True
            wait = max(EVERY, (time.monotonic() - began) / SHARE) if took else PAUSE

    def is_new(self) -> bool:
        """Whether there is a checkpoint that was not copied: another state, or more in a folder."""
        files, state = self.files(), self.path.name
        if self.path.is_dir():
            return files != self.taken
        return state in files and files[state] != self.taken.get(state)

    def take(self) -> bool:
        """Copy the checkpoint, if it stays the same meanwhile; return False if that failed."""
        try:
            if (files := self.files()) and self.pack(files):
                self.store()
                self.taken = files
        except Exception as problem:  # the run goes on, and the next copy may succeed
            log.warning("no copy of %s in %s: %s", self.path, self.there, problem)
            return False
        finally:
            self.here.unlink(missing_ok=True)
        return True

    def pack(self, files: dict[str, int]) -> bool:
        """Write the archive; return whether it is of one checkpoint, and not of two."""
        try:
            with tarfile.open(self.here, "w") as archive:
                for name in files:
                    archive.add(self.path.parent / name, name)
        except FileNotFoundError:
            return False
        return self.files().get(self.path.name) == files.get(self.path.name)

    def store(self) -> None:
        self.system.makedirs(self.there.rpartition("/")[0], exist_ok=True)
        self.system.put_file(str(self.here), f"{self.there}.new")
        self.system.mv(f"{self.there}.new", self.there)


def find_place(place: str) -> tuple[Any, str]:
    """Return fsspec's file system and path of a place; UsageError if it knows none."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as problem:
        raise UsageError(f"checkpoints: {place} is no place for checkpoints: {problem}") from None
