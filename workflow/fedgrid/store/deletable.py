"""Find the files below results/ that can be deleted, by their kind, and delete them.

A file has a kind only if its whole path is one that fedgrid or Snakemake writes. All other files
are not fedgrid's, and stay.
"""

import base64
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.store.wanted import Wanted
from fedgrid.study.paths import RUN

TEMPORARY = re.compile(r"\..+\.\d+\.tmp")  # `files.replacing`
OLD = 3600  # seconds after which no process writes a temporary file any more
CHECKPOINT = ("", ".before", ".history", ".clients", ".forced")  # ends of unfinished runs' files
STATE = (".ended", ".ended.before", ".ended.history", ".ended.clients")  # of finished runs
FINISHED = ".finished"
INPUT_ENDS = {  # of the files of an input, by its stage
    "partition": r"\.npz|\.clients\.csv",
    "pretrain": r"/(client\d+\.safetensors|seconds\.txt)",
    "saliency": r"\.(npz|csv|json)",
    "latents": r"\.npz",
}
NOTE, GRID = re.compile(r"[0-9a-f]+\.note"), re.compile(r"[0-9a-f]{16}\.txt")
SEGMENT = re.compile(r"\d{6,}\.safetensors")  # of clients' memories
LOCK = re.compile(r"by_key\.lock|(runs|pretrain)/.+/seed\d+(\.safetensors)?\.lock")
# Of torch's compiler, and the locks of records.
COMPILED = re.compile(r"(aotautograd|fxgraph|locks|triton|[a-z0-9]{2})/|[0-9a-f]{16}\.lock$")
PRETRAINED = re.compile(r"client\d+\.safetensors|run\.txt|seconds\.txt")


