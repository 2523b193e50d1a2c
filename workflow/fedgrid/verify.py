"""Hold every result to its record: which files are altered, missing or stale.

    python -m fedgrid.verify results

  altered     the file's checksum is not the recorded one
  missing     the record names a file that is not there
  stale       what made it has changed since: its run by the studies and config.yaml, the code that
              ran, or an input, which was another when this was made
  unrecorded  a result without a record, such as one out of Snakemake's cache

Prints what is wrong, one file a line, and a count. The status is 1 if anything is altered, missing
or stale. Nothing is changed; what Snakemake would make again, `snakemake -n` says.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fedgrid import cli, grid, records, source, spec
from fedgrid.names import UsageError

CHANGES_RESULTS = False
WRONG = ("altered", "missing", "stale")
# What is no result: logs, Snakemake's measurements, and what unfinished work goes on from.
OTHERS = ("logs", "benchmarks", "checkpoints", "pretrain")


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    asked = _parser().parse_args(arguments)
    if not asked.results.is_dir():
        raise UsageError(f"there is no folder {asked.results}")
    found = Counter()
    for file, state, reason in verified(asked.results, grid.configured(asked.config)):
        found[state] += 1
        if state != "good":
            print(f"{state:10} {file}: {reason}")
    print(", ".join(f"{found[state]} {state}" for state in ("good", *WRONG, "unrecorded")))
    if any(found[state] for state in WRONG):
        cli.fail(f"{asked.results} is not what its records say")


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    parser.add_argument("--config", type=Path, default=Path("config.yaml"))
    return parser


def verified(results: Path, everything: grid.Grid) -> Iterator[tuple[Path, str, str]]:
    """Every result, its state and why."""
    seen = set()
    for path in sorted(results.rglob(".*.record")):
        try:
            record = json.loads(path.read_text())
            outputs = {path.parent / name: digest for name, digest in record["outputs"].items()}
            reason = stale(record, everything)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            yield path, "altered", f"the record cannot be read ({problem})"
            continue
        for file, digest in outputs.items():
            seen.add(os.path.normpath(file))
            yield file, *state(file, digest, reason)
    for file in sorted(results.rglob("*")):
        if is_result(file, results) and os.path.normpath(file) not in seen:
            yield file, "unrecorded", "there is no record of how it was made"


def state(file: Path, digest: str, reason: str) -> tuple[str, str]:
    """The state of a recorded file; `reason` is why it is stale, if it is."""
    if not file.exists():
        return "missing", "its record is there"
    if checksum(file) != digest:
        return "altered", "its content is not what was recorded"
    return ("stale", reason) if reason else ("good", "")


def stale(record: dict, everything: grid.Grid) -> str:
    """Why what a record speaks of would be another today, or nothing."""
    code = record["code"]
    try:
        same = source.of(code["modules"]) == code["fingerprint"]
    except OSError:
        same = False  # a module is gone
    if not same:
        return "the code that made it has changed"
    if record["run"] and (changed := difference(record, everything)):
        return changed
    for name, digest in record["inputs"].items():
        if Path(name).exists() and checksum(Path(name)) != digest:
            return f"{name} was another when this was made"
    return ""


def difference(record: dict, everything: grid.Grid) -> str:
    """What of a recorded run has another value today."""
    stage = record["command"][0].rpartition(".")[2]
    then = spec.part(stage, record["run"])
    names = dict(then["name"])
    if names["method"] == "any":
        names["method"] = spec.ANY_METHOD
    if names["protocol"] == "any":
        return ""  # all that the file depends on is in its path
    try:
        now = spec.part(stage, everything.resolve(names))
    except UsageError as problem:
        return str(problem)
    for part in ("protocol", "method"):
        for name in sorted({*then[part], *now[part]}):
            old, new = (side[part].get(name, "nothing") for side in (then, now))
            if old != new:
                return f"{part}: {name} was {old} and is {new} now"
    return ""


@cache
def checksum(file: Path) -> str:
    """The sha256 of a file's content."""
    return records.checksum(file)


def is_result(file: Path, results: Path) -> bool:
    """Whether a file is something that an entry point has made."""
    inside = file.relative_to(results).parts
    copied = len(inside) == 1  # results/table1.csv is a copy, by Snakemake
    hidden = any(part.startswith(".") for part in inside)
    return file.is_file() and not (copied or hidden or inside[0] in OTHERS)


if __name__ == "__main__":
    cli.run(main)
