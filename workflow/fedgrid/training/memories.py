"""What the clients of a run keep between rounds: on disk, and the last used ones in memory.

A method such as SCAFFOLD keeps a model for every client, so the memories of a large population fit
neither in main memory nor into one file that is written again and again. `Memories` behaves like a
dict from clients to their memories. Those used last are kept on the device. All others are in
segments: files that have a row for each of some clients, and never change. A newer row of a client
replaces the older ones. A checkpoint names its segments, and a segment is deleted when neither the
last checkpoint nor the one before names it. So a checkpoint writes what has changed, and a kill at
any moment leaves the segments of the last checkpoint as they were.

Rows that were replaced take space until their segment is written anew: when more than half of its
rows are replaced, or when there are many small segments. So the disk holds at most twice what the
clients keep, and what was written since the last checkpoint.
"""

import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from fedgrid.method import Memory
from fedgrid.runtime import files
from fedgrid.study.jobs import KEPT_MB
from fedgrid.training.sealed import UnusableError, flatten, read, unflatten, write

IN_MEMORY = KEPT_MB * 1_000_000  # bytes of memories that stay on the device
SEGMENT = 128_000_000  # bytes of a segment, unless one client's memory is larger
MOST_SMALL = 16  # segments of less than half of that
CLIENTS = "clients"  # the tensor of a segment that has its clients; others begin with MEMORY
MEMORY = "memory/"
NAME = "{:06d}.safetensors"  # of a segment: a number that is used once
NOWHERE = -1  # in the table of segments: the client has no row


@dataclass(frozen=True)
class Segment:
    """A file with a row for each of some clients, whose memories have one form."""

    path: Path
    clients: np.ndarray  # (rows,) int64
    checksum: str

    @cached_property
    def file(self) -> Any:
        """The open file, mapped into memory."""
        return safe_open(self.path, "pt").__enter__()

    @cached_property
    def names(self) -> list[str]:
        """The names of its tensors (rows, ...)."""
        return [name for name in self.file.keys() if name != CLIENTS]  # noqa: SIM118

    def row(self, number: int, device: Any) -> Memory:
        """Return the memory in a row."""
        slices = {name.removeprefix(MEMORY): self.file.get_slice(name) for name in self.names}
        return unflatten({n: of[number : number + 1][0].to(device) for n, of in slices.items()})

    @cached_property
    def row_bytes(self) -> float:
        """The bytes of a client's row."""
        return self.path.stat().st_size / len(self.clients)