class Kinds:
    """Finds the kind of files in a folder of results; `wanted` is what grids need."""

    def __init__(self, results: Path, wanted: Wanted):
        self.results, self.wanted = results, wanted
        self.of_run = {*source.literal("training.results", "FILES")}
        self.states = wanted.states | {*map(self.find_trained, wanted.states)}
        self.running = source.literal("runtime.watch.trackers.csv", "RUNNING")

    def find_kind(self, parts: tuple[str, ...]) -> str:
        """Return the kind of a file by the parts of its path below results/; "" if it has none."""
        by_folder: dict[str, Callable] = {
            "runs": self.find_in_runs,
            "interpolation": lambda parts: self.find_unneeded(find_run(parts[1:], ".csv")),
            "checkpoints": self.find_in_checkpoints,
            **dict.fromkeys(INPUT_ENDS, self.find_in_inputs),
            **dict.fromkeys(("logs", "benchmarks"), self.find_in_logs),
            "grids": lambda parts: "notes" if GRID.fullmatch("/".join(parts[1:])) else "",
            "compiled": lambda parts: "compiled" if COMPILED.match("/".join(parts[1:])) else "",
            **dict.fromkeys(("data", "weights", "studies"), lambda parts: ""),
        }
        if parts[0] not in by_folder:
            return ""
        if any(map(TEMPORARY.fullmatch, parts)):
            seconds = time.time() - self.results.joinpath(*parts).stat().st_mtime
            return "leftovers" if seconds > OLD else ""
        return by_folder[parts[0]](parts)

    def is_there(self, run: str) -> bool:
        """Whether a run is finished and its results exist."""
        return (self.results / "runs" / run / "metrics.csv").exists()

    def find_trained(self, run: str) -> str:
        """Return the run whose training a run shares; the last state has that run's name."""
        try:
            summary = (self.results / "runs" / run / "summary.json").read_text(encoding="utf-8")
            return RUN.format(**json.loads(summary)["trained_as"])
        except (OSError, ValueError, KeyError, TypeError):
            return run

    def find_in_runs(self, parts: tuple[str, ...]) -> str:
        """Return the kind of a file of a run."""
        *names, file = parts[1:]
        if not is_run(names):
            return ""
        run = "/".join(names)
        if file == self.running:
            return "" if self.is_there(run) else "checkpoints"
        is_own = strip_record(file) in self.of_run
        return self.find_unneeded(run) if is_own and self.is_there(run) else ""

    def find_unneeded(self, run: str) -> str:
        """Return the kind of results that no grid needs; "" for other runs, and for no run."""
        is_needed = not run or run in self.wanted.runs or run in self.states
        return "" if is_needed else f"runs/{run.partition('/')[0]}"

    def find_in_checkpoints(self, parts: tuple[str, ...]) -> str:
        """Return the kind of a file beside a checkpoint, of a note or of a lock."""
        if LOCK.fullmatch("/".join(parts[1:])):
            return "leftovers" if is_free(self.results.joinpath(*parts)) else ""
        if parts[1] == "by_key" and len(parts) == 4 and NOTE.fullmatch(parts[3]):
            return "notes" if self.is_stale(parts) else ""
        if parts[1] == "pretrain" and len(parts) == 7 and PRETRAINED.fullmatch(parts[6]):
            return "checkpoints"
        return self.find_beside_checkpoint(parts[2:]) if parts[1] == "runs" else ""

    def find_beside_checkpoint(self, parts: tuple[str, ...]) -> str:
        """Return the kind of a file beside a run's checkpoint."""
        match = re.fullmatch(r"(seed\d+)\.safetensors(.*)", parts[4] if len(parts) > 4 else "")
        if not match or len(parts) > 6:
            return ""
        run, end = "/".join((*parts[:4], match[1])), match[2]
        if not self.is_known(end, parts[5:]):
            return ""
        is_other = self.is_there(run) and self.find_unneeded(run)
        return is_other or self.find_by_ending(run, end)

    def is_known(self, end: str, inside: tuple[str, ...]) -> bool:
        """Whether fedgrid writes a file with this ending, or a folder with this file inside."""
        if end == FINISHED:
            return bool(inside) and inside[0] in self.of_run
        if end in (*CHECKPOINT, *STATE) and end.endswith(".clients"):
            return bool(inside) and bool(SEGMENT.fullmatch(inside[0]))
        return end in (*CHECKPOINT, *STATE) and not inside

    def find_by_ending(self, run: str, end: str) -> str:
        """Return the kind of a file beside a checkpoint by its ending."""
        if end == FINISHED:
            return "" if self.is_there(run) else "copies"
        if end in STATE:
            return "" if run in self.states else "states"
        return "checkpoints"

    def is_stale(self, parts: tuple[str, ...]) -> bool:
        """Whether a note names a run of which no checkpoint, state or copy is left."""
        try:
            name = self.results.joinpath(*parts).read_text(encoding="utf-8")
            checkpoint = self.results / "checkpoints/runs" / name
            beside = (
                checkpoint.with_name(checkpoint.name + end) for end in ("", ".ended", FINISHED)
            )
            return not (name and any(path.exists() for path in beside))
        except ValueError:  # no text, or no path
            return True

    def find_in_inputs(self, parts: tuple[str, ...], ends: str = "") -> str:
        """Return the kind of a file of a run's input, or of a file with one of these endings."""
        path = "/".join((*parts[:-1], strip_record(parts[-1])))
        form = rf"(\w+(?:/[^/]+){{3}}/seed\d+)({ends or INPUT_ENDS[parts[0]]})"
        match = re.fullmatch(form, path)
        return "inputs" if match and match[1] not in self.wanted.inputs else ""

    def find_in_logs(self, parts: tuple[str, ...]) -> str:
        """Return the kind of a log, or of the time of a job."""
        if len(parts) > 1 and parts[1] in INPUT_ENDS:
            return self.find_in_inputs(parts[1:], r"\.log" if parts[0] == "logs" else r"\.tsv")
        run = find_run(parts[2:], ".log" if parts[0] == "logs" else ".tsv")
        if not run or parts[1] not in ("runs", "interpolation") or run in self.wanted.runs:
            return ""
        return self.find_unneeded(run) if self.is_there(run) else "logs"


