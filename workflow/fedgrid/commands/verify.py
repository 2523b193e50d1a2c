"""Compare every result with its record: which files are altered, missing or stale.

    python -m fedgrid verify results
    python -m fedgrid verify results --config config.yaml short.yaml
    python -m fedgrid verify results --again 3

  altered     the file's checksum is not the recorded one
  missing     the record names a file that is not there
  stale       its run (by the studies and config.yaml), its code or an input has changed since it
              was made
  unknown     its protocol or method is in no study, no configuration and no file; or what it
              depends on cannot be read, such as a folder of your own data that is not there
  unrecorded  a result without a record, such as one from Snakemake's cache

Prints a line for every file that is not good, and a count. The status is 1 if a file is altered,
missing or stale. Nothing is changed; `snakemake -n` lists the jobs that Snakemake would run. Give
files that were used with Snakemake's --configfile to --config, too; later files have precedence.

With --again N it compares no records. It trains N runs, chosen by chance, once more in a temporary
folder, and says of each run whether metrics.csv, clients.csv, predictions.csv and
model.safetensors have the same bytes (`again.py`). The status is 1 if one has not.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fedgrid.runtime import cli, records
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, shown
from fedgrid.runtime.watch.trackers.csv import RUNNING
from fedgrid.store.again import compared
from fedgrid.study.grid import Grid, configured
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.protocol import ANY, ANY_METHOD
from fedgrid.study.reading import CONFIG

WRONG = ("altered", "missing", "stale")
STATES = ("good", *WRONG, "unknown", "unrecorded")
REGISTRIES = ("datasets.", "methods.", "models.", "partitions.")  # of files that people add
# Folders with results. Others have logs, measurements, checkpoints, temporary models and copies.
FOLDERS = ("data", "weights", "partition", "saliency", "latents", "runs", "interpolation")
FOLDERS += ("studies",)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    asked = _parser().parse_args(arguments)
    if not asked.results.is_dir():
        raise UsageError(f"the folder {asked.results} does not exist: name the folder of results")
    if asked.again is not None:
        return trained_again(asked.results, asked.again, configured(*asked.config))
    found = Counter()
    for file, state, reason in verified(asked.results, configured(*asked.config)):
        found[state] += 1
        if state != "good":
            print(f"{state:10} {file}: {reason}")
    print(", ".join(f"{found[state]} {state}" for state in STATES))
    if any(found[state] for state in WRONG):
        cli.fail(f"{asked.results} differs from its records")


def trained_again(results: Path, number: int, everything: Grid) -> None:
    """Train some runs again, and say of each whether it is the same."""
    same = []
    for folder, is_same, said in compared(results, number, everything):
        same.append(is_same)
        print(f"{folder} {said}", flush=True)
    print(f"{sum(same)} of {len(same)} runs are the same")
    if not all(same):
        cli.fail(f"{len(same) - sum(same)} of {len(same)} runs are not the same")


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    parser.add_argument(
        "--config", type=Path, nargs="+", default=[CONFIG], metavar="YAML",
        help="configurations with the protocols and variants of runs (default: config.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--again", type=int, metavar="N", help="train N runs again, and compare their bytes"
    )
    return parser


def verified(results: Path, everything: Grid) -> Iterator[tuple[Path, str, str]]:
    """Yield every result, its state and the reason."""
    seen = set()
    for path in sorted(results.rglob(".*.record")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            outputs = {path.parent / name: digest for name, digest in record["outputs"].items()}
            found = judged(record, everything, results)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            yield path, "altered", f"the record cannot be read ({problem})"
            continue
        for file, digest in outputs.items():
            seen.add(os.path.normpath(file))
            yield file, *state(file, digest, found)
    for file in sorted(results.rglob("*")):
        if is_result(file, results) and os.path.normpath(file) not in seen:
            yield file, "unrecorded", "it has no record"


def state(file: Path, digest: str, found: tuple[str, str]) -> tuple[str, str]:
    """Return the state of a file and the reason; `found` is the state if the file is unchanged."""
    if not file.exists():
        return "missing", "only its record exists"
    if checksum(file) != digest:
        return "altered", "its content differs from the recorded content"
    return found


def judged(record: dict, everything: Grid, results: Path) -> tuple[str, str]:
    """Whether a recorded result is good, stale or unknown, and why."""
    try:
        if reason := stale(record, everything, results):
            return "stale", reason
        reason = unknown(record, everything)
    except (UsageError, OSError) as problem:  # of what is needed to compare, not of the record
        reason = str(problem)
    return ("unknown", reason) if reason else ("good", "")


def stale(record: dict, everything: Grid, results: Path) -> str:
    """Why a recorded result would differ today; empty if it would not."""
    if changed(record["code"]):
        return "the code that made it has changed"
    if record["run"] and (reason := difference(record, everything)):
        return reason
    for name, digest in record["inputs"].items():
        path = input_of(name, results)
        if path.exists() and checksum(path) != digest:
            return f"{name} has changed since this was made"
    return ""


def changed(code: dict) -> bool:
    """Whether code has changed; a missing file that a user added does not count as a change."""
    gone = [module for module in code["modules"] if not source.exists(module)]
    if gone:
        return not all(module.startswith(REGISTRIES) for module in gone)
    return source.of(code["modules"]) != code["fingerprint"]


def input_of(name: str, results: Path) -> Path:
    """Return the path of a recorded input; `results` replaces the folder of that name."""
    path = results.resolve().parent / name
    return path if Path(name).parts[:1] == (results.resolve().name,) else Path(name)


def unknown(record: dict, everything: Grid) -> str:
    """Why it is unknown whether a recorded result would differ today; empty if it is known."""
    for module in record["code"]["modules"]:
        if not source.exists(module):
            return f"its code does not exist: {module.replace('.', '/')}.py"
    kind, name = nameless(record, everything)
    told = "name the file that defines it with --config"
    return kind and f"{kind} `{shown(name)}` is in no study and no configuration: {told}"


def nameless(record: dict, everything: Grid) -> tuple[str, str]:
    """Return the kind and name of a recorded protocol or method that no longer exists, or ""s."""
    then = names(record) if record["run"] else {}
    for kind in ("protocol", "method"):
        name = then.get(kind, ANY)
        if name != ANY and not everything.knows(kind, name):
            return kind, name
    return "", ""


def overridden(command: list[str]) -> set[str]:
    """Return the fields that a command set with --set; no study has their values."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--set", nargs="+", action="extend", default=[])
    given, _ = parser.parse_known_args(command)
    return {word.partition("=")[0] for word in given.set}


