"""Find the files below results/ that can be deleted, by their kind, and delete them.

A file has a kind only if its whole path is one that fedgrid or Snakemake writes. All other files
are not fedgrid's, and stay. The files of a run are judged by the names of the grids' runs.
"""

import base64
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Names, Run
from fedgrid.runtime.watch.trackers.csv import RUNNING
from fedgrid.study import reading
from fedgrid.study.grid import Grid
from fedgrid.study.paths import CELLS, RUN, input_paths
from fedgrid.study.protocol import runs_of_block

# -- what grids need -------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What grids need: runs by their folder in results/runs/, and inputs by path without suffix."""

    runs: set[str]
    inputs: set[str]
    states: set[str]  # runs whose last state a product reads


def find_wanted(configs: list[Path]) -> Wanted:
    """Find what the grids of all studies need, and what the configurations ask for.

    UsageError for a configuration with a study and no scale.
    """
    everything = read_grids(configs)
    wanted = Wanted(set(), set(), set())
    for study, scale, grid in list_grids(everything):
        products = everything.studies[study]["products"].values()
        reads = any(f"interpolation/{grid}" in product["from"].values() for product in products)
        blocks = everything.all_blocks(study, scale, grid)
        every = chain.from_iterable(map(runs_of_block, blocks))
        for run in chain.from_iterable(add_first(everything, names) for names in every):
            name, paths = RUN.format(**run["name"]), input_paths(run)
            wanted.runs.add(name)
            found = (paths[stage] for stage in ("partition", *CELLS) if stage in paths)
            wanted.inputs.update(path.removesuffix(".npz") for path in found)
            wanted.states.update([name] if reads else ())
    return wanted


def read_grids(configs: list[Path]) -> Grid:
    """Read the grids of all studies, and add the configuration's products to its study."""
    config = own_data.give(reduce(reading.merge_configs, map(reading.read_config, configs), {}))
    studies = reading.read_studies()
    for left_out in studies.left_out:
        studies.named(left_out)  # whose runs would seem to be needed by nobody
    if "study" in config:
        if "scale" not in config:
            files = ", ".join(map(str, configs))
            raise UsageError(
                f"{files}: there is a `study`, but no `scale`: name config.yaml first with --config"
            )
        reading.add_products(studies, config)
    return Grid(studies, config)


def add_first(everything: Grid, names: Names) -> list[Run]:
    """Resolve a run; if it is a link to another run, return both, as no grid may have the other."""
    run = everything.resolve(names)
    first = everything.first_name(run)
    return [run] if first == run["name"] else [run, everything.resolve(first)]


def list_grids(everything: Grid) -> Iterator[tuple[str, str, str]]:
    for study, entry in everything.studies.items():
        for scale, facts in entry["scales"].items():
            yield from ((study, scale, grid) for grid in facts["grids"])


# -- kinds of files --------------------------------------------------------------------------------

TEMPORARY = re.compile(r"\..+\.\d+\.tmp")  # `files.replacing`
OLD = 3600  # seconds after which no process writes a temporary file any more
NAME = r"(?P<name>([^/]+/){4}seed\d+)"  # of a run, or of an input with its stage
RESULTS = "|".join(map(re.escape, source.literal("training.results", "FILES")))
CHECKPOINT = rf"checkpoints/runs/{NAME}\.safetensors"
BESIDE = r"(|\.before|\.history|\.clients/\d{6,}\.safetensors)"  # the last are clients' memories
OF_RUN = {  # the kind of files of a run that is not finished, and of one that a grid needs
    rf"runs/{NAME}/{re.escape(RUNNING)}": ("checkpoints", ""),
    rf"runs/{NAME}/({RESULTS})": ("", ""),
    rf"interpolation/{NAME}\.csv": ("runs", ""),
    rf"{CHECKPOINT}({BESIDE}|\.forced)": ("checkpoints", "checkpoints"),
    rf"{CHECKPOINT}\.ended{BESIDE}": ("states", "states"),
    rf"{CHECKPOINT}\.finished/({RESULTS})": ("copies", ""),
    rf"logs/(runs|interpolation)/{NAME}\.log": ("logs", ""),
    rf"benchmarks/(runs|interpolation)/{NAME}\.tsv": ("logs", ""),
}
STAGE = "(?=(partition|pretrain|saliency|latents)/)"
OF_INPUT = (
    rf"(?=partition/){NAME}(\.npz|\.clients\.csv)",
    rf"(?=pretrain/){NAME}/(client\d+\.safetensors|seconds\.txt)",
    rf"(?=saliency/){NAME}\.(npz|csv|json)",
    rf"(?=latents/){NAME}\.npz",
    rf"logs/{STAGE}{NAME}\.log",
    rf"benchmarks/{STAGE}{NAME}\.tsv",
)
LOCK = r"checkpoints/(by_key|(runs|pretrain)/.+/seed\d+(\.safetensors)?)\.lock"
NOTE = r"checkpoints/by_key/[^/]+/[0-9a-f]+\.note"
OTHERS = {
    r"checkpoints/pretrain/([^/]+/){4}(client\d+\.safetensors|(run|seconds)\.txt)": "checkpoints",
    r"grids/[0-9a-f]{16}\.txt": "notes",
    # Of torch's compiler, and the locks of records.
    r"compiled/((aotautograd|fxgraph|locks|triton|[a-z0-9]{2})/.+|[0-9a-f]{16}\.lock)": "compiled",
}
FOLDERS = (
    *("runs", "interpolation", "checkpoints", "partition", *CELLS, "logs", "benchmarks"),
    *("grids", "compiled", "data", "weights", "studies"),
)


