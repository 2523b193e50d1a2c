"""Hold every result to its record: which files are altered, missing or stale.

    python -m fedgrid.verify results
    python -m fedgrid.verify results --config config.yaml short.yaml

  altered     the file's checksum is not the recorded one
  missing     the record names a file that is not there
  stale       what made it has changed since: its run by the studies and config.yaml, the code that
              ran, or an input, which was another when this was made
  unknown     nobody can say: its protocol or method is in no study, no configuration and no file
  unrecorded  a result without a record, such as one out of Snakemake's cache

Prints what is wrong, one file a line, and a count. The status is 1 if anything is altered, missing
or stale. Nothing is changed; what Snakemake would make again, `snakemake -n` says. Files that runs
were made with by Snakemake's --configfile are given with --config; where they differ the last wins.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

from fedgrid import cli, grid, records, source, spec
from fedgrid.names import UsageError, shown

CHANGES_RESULTS = False
WRONG = ("altered", "missing", "stale")
STATES = ("good", *WRONG, "unknown", "unrecorded")
REGISTRIES = ("datasets.", "methods.", "models.")  # of files that people add
# What is no result: logs, Snakemake's measurements, and what unfinished work goes on from.
OTHERS = ("logs", "benchmarks", "checkpoints", "pretrain")


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    asked = _parser().parse_args(arguments)
    if not asked.results.is_dir():
        raise UsageError(f"there is no folder {asked.results}")
    found = Counter()
    for file, state, reason in verified(asked.results, grid.configured(*asked.config)):
        found[state] += 1
        if state != "good":
            print(f"{state:10} {file}: {reason}")
    print(", ".join(f"{found[state]} {state}" for state in STATES))
    if any(found[state] for state in WRONG):
        cli.fail(f"{asked.results} is not what its records say")


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    parser.add_argument(
        "--config", type=Path, nargs="+", default=[grid.CONFIG], metavar="YAML",
        help="configurations with the protocols and variants of runs (default: config.yaml)",
    )  # fmt: skip
    return parser


def verified(results: Path, everything: grid.Grid) -> Iterator[tuple[Path, str, str]]:
    """Every result, its state and why."""
    seen = set()
    for path in sorted(results.rglob(".*.record")):
        try:
            record = json.loads(path.read_text())
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
            yield file, "unrecorded", "there is no record of how it was made"


def state(file: Path, digest: str, found: tuple[str, str]) -> tuple[str, str]:
    """The state of a recorded file and why; `found` is that of its record, if the file is whole."""
    if not file.exists():
        return "missing", "its record is there"
    if checksum(file) != digest:
        return "altered", "its content is not what was recorded"
    return found


def judged(record: dict, everything: grid.Grid, results: Path) -> tuple[str, str]:
    """Whether what a record speaks of is good, stale or unknown, and why."""
    if reason := stale(record, everything, results):
        return "stale", reason
    reason = unknown(record, everything)
    return ("unknown", reason) if reason else ("good", "")


def stale(record: dict, everything: grid.Grid, results: Path) -> str:
    """Why what a record speaks of would be another today, or nothing."""
    if changed(record["code"]):
        return "the code that made it has changed"
    if record["run"] and (reason := difference(record, everything)):
        return reason
    for name, digest in record["inputs"].items():
        path = input_of(name, results)
        if path.exists() and checksum(path) != digest:
            return f"{name} was another when this was made"
    return ""


def changed(code: dict) -> bool:
    """Whether code is another today; a file of one's own that is not here has not changed."""
    gone = [module for module in code["modules"] if not source.path(module).exists()]
    if gone:
        return not all(module.startswith(REGISTRIES) for module in gone)
    return source.of(code["modules"]) != code["fingerprint"]


def input_of(name: str, results: Path) -> Path:
    """The input of a record: of the same results as the record, wherever they are."""
    path = results.resolve().parent / name
    return path if Path(name).parts[:1] == (results.resolve().name,) else Path(name)


def unknown(record: dict, everything: grid.Grid) -> str:
    """Why nobody can say whether what a record speaks of would be another today, or nothing."""
    for module in record["code"]["modules"]:
        if not source.path(module).exists():
            return f"its code is not here: {module.replace('.', '/')}.py"
    kind, name = nameless(record, everything)
    told = "name the file that defines it with --config"
    return kind and f"{kind} `{shown(name)}` is in no study and no configuration: {told}"


def nameless(record: dict, everything: grid.Grid) -> tuple[str, str]:
    """The protocol or method of a recorded run that nothing is called today."""
    then = names(record) if record["run"] else {}
    for kind, there in {"protocol": everything.protocols, "method": everything.methods()}.items():
        if then.get(kind, "any") not in ("any", *there):
            return kind, then[kind]
    return "", ""


def overridden(command: list[str]) -> set[str]:
    """The fields that a command gave with --set: no study says what they are."""
    words = command[command.index("--set") + 1 :] if "--set" in command else []
    given = takewhile(lambda word: not word.startswith("--"), words)
    return {word.partition("=")[0] for word in given}


def names(record: dict) -> dict:
    """The names of a recorded run, of those axes that its stage depends on."""
    return spec.part(stage(record), record["run"])["name"]


def stage(record: dict) -> str:
    """What a record's command did."""
    return record["command"][0].rpartition(".")[2]


def difference(record: dict, everything: grid.Grid) -> str:
    """What of a recorded run has another value today."""
    then = spec.part(stage(record), record["run"])
    called = dict(then["name"])
    if called["method"] == "any":
        called["method"] = spec.ANY_METHOD
    if called["protocol"] == "any" or any(nameless(record, everything)):
        return ""  # all that the file depends on is in its path, or nobody can say
    try:
        now = spec.part(stage(record), everything.resolve(called))
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
