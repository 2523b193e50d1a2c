"""Trackers show the evaluations of a run while it goes on. The Snakefile imports this: no torch.

A tracker is one file of this folder, and the file's name is the tracker's name. `csv` always runs.
The others run if `log:` in config.yaml, or `--track`, names them. A file has

    PACKAGE = "wandb"                              # the package that it imports; "" for none
    def tracker(run: Run, rows: list[dict]): ...   # an object with write(row) and close()

`rows` are the evaluations before the checkpoint from which the run resumes. An earlier process had
them, too, so a tracker must not show them twice.
"""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid.runtime import resolved
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known, listed, registered, shown

ALWAYS, NONE = "csv", "none"


class Run(NamedTuple):
    """What a tracker is told about a run."""

    name: str
    key: str
    out: Path
    logs: Path
    settings: dict[str, Any]


class Asked(NamedTuple):
    """The trackers that were asked for, the folder of their files, and the run's name there."""

    names: tuple[str, ...] = ()
    logs: Path = Path("results/logs")
    name: str = ""


NOTHING = Asked()


def chosen(value: str | list[Any] | None) -> tuple[str, ...]:
    """Return the trackers in a name, a list or `a,b`; UsageError for an unknown one."""
    names = []
    for one in listed(value):
        if not isinstance(one, str):
            raise UsageError(
                f"log: {shown(repr(one))} is not the name of a tracker: write `log: none`"
            )
        names += [part.strip() for part in one.split(",") if part.strip()]
    for name in names:
        known("tracker of `log`", name, [NONE, *trackers()])
    return tuple(dict.fromkeys(name for name in names if name != NONE))


def trackers() -> list[str]:
    """Return the names of the trackers that can be asked for."""
    return [name for name in registered("runtime/watch/trackers") if name != ALWAYS]


def check_installed(names: tuple[str, ...]) -> None:
    """Raise a UsageError if the package of a tracker is not installed."""
    for name in names:
        package = source.literal(f"runtime.watch.trackers.{name}", "PACKAGE", "")
        if package and not installed(package):
            raise UsageError(
                f"log: {name} needs the package {package}: install it with `{sys.executable} -m "
                f"pip install {package}`, or remove {name} from `log`"
            )


def installed(package: str) -> bool:
    """Whether a package is installed; a folder of its name in the working folder is none."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def add_option(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--track", nargs="+", default=[os.environ.get("FEDGRID_TRACK", NONE)], metavar="NAME",
        help=f"show the run while it goes on: {', '.join(trackers())} or none (default: none)",
    )  # fmt: skip
    return parser


def asked_for(options: argparse.Namespace, name: str) -> Asked:
    names = chosen(options.track)
    check_installed(names)
    return Asked(names, options.results / "logs", name)


def settings(run: resolved.Run) -> dict[str, Any]:
    """Return the names, the protocol's fields and the hyper-parameters of a run, flattened."""
    hyper = {
        f"{part}.{n}": value for part, own in run["method"].items() for n, value in own.items()
    }
    return {**run["name"], **run["protocol"], **hyper}


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a row but its round, by column."""
    plain = {name: value for name, value in row.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in plain.items() if name != "round"}
