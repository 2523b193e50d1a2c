"""What the commands that work on a run have in common: the run, its inputs, the machine.

A run is given by its name, `protocol/dataset/partition/method/seed0` as in results/runs/, or as the
resolved run in JSON, as the workflow does.
"""

import argparse
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedgrid.runtime import cli, records
from fedgrid.runtime.code import contract, own_data
from fedgrid.runtime.names import UsageError, known, shown
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.runtime.resolved import (
    Fields,
    Run,
    changed_protocol,
    effective_protocol,
)
from fedgrid.study.checks import (
    check_cohort,
    check_equations,
    check_evaluation,
    check_images,
    check_model,
    check_needs,
    check_partition,
    check_protocol,
    check_server_data,
    check_type,
    check_whole_writers,
)
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.jobs import list_stage_fields, stage_modules
from fedgrid.study.paths import CELLS, INPUTS, RUN, cell_hash, input_paths
from fedgrid.study.protocol import AXES, PROTOCOL, STAGES, known_now
from fedgrid.study.reading import CONFIG, check_schema
from fedgrid.study.variants import read_value, write_value

BACKENDS = ("auto", "loop", "stacked")
COMPILE = ("auto", "on", "off")
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # torch's variable for the folder of compiled code


def run_parser(description: str, *inputs: str) -> argparse.ArgumentParser:
    """Return a parser for a stage of a run; files that are not named are found by convention."""
    parser = cli.parser(description)
    parser.add_argument(
        "run", help="protocol/dataset/partition/method/seed0, or the resolved run as JSON"
    )
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="FIELD=VALUE",
        help="change fields of the protocol, e.g. --set rounds=20 lr=0.1; needs --out DIR",
    )  # fmt: skip
    parser.add_argument(
        "--inputs", nargs="+", action="extend", default=[], metavar="NAME=PATH",
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
    parser.add_argument(
        "--compile", default=os.environ.get("FEDGRID_COMPILE", "auto"), choices=COMPILE,
        help="compile the local step of a stack; auto: on a GPU, for runs long enough",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    return parser


class Machine(NamedTuple):
    """The machine for a command; it changes numbers only by rounding."""

    device: str = "auto"
    backend: str = "auto"
    threads: int = 1
    compile: str = "auto"


def choose_machine(asked: argparse.Namespace) -> Machine:
    """Return the machine that the options of `add_machine` choose.

    The code of torch's compiler goes into the folder of results, where jobs share it.
    """
    os.environ.setdefault(COMPILED, str((asked.results / "compiled").absolute()))
    return Machine(asked.device, asked.backend, asked.threads, asked.compile)


def resolve_run(asked: argparse.Namespace, stage: str) -> Run:
    """Return the resolved run of a stage's arguments."""
    run = run_of_json(asked.run, stage) if asked.run.startswith("{") else run_of_name(asked.run)
    if asked.set and not asked.out:
        raise UsageError("--set needs --out DIR, so that the original run is not overwritten")
    if asked.set:
        set_fields(run, asked.set)
        check_schema("--set", run["protocol"], "study", "protocol")
        check_protocol("--set", run["protocol"], run["dataset"])
    if stage in contract.NEEDED:
        check_images(f"the stage {stage}", run["dataset"])
    check_needs(run["name"]["method"], run["method"], run["dataset"])
    if "model" in run["protocol"]:
        check_model(run["name"]["method"], run["method"], run["protocol"]["model"])
    if stage == "train":
        check_evaluation(run["name"]["method"], run["method"], run["protocol"])
        check_cohort(run["name"]["method"], run["method"], run["protocol"])
        check_server_data(run["name"]["method"], run["method"], run["protocol"])
        check_equations(run["name"]["method"], run["method"], effective_protocol(run))
    return run


def set_fields(run: Run, texts: list[str]) -> None:
    """Change the protocol of a run by texts FIELD=VALUE.

    The run loses the cells of stages that depend on a changed field: their files in these cells are
    made with the original fields.
    """
    before = dict(run["protocol"])
    for field, _, value in (text.partition("=") for text in texts):
        known("field of the protocol", field, before)
        if not value:
            raise UsageError(f"--set {field} has no value: write --set {field}=VALUE")
        given = parse_value(field, value)
        check_type(f"--set {field}", given, before[field])
        run["protocol"] = changed_protocol(run["protocol"], {field: given})
        run.get("own", {}).pop(field, None)
    for stage in [*run.get("cells", ())]:
        if cell_hash(stage, run["protocol"]) != cell_hash(stage, before):
            del run["cells"][stage]


def parse_value(field: str, text: str):
    """Return the YAML value of a text."""
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(f"--set {field}={shown(text)} is not YAML") from None


def run_of_json(text: str, stage: str) -> Run:
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
    run["protocol"] = known_now(run["protocol"])
    for field in list_stage_fields(stage, run):
        if field not in run["protocol"]:
            raise UsageError(f"the run's protocol lacks `{field}`")
        check_type(f"the run's protocol: {field}", run["protocol"][field], PROTOCOL[field])
    return run


# The fields of a resolved run, with an example of each.
SPELLED_OUT = {"name": {"method": "fedavg"}, "protocol": {"rounds": 40}, "dataset": "digits"}
SPELLED_OUT |= {"partition": "dir0.1", "method": {"fedprox": {"mu": 0.01}}, "seed": 0}


def run_of_name(name: str) -> Run:
    """Return the resolved run of a name, by the studies and the config.yaml of this folder."""
    names: Any = dict(zip(AXES, parts := name.strip("/").split("/"), strict=False))
    if len(parts) != len(AXES) or not re.fullmatch("(seed)?[0-9]{1,18}", names["seed"]):
        raise UsageError(
            f"`{shown(name)}` is not the name of a run, which is like "
            "protocol/dataset/partition/method/seed0"
        )
    names["seed"] = int(names["seed"].removeprefix("seed"))
    return run_of_names(names, read_grid(CONFIG))


def run_of_names(names: Mapping[str, Any], everything: Grid) -> Run:
    """Return the resolved run of a name on each axis; UsageError if they do not fit together."""
    known("dataset", names["dataset"], own_data.list_datasets())
    check_partition(names["partition"], names["dataset"])
    run = everything.resolve(names)
    check_protocol(names["protocol"], run["protocol"], run["dataset"])
    check_whole_writers(names["protocol"], run["protocol"], run["partition"])
    return run


def find_inputs(asked: argparse.Namespace, run: Run, *wanted: str) -> dict[str, Path]:
    """Return the paths of the inputs `wanted`, by name; UsageError if one is missing."""
    paths = {name: asked.results / path for name, path in input_paths(run).items()}
    if asked.set:
        del paths["metrics"]  # in the folder of this name is a run with the original fields
    for text in asked.inputs:
        name, _, path = text.partition("=")
        known("input", name, INPUTS)
        paths[name] = Path(path)
    for one in wanted:
        if one in paths and not paths[one].exists():
            require_file(paths[one], write_maker(asked, run, one))
        elif one not in paths and one in BY_NAME:
            refuse_input(asked, run, one)
    return {one: paths[one] for one in wanted if one in paths}


BY_NAME = (*CELLS, "metrics")  # inputs that are found by the name of the run's protocol
MAKERS = {"metrics": "train"}  # commands that have another name than the input they make


def write_maker(asked: argparse.Namespace, run: Run, name: str) -> str:
    """Return the command that makes an input of a run, with the fields of --set."""
    maker, of = MAKERS.get(name, name), {"data": run["dataset"]}
    of["weights"] = run["protocol"].get("model")
    named = of.get(name) or write_name(asked, run, STAGES.get(maker, ()))
    return f"python -m fedgrid {maker} {named}"


def write_name(asked: argparse.Namespace, run: Run, fields: Iterable[str] = PROTOCOL) -> str:
    """Return the run's name with those values of --set, of these fields, that a name can have."""
    name, values = run["name"]["protocol"], Fields(**run["protocol"])
    given = {field: values[field] for field in list_set_fields(asked) if field in fields}
    if given := {field: value for field, value in given.items() if fits_name(field, value)}:
        everything = read_grid(CONFIG)
        found = None if name in everything.protocols else everything.split_protocol(name)
        name, own = found or (name, {})
        parts = (f"-{field}{write_value(value)}" for field, value in (own | given).items())
        name += "".join(parts)
    return RUN.format(**run["name"] | {"protocol": name})


def list_set_fields(asked: argparse.Namespace) -> list[str]:
    """Return the fields that --set changes."""
    return [*dict.fromkeys(text.partition("=")[0] for text in asked.set)]


def fits_name(field: str, value: Any) -> bool:
    """Whether the value of a field can be a part of a protocol's name; a list cannot."""
    return read_value(write_value(value), PROTOCOL[field]) == value


def refuse_input(asked: argparse.Namespace, run: Run, name: str) -> None:
    """Raise a UsageError for an input that the name of the run does not lead to."""
    by_path = f"name a file that was made with these fields by `--inputs {name}=PATH`"
    if not asked.set:
        raise UsageError(f"a run in JSON does not say where its input `{name}` is: {by_path}")
    fields = Fields(**run["protocol"])
    if all(fits_name(field, fields[field]) for field in list_set_fields(asked)):
        instead = f"give the run the name `{write_name(asked, run)}`"
    else:
        instead = (
            f"write a protocol with these fields and `base: {run['name']['protocol']}` under "
            "`protocols` in config.yaml, and give the run a name with this protocol"
        )
    raise UsageError(
        f"the input `{name}` of a run with this name does not have the fields of --set: {instead} "
        f"instead of --set, or {by_path}"
    )


def describe_work(stage: str, run: Run, paths: dict[str, Path], *outputs: Path) -> records.Work:
    """Return the work of a stage for its record, without pretrained models: they are temporary."""
    inputs = [path for name, path in paths.items() if name != "pretrain"]
    return records.Work(outputs, inputs, run, stage_modules(stage, run))


def require_file(path: Path, how: str) -> Path:
    """Return `path` if it exists; else raise a UsageError that says how to make it."""
    if not path.exists():
        raise UsageError(f"{path} is missing: make it with `{how}`")
    return path
