"""Files that appear under their name only when they are whole."""

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedgrid.names import UsageError

CHANGES_RESULTS = False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; what is written there is synced and takes its place."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: Path, *names: str) -> dict[str, Any]:
    """The arrays `names` of an .npz file; UsageError if it is damaged or lacks one."""
    import numpy as np

    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
        raise UsageError(
            f"{path} is damaged ({type(problem).__name__}): delete it and make it again"
        ) from problem
