"""What the commands that work on a run have in common: the run, its inputs, the machine.

A run is given by its name, `protocol/dataset/partition/method/seed0` as in results/runs/, or as the
resolved run in JSON, as the workflow does.
"""

import argparse
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedgrid.federation.protocols import effective_protocol
from fedgrid.runtime import cli, records
from fedgrid.runtime.code import contract
from fedgrid.runtime.names import UsageError, known, shown
from fedgrid.runtime.resolved import Run
from fedgrid.study import checks
from fedgrid.study.grid import Grid, read_grid
from fedgrid.study.jobs import list_stage_fields, stage_modules
from fedgrid.study.paths import CELLS, INPUTS, RUN, input_paths
from fedgrid.study.protocol import AXES, KINDS, known_now
from fedgrid.study.reading import CONFIG
from fedgrid.study.selection import read_seed

BACKENDS = ("auto", "loop", "stacked")
COMPILE = ("auto", "on", "off")
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # torch's variable for the folder of compiled code


def run_parser(description: str, *inputs: str) -> argparse.ArgumentParser:
    """Return a parser for a stage of a run; files that are not named are found by convention."""
    parser = cli.parser(description)
    parser.add_argument(
        "run", help="protocol/dataset/partition/method/seed0, or the resolved run as JSON; values "
        "of fields follow the name of the protocol: fedsls-quick-rounds20-lr0.1"
    )  # fmt: skip
    parser.add_argument(
        "--inputs", nargs="+", action="extend", default=[], metavar="NAME=PATH",
        help=f"paths of inputs ({', '.join(inputs)}) that are not under --results",
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--out", type=Path, help="default: by the run's name, under --results")
    return parser


def add_machine(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
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
    run = run_of_json(asked.run, stage) if asked.run.startswith("{") else run_of_name(asked.run)
    if stage in contract.NEEDED:
        checks.check_images(f"the stage {stage}", run["dataset"])
    name, method, dataset = run["name"]["method"], run["method"], run["dataset"]
    if stage == "train":
        checks.check_method(name, method, effective_protocol(run), dataset)
        return run
    checks.check_needs(name, method, dataset)
    if "model" in run["protocol"]:
        checks.check_model(name, method, run["protocol"]["model"])
    return run


def run_of_json(text: str, stage: str) -> Run:
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
        checks.check_type(f"the run's protocol: {field}", run["protocol"][field], KINDS[field])
    return run


# The fields of a resolved run, with an example of each.
SPELLED_OUT = {"name": {"method": "fedavg"}, "protocol": {"rounds": 40}, "dataset": "digits"}
SPELLED_OUT |= {"partition": "dir0.1", "method": {"fedprox": {"mu": 0.01}}, "seed": 0}


def run_of_name(name: str) -> Run:
    names: Any = dict(zip(AXES, parts := name.strip("/").split("/"), strict=False))
    if len(parts) != len(AXES) or not re.fullmatch("(seed)?(0|[1-9][0-9]{0,17})", names["seed"]):
        raise UsageError(
            f"`{shown(name)}` is not the name of a run, which is like "
            "protocol/dataset/partition/method/seed0"
        )
    names["seed"] = read_seed(names["seed"].removeprefix("seed"))
    return run_of_names(names, read_grid(CONFIG))


def run_of_names(names: Mapping[str, Any], everything: Grid) -> Run:
    everything.check_conditions(names)
    return everything.resolve(names)


def find_inputs(asked: argparse.Namespace, run: Run, *wanted: str) -> dict[str, Path]:
    paths = {name: asked.results / path for name, path in input_paths(run).items()}
    names = [text.partition("=")[0] for text in asked.inputs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--inputs gives `{shown(twice[0])}` twice: give it once")
    for name, text in zip(names, asked.inputs, strict=True):
        known("input", name, INPUTS)
        known("input that this run reads", name, wanted)
        paths[name] = Path(text.partition("=")[2])
    for one in wanted:
        if one in paths and not paths[one].exists():
            of = {"data": run["dataset"], "weights": run["protocol"].get("model")}
            named = of.get(one) or RUN.format(**run["name"])
            require_file(paths[one], f"python -m fedgrid {MAKERS.get(one, one)} {named}")
        elif one not in paths and one in BY_NAME:
            raise UsageError(
                f"a run in JSON does not say where its input `{one}` is: name a file that was made "
                f"with these fields by `--inputs {one}=PATH`"
            )
    return {one: paths[one] for one in wanted if one in paths}


BY_NAME = (*CELLS, "metrics")  # inputs that are found by the name of the run's protocol
MAKERS = {"metrics": "train"}  # commands that have another name than the input they make


def describe_work(stage: str, run: Run, paths: dict[str, Path], *outputs: Path) -> records.Work:
    """Return the work of a stage for its record, without pretrained models: they are temporary."""
    inputs = [path for name, path in paths.items() if name != "pretrain"]
    return records.Work(outputs, inputs, run, stage_modules(stage, run))


def require_file(path: Path, how: str) -> Path:
    if not path.exists():
        raise UsageError(f"{path} is missing: make it with `{how}`")
    return path
