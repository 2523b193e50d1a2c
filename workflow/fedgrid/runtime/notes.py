"""What is slow to find is noted in the user's folder of caches: each process then reads it.

A note holds lines `key value`, for one state of what the values depend on: its name says which.
Processes may add lines at the same time. If nothing can be written there, nothing is noted.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CACHE = "XDG_CACHE_HOME"  # the variable that names the folder of caches; without it ~/.cache
KEPT = 20  # notes of a kind; older ones are deleted


def place_note(name: str) -> Path:
    return Path(os.environ.get(CACHE) or Path.home() / ".cache") / "fedgrid" / name


def find_noted(path: Path, key: str, form: str, find: Callable[[], str]) -> str:
    """Return the value of a key in a note; else what is found, which is added.

    A value of another form is damaged, and does not count.
    """
    value = ""
    with suppress(OSError, ValueError):
        lines = path.read_text(encoding="utf-8").splitlines()
        noted = dict(line.split(" ", 1) for line in lines if " " in line)  # later lines count
        value = noted.get(key, "")
    if not re.fullmatch(form, value):
        add_to_note(path, key, value := find())
    return value


def add_to_note(path: Path, key: str, value: str) -> None:
    """Add a value to a note. A new note replaces the oldest of its kind, the name before `-`."""
    with suppress(OSError):
        is_new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{key} {value}\n")
        if is_new:
            kind = path.parent.glob(f"{path.name.partition('-')[0]}-*")
            for old in sorted(kind, key=lambda one: one.stat().st_mtime)[:-KEPT]:
                old.unlink(missing_ok=True)