class Memories(MutableMapping[int, Memory]):
    """The memories of a run's clients by their numbers; a new one is empty, and so is its folder.

    `limit` is the number of bytes that stay on the device. The folder is made with the first
    segment.
    """

    def __init__(self, folder: Path, device: Any = "cpu", limit: float = IN_MEMORY):
        self.folder, self.device, self.limit = Path(folder), device, limit
        self.used: OrderedDict[int, Memory] = OrderedDict()  # on the device; used last comes last
        self.bytes = 0  # of these
        self.unsaved: dict[int, None] = {}  # clients of these whose memory has no row yet
        self.segments: dict[int, Segment] = {}  # by number; newer ones have higher numbers
        self.last = 0  # number of the last segment
        self.table = np.full((2, 0), NOWHERE)  # (2, clients) segment and row of each client
        self.named: list[set[str]] = [set(), set()]  # files of the last checkpoints, newest first

    # -- as a dict ---------------------------------------------------------------------------------

    def __getitem__(self, client: int) -> Memory:
        if client in self.used:
            self.used.move_to_end(client)
        else:
            self.use(client, self.read(client))
        return self.used[client]

    def __setitem__(self, client: int, memory: Memory) -> None:
        self.forget(client)
        self.unsaved[client] = None
        self.use(client, memory)

    def __delitem__(self, client: int) -> None:
        raise TypeError("what a client keeps can be replaced, but not deleted")

    def __contains__(self, client: object) -> bool:
        return client in self.unsaved or self.is_saved(client)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*np.flatnonzero(self.table[0] != NOWHERE).tolist(), *self.unsaved}))

    def __len__(self) -> int:
        saved = int((self.table[0] != NOWHERE).sum())
        return saved + sum(not self.is_saved(client) for client in self.unsaved)

    def is_saved(self, client: Any) -> bool:
        """Whether a client has a row, which may be an older one."""
        return client < self.table.shape[1] and bool(self.table[0, client] != NOWHERE)

    def read(self, client: int) -> Memory:
        """Return the memory in a client's row; KeyError if it has none."""
        if not self.is_saved(client):
            raise KeyError(client)
        segment, row = self.table[:, client].tolist()
        return self.segments[segment].row(row, self.device)

    # -- on the device -----------------------------------------------------------------------------

    def use(self, client: int, memory: Memory) -> None:
        """Put a memory on the device; if there are too many, those used first leave it."""
        self.used[client] = memory
        self.bytes += size(memory)
        if self.bytes > self.limit:
            self.save_rows()
            while len(self.used) > 1 and self.bytes > self.limit / 2:
                self.forget(next(iter(self.used)))

    def forget(self, client: int) -> None:
        """Take a memory from the device, if it is there."""
        if client in self.used:
            self.bytes -= size(self.used.pop(client))

    # -- on disk -----------------------------------------------------------------------------------

    def save(self, folder: Path) -> dict[str, str]:
        """Write all that is not on disk; return the checksums of the segments by their names.

        Another folder than the store's own gets links to all segments.
        """
        self.save_rows()
        self.rewrite()
        if folder != self.folder:
            self.link(folder)
        return {segment.path.name: segment.checksum for segment in self.segments.values()}

    def save_rows(self) -> None:
        """Write the memories that are not on disk."""
        self.write((client, self.used[client]) for client in self.unsaved)
        self.unsaved = {}

    def rewrite(self) -> None:
        """Write the rows of segments anew that are mostly replaced, or small and many."""
        current = np.bincount(self.table[0][self.table[0] != NOWHERE])
        rows = {n: int(current[n]) if n < len(current) else 0 for n in self.segments}
        small = [n for n, of in self.segments.items() if rows[n] * of.row_bytes < SEGMENT / 2]
        chosen = [n for n, of in self.segments.items() if 2 * rows[n] < len(of.clients)]
        chosen += small if len(small) > MOST_SMALL else []
        moved = np.flatnonzero(np.isin(self.table[0], chosen)).tolist()
        self.write((client, self.read(client)) for client in moved)
        for number in {*chosen}:
            del self.segments[number]

    def write(self, rows: Iterable[tuple[int, Memory]]) -> None:
        """Write new rows of clients, in segments of one form and of limited size each."""
        waiting: dict[tuple, dict[int, dict[str, Tensor]]] = {}
        held = 0
        for client, memory in rows:
            flat = flatten(memory)
            form = tuple((name, of.dtype, of.shape) for name, of in flat.items())
            waiting.setdefault(form, {})[client] = flat
            held += size(memory)
            if held > SEGMENT:
                self.write_segments(waiting.values())
                waiting, held = {}, 0
        self.write_segments(waiting.values())

    def write_segments(self, groups: Iterable[dict[int, dict[str, Tensor]]]) -> None:
        """Write a segment for each group of clients, whose memories have one form."""
        for group in groups:
            self.last += 1
            path, first = self.folder / NAME.format(self.last), next(iter(group.values()))
            clients = np.array([*group], np.int64)
            tensors = {f"{MEMORY}{n}": torch.stack([of[n] for of in group.values()]) for n in first}
            with files.replacing(path) as temporary:
                tensors[CLIENTS] = torch.from_numpy(clients)
                checksum = write(temporary, tensors, {})
            self.add(self.last, Segment(path, clients, checksum))

    def add(self, number: int, segment: Segment) -> None:
        """Take a segment's rows as the newest ones of its clients."""
        self.segments[number] = segment
        more = int(segment.clients.max()) + 1 - self.table.shape[1]
        if more > 0:
            more = max(more, self.table.shape[1])  # twice as many: adding clients stays linear
            self.table = np.pad(self.table, ((0, 0), (0, more)), constant_values=NOWHERE)
        self.table[0, segment.clients] = number
        self.table[1, segment.clients] = np.arange(len(segment.clients))

    def sweep(self) -> None:
        """Delete the segments that neither the last checkpoint nor the one before names.

        It is called after each checkpoint.
        """
        self.named = [{of.path.name for of in self.segments.values()}, self.named[0]]
        for path in [*self.folder.glob("*.safetensors")]:
            if path.name not in self.named[0] | self.named[1]:
                path.unlink()

    def link(self, folder: Path) -> None:
        """Give all segments a second name in another folder, which has no other files then."""
        shutil.rmtree(folder, ignore_errors=True)
        for segment in self.segments.values():
            files.share(segment.path, folder / segment.path.name)

    def moved(self, folder: Path) -> "Memories":
        """Return the same memories in another folder, in which they can be changed."""
        return self.open(folder, self.save(folder), self.device, self.limit)

    @classmethod
    def open(
        cls, folder: Path, checksums: dict[str, str], device: Any, limit: float = IN_MEMORY
    ) -> "Memories":
        """Return the memories in a checkpoint's segments; UnusableError if one is damaged."""
        made = cls(folder, device, limit)
        for name, checksum in sorted(checksums.items(), key=lambda item: number_of(item[0])):
            path = made.folder / name
            tensors, about = read(path)
            if about.get("checksum") != checksum:
                raise UnusableError(f"is damaged ({path} is another file)")
            made.add(number_of(name), Segment(path, tensors[CLIENTS].numpy().copy(), checksum))
        made.last = max((number_of(path) for path in made.folder.glob("*.safetensors")), default=0)
        made.named[0] = {*checksums}
        return made

    def size(self) -> int:
        """Return the bytes of all memories."""
        rows = np.bincount(self.table[0][self.table[0] != NOWHERE], minlength=1)
        saved = sum(rows[n] * of.row_bytes for n, of in self.segments.items() if n < len(rows))
        return int(saved) + sum(size(self.used[client]) for client in self.unsaved)


def number_of(path: Path | str) -> int:
    """Return the number of a segment's file."""
    return int(Path(path).stem)


def size(memory: Memory) -> int:
    """Return the bytes of a memory's tensors."""
    return sum(size(v) if isinstance(v, dict) else v.nbytes for v in memory.values())
