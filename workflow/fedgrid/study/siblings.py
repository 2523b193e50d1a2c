"""Find the same work of other names by its key: the notes in `results/checkpoints/by_key/`.

A training notes its keys (`command.work_key`) before it begins, so that the cost of finding a run
does not grow with the number of runs. A note is a file: its name begins with the key, and its text
is the path of the run's checkpoint. A note promises nothing. Who follows it compares the key in
what is there, so a stale note does no harm. Without its note a run is only found under its own
name, and the same work under another name is trained again.
"""

import os
from hashlib import sha256
from pathlib import Path

from fedgrid.runtime import files

FOLDER = "by_key"  # in the folder of checkpoints, with a folder for the first digits of the keys
DIGITS = 2


def note(home: Path | None, key: str, checkpoint: Path) -> None:
    """Note that the work of a key is done with a checkpoint, if it is in the folder `home`."""
    path = os.path.relpath(checkpoint, home) if home else os.pardir
    if home is None or path.startswith(os.pardir):
        return
    note = folder_of(home, key) / f"{key}-{sha256(os.fsencode(path)).hexdigest()[:12]}"
    if not note.exists():
        with files.replacing(note) as temporary:
            temporary.write_bytes(os.fsencode(path))


def find(home: Path | None, key: str, but: Path | None = None) -> list[Path]:
    """Return the checkpoints that are noted for a key, without the checkpoint `but`."""
    notes = sorted(folder_of(home, key).glob(f"{key}-*")) if home else []
    found = [home / os.fsdecode(note.read_bytes()) for note in notes]
    own = but and os.path.abspath(but)
    return [path for path in found if os.path.abspath(path) != own]


def folder_of(home: Path, key: str) -> Path:
    """Return the folder of the notes of a key."""
    return home / FOLDER / key[:DIGITS]