class Kinds:
    """Finds the kind of files in a folder of results; `wanted` is what grids need."""

    def __init__(self, results: Path, wanted: Wanted):
        self.results, self.inputs = results, wanted.inputs
        states = wanted.states | {*map(self.find_trained, wanted.states)}
        self.needed = wanted.runs | states
        self.stays = {"runs": self.needed, "states": states, "logs": wanted.runs}  # by kind

    def find_trained(self, run: str) -> str:
        """Return the run whose training a run shares; the last state has that run's name."""
        try:
            summary = (self.results / "runs" / run / "summary.json").read_text(encoding="utf-8")
            return RUN.format(**json.loads(summary)["trained_as"])
        except (OSError, ValueError, KeyError, TypeError):
            return run

    def find_kind(self, path: Path) -> str:
        """Return the kind of a file; "" if it has none."""
        parts = path.relative_to(self.results).parts
        if parts[0] not in FOLDERS:
            return ""
        if any(map(TEMPORARY.fullmatch, parts)):
            return "leftovers" if time.time() - path.stat().st_mtime > OLD else ""
        name = "/".join(parts)
        if parts[0] != "checkpoints":  # a record is as the file that it is about
            name = re.sub(r"(.*/)\.(.+)\.record", r"\1\2", name)
        if re.fullmatch(LOCK, name):
            return "leftovers" if is_free(path) else ""
        if re.fullmatch(NOTE, name):
            return "notes" if self.is_stale(path) else ""
        for form, kinds in OF_RUN.items():
            if match := re.fullmatch(form, name):
                return self.find_kind_of_run(match["name"], *kinds)
        for form in OF_INPUT:
            if match := re.fullmatch(form, name):
                return "" if match["name"] in self.inputs else "inputs"
        return next((kind for form, kind in OTHERS.items() if re.fullmatch(form, name)), "")

    def find_kind_of_run(self, run: str, unfinished: str, needed: str) -> str:
        """Return the kind of a file of a run, of those that it can have."""
        kind = unfinished
        if (self.results / "runs" / run / "metrics.csv").exists():
            kind = needed if run in self.needed else "runs"
        if run in self.stays.get(kind, ()):
            return ""
        return f"runs/{run.partition('/')[0]}" if kind == "runs" else kind

    def is_stale(self, note: Path) -> bool:
        """Whether a note names a run of which no checkpoint, state or copy is left."""
        try:
            name = note.read_text(encoding="utf-8")
            checkpoint = self.results / "checkpoints/runs" / name
            ends = ("", ".ended", ".finished")
            return not (name and any(Path(f"{checkpoint}{end}").exists() for end in ends))
        except ValueError:  # no text, or no path
            return True


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
        paths = (Path(place, name) for name in sorted(names))
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


def find_deletable(results: Path, wanted: Wanted) -> dict[str, list[Path]]:
    kinds = Kinds(results, wanted)
    found = ((kinds.find_kind(path), path) for path in list_files(results))
    by_kind: dict[str, list[Path]] = {}
    for kind, path in chain(found, find_snakemake_files(results)):
        if kind:
            by_kind.setdefault(kind, []).append(path)
    order = ("leftovers", "notes", "compiled", "checkpoints", "states", "copies", "inputs", "logs")
    return {kind: by_kind[kind] for kind in (*order, *sorted(by_kind)) if kind in by_kind}


# -- Snakemake's own folder ------------------------------------------------------------------------

SNAKEMAKE = ".snakemake"  # beside the folder of results


def find_snakemake_files(results: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kind and path of notes on files that are gone, and of logs."""
    home = results.parent / SNAKEMAKE
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
    locks = results.parent / SNAKEMAKE / "locks"
    if any(list_files(locks)):
        raise UsageError(
            f"Snakemake works in this folder, by its locks in {locks}, so nothing is deleted: wait "
            "for its end; if it was killed, `snakemake --unlock` removes the locks"
        )
    for path in list_files(results / "checkpoints"):
        if path.name.endswith(".lock") and not is_free(path):
            raise UsageError(f"a process holds {path}, so nothing is deleted: wait for its end")


def remove_files(paths: Iterable[Path], results: Path) -> None:
    tops = {results, *results.iterdir(), *(results.parent / SNAKEMAKE).glob("*")}
    for path in paths:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder in tops:
                break
            try:
                folder.rmdir()
            except OSError:  # it has other files
                break
