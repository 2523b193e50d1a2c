"""What the commands that work on a run have in common: the run, its inputs, the machine.

A run is given by its name, `protocol/dataset/partition/method/seed0` as in results/runs/, or as the
resolved run in JSON, as the workflow does.
"""

import argparse
import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import yaml

from fedgrid.runtime import cli, contract, records, source
from fedgrid.runtime.names import UsageError, known, registered, shown
from fedgrid.study.checks import (
    check_cohort,
    check_evaluation,
    check_images,
    check_model,
    check_needs,
    check_partition,
    check_protocol,
    check_type,
    check_whole_writers,
)
from fedgrid.study.grid import Grid, configured
from fedgrid.study.jobs import stage_fields, stage_modules
from fedgrid.study.paths import INPUTS, RUN, input_paths
from fedgrid.study.protocol import AXES, PROTOCOL
from fedgrid.study.reading import CONFIG, obey

BACKENDS = ("auto", "loop", "stacked")


def run_parser(description: str, *inputs: str) -> argparse.ArgumentParser:
    """Return a parser for a stage of a run; files that are not named are found by convention."""
    parser = cli.parser(description)
    parser.add_argument(
        "run", help="protocol/dataset/partition/method/seed0, or the resolved run as JSON"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE",
        help="change fields of the protocol, e.g. --set rounds=20 lr=0.1; needs --out DIR",
    )  # fmt: skip
    parser.add_argument(
        "--inputs", nargs="+", default=[], metavar="NAME=PATH",
        help=f"paths of inputs ({', '.join(inputs)}) that are not under --results",
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--out", type=Path, help="default: by the run's name, under --results")
    return parser


def add_machine(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options that choose the machine; they change numbers only by rounding."""
    cli.device(parser)
    parser.add_argument(
        "--backend", default=os.environ.get("FEDGRID_BACKEND", "auto"),
        choices=BACKENDS, help="auto: stacked on a GPU, mostly loop on a CPU",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    return parser


class Machine(NamedTuple):
    """The machine for a command; it changes numbers only by rounding."""

    device: str = "auto"
    backend: str = "auto"
    threads: int = 1


def machine_of(asked: argparse.Namespace) -> Machine:
    """Return the machine that the options of `add_machine` choose."""
    return Machine(asked.device, asked.backend, asked.threads)


def resolve_run(asked: argparse.Namespace, stage: str) -> dict:
    """Return the resolved run of a stage's arguments."""
    run = run_of_json(asked.run, stage) if asked.run.startswith("{") else run_of_name(asked.run)
    if asked.set and not asked.out:
        raise UsageError("--set needs --out DIR, so that the original run is not overwritten")
    for field, _, value in (text.partition("=") for text in asked.set):
        known("field of the protocol", field, run["protocol"])
        if not value:
            raise UsageError(f"--set {field} has no value: write --set {field}=VALUE")
        default, given = run["protocol"][field], parsed(field, value)
        check_type(f"--set {field}", given, default)
        run["protocol"][field] = given
        run.get("own", {}).pop(field, None)
    if asked.set:
        check_ranges(run["protocol"])
        check_protocol("--set", run["protocol"], run["dataset"])
    if stage in contract.NEEDED:
        check_images(f"the stage {stage}", run["dataset"])
    check_needs(run["name"]["method"], run["method"], run["dataset"])
    if "model" in run["protocol"]:
        check_model(run["name"]["method"], run["method"], run["protocol"]["model"])
    if stage == "train":
        check_evaluation(run["name"]["method"], run["method"], run["protocol"])
        check_cohort(run["name"]["method"], run["method"], run["protocol"])
    return run


def parsed(field: str, text: str):
    """Return the YAML value of a text."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(f"--set {field}={shown(text)} is not YAML") from None


def check_ranges(protocol: dict) -> None:
    """Raise a UsageError for a value out of its range."""
    obey("--set", protocol, "study", "protocol")


def run_of_json(text: str, stage: str) -> dict:
    """Return the run in a JSON text; UsageError if a field that the stage needs is missing."""
    try:
        run = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"the run is not JSON: {problem}") from None
    for key, example in SPELLED_OUT.items():
        if key not in run:
            raise UsageError(f"the run lacks `{key}`")
        if type(run[key]) is not type(example):
            raise UsageError(f"the run's {key} is {shown(run[key])}, not like {example!r}")
    if missing := sorted({*AXES} - run["name"].keys()):
        raise UsageError(f"the run's name lacks `{missing[0]}`")
    for field in stage_fields(stage, run):
        if field not in run["protocol"]:
            raise UsageError(f"the run's protocol lacks `{field}`")
        check_type(f"the run's protocol: {field}", run["protocol"][field], PROTOCOL[field])
    return run


# The fields of a resolved run, with an example of each.
SPELLED_OUT = {"name": {"method": "fedavg"}, "protocol": {"rounds": 40}, "dataset": "digits"}
SPELLED_OUT |= {"partition": "dir0.1", "method": {"fedprox": {"mu": 0.01}}, "seed": 0}


def run_of_name(name: str) -> dict:
    """Return the resolved run of a name, by the studies and the config.yaml of this folder."""
    names = dict(zip(AXES, parts := name.strip("/").split("/"), strict=False))
    if len(parts) != len(AXES) or not re.fullmatch("(seed)?[0-9]{1,18}", names["seed"]):
        raise UsageError(
            f"`{shown(name)}` is not the name of a run, which is like "
            "protocol/dataset/partition/method/seed0"
        )
    names["seed"] = int(names["seed"].removeprefix("seed"))
    return run_of_names(names, configured(CONFIG))


def run_of_names(names: dict, everything: Grid) -> dict:
    """Return the resolved run of a name on each axis; UsageError if they do not fit together."""
    known("dataset", names["dataset"], registered("datasets"))
    check_partition(names["partition"], names["dataset"])
    run = everything.resolve(names)
    check_protocol(names["protocol"], run["protocol"], run["dataset"])
    check_whole_writers(names["protocol"], run["protocol"], run["partition"])
    return run


def find_inputs(asked: argparse.Namespace, run: dict, *wanted: str) -> dict[str, Path]:
    """Return the paths of the inputs `wanted`, by name; UsageError if one is missing."""
    paths = {name: asked.results / path for name, path in input_paths(run).items()}
    for text in asked.inputs:
        name, _, path = text.partition("=")
        known("input", name, INPUTS)
        paths[name] = Path(path)
    name = RUN.format(**run["name"])
    how = {"data": run["dataset"], "weights": run["protocol"].get("model")}
    for one in (name_ for name_ in wanted if name_ in paths):
        require(paths[one], f"python -m fedgrid.{MAKERS.get(one, one)} {how.get(one, name)}")
    return {one: paths[one] for one in wanted if one in paths}


MAKERS = {"metrics": "train"}  # commands that have another name than the input they make


def work_on(run: dict, paths: dict[str, Path], *outputs: Path) -> records.Work:
    """Return the work of a stage for its record, without pretrained models: they are temporary."""
    inputs = [path for name, path in paths.items() if name != "pretrain"]
    return records.Work(outputs, inputs, run)


def require(path: Path, how: str) -> Path:
    """Return `path` if it exists; else raise a UsageError that says how to make it."""
    if not path.exists():
        raise UsageError(f"{path} is missing: make it with `{how}`")
    return path


def work_key(stage: str, run: dict, paths: dict[str, Path]) -> str:
    """Return a hash of the resolved run, its code and its inputs, to recognise finished work.

    The names of the run are left out: the same work under other names has the same hash.
    """
    content = {key: value for key, value in run.items() if key != "name"}
    parts = [json.dumps(content, sort_keys=True), source.fingerprint(*stage_modules(stage, run))]
    parts += [records.checksum(path) for path in paths.values()]
    return sha256("\n".join(parts).encode()).hexdigest()
