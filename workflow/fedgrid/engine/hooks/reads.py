"""Which entries of memories a method's function reads: they travel if the other side made them."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch.utils._pytree import register_pytree_node

from fedgrid.method import Memory

MEMORIES = ("shared", "memory", "before")  # fields of what a function is given


class Noting(dict[str, Any]):
    """A memory that notes the names of entries that are read from it."""

    def __init__(self, memory: Memory, read: set[str]):
        super().__init__(memory)
        self.read = read

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry, or the default."""
        self.read.add(name)
        return super().get(name, default)

    def keys(self) -> Any:
        """Return all names."""
        self.read.update(super().keys())
        return super().keys()

    def values(self) -> Any:
        """Return all entries."""
        self.read.update(super().keys())
        return super().values()

    def items(self) -> Any:
        """Return all entries with their names."""
        self.read.update(super().keys())
        return super().items()


register_pytree_node(
    Noting,
    lambda noting: ([*noting.values()], (noting.read, [*dict.keys(noting)])),
    lambda parts, about: dict(zip(about[1], parts, strict=True)),
)


def noted(argument: Any, read: dict[str, set[str]]) -> Any:
    """Return a record that notes in `read`, by field, what is read of its memories."""
    if not is_dataclass(argument):
        return argument
    changed = {
        field.name: note(getattr(argument, field.name), field.name, read)
        for field in fields(argument)
        if field.name in (*MEMORIES, "cohort")
    }
    return replace(argument, **changed) if changed else argument  # type: ignore[type-var]


def note(value: Any, field: str, read: dict[str, set[str]]) -> Any:
    """Return a memory, or one for each client, that notes what is read of it."""
    if field == "cohort":
        return noted(value, read)
    names = read.setdefault(field, set())
    if isinstance(value, list):
        return [Noting(one, names) for one in value]
    return Noting(value, names) if isinstance(value, dict) else value
