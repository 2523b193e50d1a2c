"""The evaluations of a run, in a file that is appended: an evaluation is written once.

A checkpoint says how much of the file belongs to it, and a checksum of that. The rows of clients
are read from the file when somebody asks for them, because a large population has more of them
than fit in memory. The file has a line of JSON for each evaluation, and after it another one for
its clients, if it has any.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedgrid.runtime import files
from fedgrid.training.sealed import UnusableError

CLIENTS = "clients"


class ClientRows:
    """The rows of clients in one line of a file; they are read each time somebody iterates."""

    def __init__(self, path: Path, start: int):
        self.path, self.start = path, start

    def __iter__(self) -> Iterator[dict]:
        with self.path.open("rb") as file:
            file.seek(self.start)
            yield from json.loads(file.readline())


class History(list[dict]):
    """The evaluations in the order of rounds, and their file; a new one begins an empty file.

    In an evaluation with clients, `clients` gives their rows.
    """

    def __init__(self, path: Path):
        super().__init__()
        self.path, self.file = path, None
        self.length, self.digest = 0, hashlib.blake2b(digest_size=16)

    def append(self, row: dict) -> None:
        """Add an evaluation, and write it."""
        if clients := [*row.get(CLIENTS, ())]:
            self.write(json.dumps(row | {CLIENTS: len(clients)}))
            row = row | {CLIENTS: ClientRows(self.path, self.length)}
            self.write(json.dumps(clients))
        else:
            self.write(json.dumps(row))
        super().append(row)

    def write(self, line: str) -> None:
        """Append a line to the file."""
        file = self.file = self.file or self.opened()
        content = f"{line}\n".encode()
        left = memoryview(content)
        while left:  # a full disk takes a part of it first
            left = left[file.write(left) :]
        self.include(content)

    def include(self, content: bytes) -> None:
        """Let length and checksum include more of the file."""
        self.length += len(content)
        self.digest.update(content)

    def opened(self):
        """Return the file, open behind the evaluations; what follows them is left out.

        The file may have a second name (`copy_to`), so it is never made shorter, but replaced.
        """
        if not self.length:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
        elif self.path.stat().st_size > self.length:
            with files.replacing(self.path) as temporary, self.path.open("rb") as file:
                temporary.write_bytes(file.read(self.length))
        return self.path.open("ab", buffering=0)

    def save(self, path: Path) -> dict[str, str]:
        """Let the file be safe on disk, also under the name `path`; return what says how much."""
        if self.file:
            os.fsync(self.file.fileno())
        if path != self.path:
            path.unlink(missing_ok=True)
            if self.length:
                files.share(self.path, path)
        return {"length": str(self.length), "history": self.digest.hexdigest()}

    def close(self) -> None:
        """Close the file."""
        if self.file:
            self.file.close()
            self.file = None

    @classmethod
    def copied(cls, path: Path, rows: Iterable[dict]) -> "History":
        """Return a new history with the same evaluations as `rows`."""
        made = cls(path)
        for row in rows:
            made.append(row)
        return made

    @classmethod
    def read(cls, path: Path, about: dict[str, str]) -> "History":
        """Return the evaluations that a checkpoint has; UnusableError if the file is damaged."""
        made, wanted = cls(path), int(about["length"])
        try:
            if wanted:
                made.read_rows(wanted)
        except (OSError, ValueError) as problem:
            raise UnusableError(f"is damaged ({path}: {problem})") from problem
        if (made.length, made.digest.hexdigest()) != (wanted, about["history"]):
            raise UnusableError(f"is damaged (the checksum of {path} differs)")
        return made

    def read_rows(self, wanted: int) -> None:
        """Read the evaluations in the first `wanted` bytes of the file."""
        with self.path.open("rb") as file:
            while self.length < wanted and (line := file.readline()):
                row = json.loads(line)
                self.include(line)
                if row.get(CLIENTS):
                    row[CLIENTS] = ClientRows(self.path, self.length)
                    self.include(file.readline())
                super().append(row)