def is_run(names: list[str]) -> bool:
    """Whether the parts of a path are the names of a run."""
    return len(names) == 5 and bool(re.fullmatch(r"seed\d+", names[4]))


def find_run(parts: tuple[str, ...], end: str) -> str:
    """Return the run whose names are the path of a file, without its ending; "" if it is none."""
    file = strip_record(parts[-1]) if parts else ""
    names = [*parts[:-1], file.removesuffix(end)]
    return "/".join(names) if file.endswith(end) and is_run(names) else ""


def strip_record(file: str) -> str:
    """Return the name of the file that a record is about; any other name unchanged."""
    match = re.fullmatch(r"\.(.+)\.record", file)
    return match[1] if match else file


def is_free(lock: Path) -> bool:
    """Whether no process holds a lock. The file's text, which names the holder, is not changed."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    with lock.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, sorted; links are neither followed nor yielded."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(names) if is_file(Path(place, name)))


def is_file(path: Path) -> bool:
    """Whether a path is a file, and no link."""
    return path.is_file() and not path.is_symlink()


def find_deletable(results: Path, wanted: Wanted) -> dict[str, list[Path]]:
    """Return the files that can be deleted, by their kind."""
    kinds = Kinds(results, wanted)
    by_kind: dict[str, list[Path]] = {}
    for path in list_files(results):
        if kind := kinds.find_kind(path.relative_to(results).parts):
            by_kind.setdefault(kind, []).append(path)
    for kind, path in find_snakemake_files(results):
        by_kind.setdefault(kind, []).append(path)
    order = ("leftovers", "notes", "compiled", "checkpoints", "states", "copies", "inputs", "logs")
    return {kind: by_kind[kind] for kind in (*order, *sorted(by_kind)) if kind in by_kind}


# -- Snakemake's own folder ------------------------------------------------------------------------


def find_snakemake_folder(results: Path) -> Path:
    """Return the folder in which Snakemake keeps its notes."""
    return results.parent / ".snakemake"


def find_snakemake_files(results: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kind and path of notes on files that are gone, and of logs."""
    home = find_snakemake_folder(results)
    for path in list_files(home / "log"):
        if path.name.endswith(".snakemake.log"):
            yield "logs", path
    for folder in ("metadata", "incomplete"):
        for path in list_files(home / folder):
            file = decode_note(path.relative_to(home / folder).parts)
            if not file.startswith(f"{results.name}/") or os.path.lexists(results.parent / file):
                continue
            # Pretrained models are deleted after use, and Snakemake still needs the notes on them.
            if not file.startswith(f"{results.name}/pretrain/"):
                yield "notes", path


def decode_note(parts: tuple[str, ...]) -> str:
    """Return the file that a note of Snakemake is about, from the note's name; "" for others."""
    text = "".join(part.removeprefix("@") for part in parts)
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True).decode()
    except ValueError:
        return ""


# -- deleting --------------------------------------------------------------------------------------


def refuse_work(results: Path) -> None:
    """Raise a UsageError while Snakemake or a run works in the folder."""
    locks = find_snakemake_folder(results) / "locks"
    if any(list_files(locks)):
        raise UsageError(
            f"Snakemake works in this folder, by its locks in {locks}, so nothing is deleted: wait "
            "for its end; if it was killed, `snakemake --unlock` removes the locks"
        )
    for path in list_files(results / "checkpoints"):
        if path.name.endswith(".lock") and not is_free(path):
            raise UsageError(f"a process holds {path}, so nothing is deleted: wait for its end")


def remove_files(paths: Iterable[Path], results: Path) -> None:
    """Delete files, and the folders that become empty."""
    tops = {results, *results.iterdir(), *find_snakemake_folder(results).glob("*")}
    for path in paths:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder in tops or not remove_if_empty(folder):
                break


def remove_if_empty(folder: Path) -> bool:
    """Delete a folder if it is empty; return whether it was."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
