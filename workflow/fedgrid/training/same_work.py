"""Find the runs of other names that are the same work, without reading all runs.

A run writes a note before it begins: a small file in the folder of its key, with the path of its
checkpoint below `checkpoints/runs`. A run has two keys: one of all its settings, and one of those
that its last state depends on (`extension.py`). A note of a run that is not finished, or is gone,
does no harm, because whoever follows it reads the key of the run itself. If there are no notes at
all, they are made from the runs that are there.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from fedgrid.runtime import files
from fedgrid.runtime.hashes import hash_text

RUNS, NOTES = "checkpoints/runs", "checkpoints/by_key"  # below the folder of results
FINISHED, ENDED = ".finished", ".ended"  # beside a checkpoint: a finished run's results, last state
EVERY_RUN = "*/*/*/*/*.safetensors"  # below RUNS


def find(results: Path | None, key: str, own: Path) -> list[Path]:
    """Return the checkpoints of the runs with this key but one's own; none without results."""
    if results is None:
        return []
    make_notes(results)
    notes = sorted((results / NOTES / key).glob("*.note"))
    found = (results / RUNS / note.read_text(encoding="utf-8") for note in notes)
    return [path for path in found if path != own]


def note(results: Path | None, key: str, checkpoint: Path) -> None:
    """Note that a run has this key, if its checkpoint is below the folder of results."""
    if results is not None and checkpoint.is_relative_to(results / RUNS):
        make_notes(results)
        write_note(results / NOTES, key, str(checkpoint.relative_to(results / RUNS)))


def write_note(folder: Path, key: str, run: str) -> None:
    """Write the note of a run, unless it is there."""
    path = folder / key / f"{hash_text(run, 16)}.note"
    if not path.exists():
        with files.replacing(path, sync=False) as temporary:
            temporary.write_text(run, encoding="utf-8")


def make_notes(results: Path) -> None:
    """Make the notes of all runs, unless there are notes."""
    folder = results / NOTES
    if folder.exists():
        return
    with files.alone(folder):
        if folder.exists():
            return
        temporary = folder.with_name(f".{folder.name}.tmp")
        temporary.mkdir(parents=True, exist_ok=True)
        for key, run in keys_of_runs(results / RUNS):
            write_note(temporary, key, run)
        temporary.rename(folder)


def keys_of_runs(runs: Path) -> Iterator[tuple[str, str]]:
    """Yield the keys of all finished runs, each with the path of the checkpoint below `runs`."""
    for end, read in ((FINISHED, key_of_results), (ENDED, key_of_state)):
        for path in runs.glob(f"{EVERY_RUN}{end}"):
            if key := read(path):
                yield key, str(path.relative_to(runs)).removesuffix(end)


def key_of_results(folder: Path) -> str | None:
    """Return the key of a finished run; None if its summary is missing or damaged."""
    try:
        return json.loads((folder / "summary.json").read_text(encoding="utf-8"))["key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def key_of_state(path: Path) -> str | None:
    """Return the key of a last state; None if it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("key")
    except (SafetensorError, OSError):
        return None