def names(record: dict) -> dict:
    """Return the recorded run's names of those axes that its stage depends on."""
    return run_of_stage(stage(record), record["run"])["name"]


def stage(record: dict) -> str:
    """Return the stage of a record's command."""
    return record["command"][0].rpartition(".")[2]


def difference(record: dict, everything: Grid) -> str:
    """Return how a recorded run's settings differ from the present ones, or ""."""
    then = run_of_stage(stage(record), record["run"])
    called = dict(then["name"])
    if called["method"] == ANY:
        called["method"] = ANY_METHOD
    if called["protocol"] == ANY or any(nameless(record, everything)):
        return ""  # its path names all that it depends on, or a name is unknown
    try:
        now = run_of_stage(stage(record), everything.resolve(called))
    except UsageError as problem:
        return str(problem)
    for part in ("protocol", "method"):
        for name in sorted({*then[part], *now[part]} - overridden(record["command"])):
            old, new = (side[part].get(name, "nothing") for side in (then, now))
            if old != new:
                return f"{part}: {name} was {old} and is {new} now"
    return ""


@cache
def checksum(file: Path) -> str:
    """Return the sha256 of a file's content."""
    return records.checksum(file)


def is_result(file: Path, results: Path) -> bool:
    """Whether a file was written by a command."""
    inside = file.relative_to(results).parts
    hidden = any(part.startswith(".") for part in inside) or file.name == RUNNING
    return file.is_file() and inside[0] in FOLDERS and not hidden


if __name__ == "__main__":
    cli.run(main)
