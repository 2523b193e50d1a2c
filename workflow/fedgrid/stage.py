"""What the entry points that work on a run have in common: which run, from where, on what device.

A run is given by its name, `protocol/dataset/partition/method/seed0` as in results/runs/, or as the
JSON of what the name stands for, which is what the workflow passes.
"""

import argparse
import json
import os
import re
from hashlib import sha256
from pathlib import Path

import yaml

from fedgrid import cli, grid, records, source, spec
from fedgrid.names import UsageError, known, registered, shown

CHANGES_RESULTS = False


def parser(description: str, *inputs: str) -> argparse.ArgumentParser:
    """A parser for a stage of a run, whose files are found by convention unless they are named."""
    parser = cli.parser(description)
    parser.add_argument(
        "run", help="protocol/dataset/partition/method/seed0, or the resolved run as JSON"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE",
        help="change fields of the protocol, e.g. --set rounds=20 lr=0.1; needs --out",
    )  # fmt: skip
    parser.add_argument(
        "--inputs", nargs="+", default=[], metavar="NAME=PATH",
        help=f"where inputs are ({', '.join(inputs)}), if not under --results",
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--out", type=Path, help="default: by the run's name, under --results")
    return parser


def machine(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Options that choose the machine and never the numbers, beyond rounding."""
    cli.device(parser)
    parser.add_argument(
        "--backend", default=os.environ.get("FEDGRID_BACKEND", "auto"),
        choices=["auto", "loop", "stacked"], help="auto: stacked on a GPU, mostly loop elsewhere",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    return parser


def resolve(asked: argparse.Namespace, stage: str) -> dict:
    """The run that a stage was asked for, with what all of its names stand for."""
    run = spelled_out(asked.run, stage) if asked.run.startswith("{") else named(asked.run)
    if asked.set and not asked.out:
        raise UsageError("--set changes what the run's name stands for: say where with --out")
    for field, _, value in (text.partition("=") for text in asked.set):
        known("field of the protocol", field, run["protocol"])
        if not value:
            raise UsageError(f"--set {field} lacks its value: --set {field}=VALUE")
        default, given = run["protocol"][field], parsed(field, value)
        grid.like(f"--set {field}", given, default)
        run["protocol"][field] = given
    if asked.set:
        check_ranges(run["protocol"])
        grid.check_protocol("--set", run["protocol"], run["dataset"])
    if "model" in run["protocol"]:
        grid.check_model(run["name"]["method"], run["method"], run["protocol"]["model"])
    records.NOTES.run = run
    return run


def parsed(field: str, text: str):
    """What a text stands for in YAML."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(f"--set {field}={shown(text)} is not YAML") from None


def check_ranges(protocol: dict) -> None:
    """UsageError for a value out of its range."""
    grid.obey("--set", protocol, "study", "protocol")


def spelled_out(text: str, stage: str) -> dict:
    """The run in a JSON text, with all fields of the protocol that the stage depends on."""
    try:
        run = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"the run is not JSON: {problem}") from None
    for key, example in SPELLED_OUT.items():
        if key not in run:
            raise UsageError(f"the run lacks `{key}`")
        if type(run[key]) is not type(example):
            raise UsageError(f"the run's {key} is {shown(run[key])}, not such as {example!r}")
    if missing := sorted({*spec.AXES} - run["name"].keys()):
        raise UsageError(f"the run's name lacks `{missing[0]}`")
    for field in spec.STAGES[stage]:
        if field not in run["protocol"]:
            raise UsageError(f"the run's protocol lacks `{field}`")
        grid.like(f"the run's protocol: {field}", run["protocol"][field], spec.PROTOCOL[field])
    return run


# What a run is spelled out with, and an example of each.
SPELLED_OUT = {"name": {"method": "fedavg"}, "protocol": {"rounds": 40}, "dataset": "digits"}
SPELLED_OUT |= {"partition": "dir0.1", "method": {"fedprox": {"mu": 0.01}}, "seed": 0}


def named(name: str) -> dict:
    """The run of a name, by the studies that come with the package."""
    names = dict(zip(spec.AXES, parts := name.strip("/").split("/"), strict=False))
    if len(parts) != len(spec.AXES) or not re.fullmatch("(seed)?[0-9]{1,18}", names["seed"]):
        raise UsageError(
            f"`{shown(name)}` names no run: that takes protocol/dataset/partition/method/seed0"
        )
    names["seed"] = int(names["seed"].removeprefix("seed"))
    everything = grid.Grid(grid.read_studies())
    known("dataset", names["dataset"], registered("datasets"))
    spec.skew(names["partition"])
    run = everything.resolve(names)
    grid.check_protocol(names["protocol"], run["protocol"], run["dataset"])
    return run


def inputs(asked: argparse.Namespace, run: dict, *wanted: str) -> dict[str, Path]:
    """Where the inputs `wanted` of the run are, by name; UsageError for one that is not there."""
    paths = {name: asked.results / path for name, path in spec.inputs(run).items()}
    for text in asked.inputs:
        name, _, path = text.partition("=")
        known("input", name, spec.INPUTS)
        paths[name] = Path(path)
    name = spec.RUN.format(**run["name"])
    how = {"data": run["dataset"], "weights": run["protocol"].get("model")}
    for one in (name_ for name_ in wanted if name_ in paths):
        need(paths[one], f"python -m fedgrid.{one} {how.get(one, name)}")
    found = {one: paths[one] for one in wanted if one in paths}
    records.NOTES.inputs += [path for name, path in found.items() if name != "pretrain"]
    return found


def need(path: Path, how: str) -> Path:
    """`path`, if there is something."""
    if not path.exists():
        raise UsageError(f"{path} is missing: make it with `{how}`")
    return path


def identity(stage: str, run: dict, paths: dict[str, Path]) -> str:
    """What kept work is of: the resolved run, the code that runs it and its inputs."""
    parts = [json.dumps(run, sort_keys=True), source.fingerprint(*spec.modules(stage, run))]
    parts += [records.checksum(path) for path in paths.values()]
    return sha256("\n".join(parts).encode()).hexdigest()
