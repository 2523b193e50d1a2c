"""Checkpoints on a node that may be lost: copies in another place, such as a mounted volume.

`checkpoints:` in config.yaml names the place: a folder that all nodes see, or an address that
`fsspec` knows, such as s3://bucket/checkpoints (with the package s3fs). A job works on its own
disk. Before it begins, the copies of its checkpoint are brought; while it works, each new
checkpoint is copied. A place holds whole checkpoints only: the file of the state, which says how
much of the other files belongs to it, is copied last.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedgrid.runtime.names import UsageError

VARIABLE = "FEDGRID_CHECKPOINTS"
HOME = "checkpoints"  # the folder in results/ of whose files there are copies
EVERY = 2.0  # seconds between two looks for a new checkpoint
PASSING = (".lock", ".tmp")  # ends of names of files that only a running process has

log = logging.getLogger(__name__)


@contextmanager
def synced(path: Path) -> Iterator[None]:
    """Bring what was saved under a checkpoint's path, and copy what is saved there meanwhile."""
    if not (place := os.environ.get(VARIABLE, "")):
        yield
        return
    copies = Copies(place, path)
    try:
        copies.bring()
    except Exception as problem:  # each kind of place has errors of its own
        raise UsageError(f"checkpoints: {place} cannot be read: {problem}") from problem
    ended = threading.Event()
    thread = threading.Thread(target=copies.follow, args=[ended], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        copies.take()


class Copies:
    """The copies of one checkpoint: a file or folder, and those whose names go on after a dot."""

    def __init__(self, place: str, path: Path):
        self.path, self.taken = path, dict[str, int]()
        parts = path.absolute().parts
        inside = parts[len(parts) - parts[::-1].index(HOME) :] if HOME in parts else [path.name]
        self.files, home = find_place(place)
        self.place = "/".join([home.rstrip("/"), *inside[:-1]])

    def bring(self) -> None:
        """Copy to this disk what the place has, if this disk has nothing of the checkpoint."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for name in [] if self.times() else self.names():
            here = self.path.parent / name
            here.parent.mkdir(parents=True, exist_ok=True)
            self.files.get_file(f"{self.place}/{name}", str(here))
            log.info("%s was brought from %s", here, self.place)
        self.taken = self.times()

    def is_part(self, name: str) -> bool:
        """Whether a path, relative to the folder of the checkpoint, is of this one."""
        top = name.partition("/")[0]
        return top == self.path.name or top.startswith(f"{self.path.name}.")

    def names(self) -> list[str]:
        """Return the names of the copies, relative to the folder of the checkpoint."""
        self.files.invalidate_cache()
        with suppress(FileNotFoundError):
            start = len(self.place) + 1
            return sorted(filter(self.is_part, (f[start:] for f in self.files.find(self.place))))
        return []

    def times(self) -> dict[str, int]:
        """Return the files of the checkpoint on this disk with their times, the state last."""
        found, folder = {}, self.path.parent
        tops = [one for one in folder.iterdir() if self.is_part(one.name)]
        every = [file for top in tops for file in (top.rglob("*") if top.is_dir() else [top])]
        for file in sorted(every, key=lambda one: (one == self.path, one)):
            with suppress(FileNotFoundError):
                if file.is_file() and not file.name.endswith(PASSING):
                    found[file.relative_to(folder).as_posix()] = file.stat().st_mtime_ns
        return found

    def follow(self, ended: threading.Event) -> None:
        while not ended.wait(EVERY):
            self.take()

    def take(self) -> None:
        """Copy what is new to the place, and remove there what is gone here.

        Links keep what is replaced meanwhile. If the state itself is, nothing is copied, since the
        other files may belong to the next one: that is copied at the next look.
        """
        if (times := self.times()) == self.taken:
            return
        with TemporaryDirectory(dir=self.path.parent, prefix=".copied-") as folder:
            new = [name for name, time in times.items() if self.taken.get(name) != time]
            for name in new:
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    os.link(self.path.parent / name, Path(folder) / name)
            if self.times().get(self.path.name) == times.get(self.path.name):
                try:
                    self.store(folder, new, times)
                except Exception as problem:  # the run goes on, and the next copy may succeed
                    log.warning("no copy of %s in %s: %s", self.path, self.place, problem)

    def store(self, folder: str, new: list[str], times: dict[str, int]) -> None:
        for name in (name for name in new if (Path(folder) / name).exists()):
            there = f"{self.place}/{name}"
            self.files.makedirs(there.rpartition("/")[0], exist_ok=True)
            self.files.put_file(f"{folder}/{name}", f"{there}.tmp")
            self.files.mv(f"{there}.tmp", there)
        for name in {*self.names()} - times.keys():
            self.files.rm_file(f"{self.place}/{name}")
        self.taken = times


def find_place(place: str) -> tuple[Any, str]:
    """Return fsspec's file system and path of a place; UsageError if it knows none."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as problem:
        raise UsageError(f"checkpoints: {place} is no place for checkpoints: {problem}") from None
