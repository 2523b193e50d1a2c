"""The stages of a run, one after the other, in this process."""

import json
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedgrid.engine.round import Engine
from fedgrid.federation import seeds
from fedgrid.federation.protocols import list_needed_stages
from fedgrid.method import Method
from fedgrid.notebook.result import Opened, Result, find_models, read_result
from fedgrid.notebook.session import save_on_interrupt
from fedgrid.runtime import files, records
from fedgrid.runtime.resolved import Run
from fedgrid.runtime.watch import progress
from fedgrid.store.identity import changed_parts, input_of
from fedgrid.study.command import Machine
from fedgrid.study.paths import RUN, input_paths
from fedgrid.training import results as written
from fedgrid.training.build import build_engine
from fedgrid.training.rounds import rounds


def train_run(
    spec: Run, own: Method | None, paths: dict[str, Path], folder: Path, machine: Machine
) -> Result:
    """Train a run whose inputs are there; return its result."""
    if own:
        with TemporaryDirectory(prefix="fedgrid.") as temporary:
            last = train_own(spec, own, paths, Path(temporary), machine)
            return read_result(Path(temporary), own, paths, lambda: last)
    with save_on_interrupt():
        run_stage("train", spec, folder, machine)
    out = folder / "runs" / RUN.format(**spec["name"])
    return read_result(out, None, paths, partial(find_models, spec, paths, folder))


def make_inputs(spec: Run, folder: Path, root: Path, machine: Machine) -> dict[str, Path]:
    """Make those inputs of a run that are missing or stale; return the paths of all by name.

    If several processes need the same input, one makes it and the others wait.
    """
    paths = {name: folder / path for name, path in input_paths(spec).items() if name != "metrics"}
    names = [n for n in ("weights", "data", "partition", *list_needed_stages(spec)) if n in paths]
    again = False
    for name in names:
        if is_current(paths[name], folder, again):
            continue
        with files.alone(paths[name].with_name(f".{paths[name].name}")):
            if not is_current(paths[name], folder, again):  # no other process has just made it
                make_input(name, spec, folder, paths[name], root, machine)
                again |= name != "weights"
    return {name: paths[name] for name in names}


def make_input(name: str, spec: Run, folder: Path, out: Path, root: Path, machine: Machine) -> None:
    """Make one input of a run, and what only this input is made of."""
    places = ["--root", str(root), "--out", str(out)]
    if name == "weights":
        protocol = spec["protocol"]
        run_command(name, protocol["model"], "--name", protocol["weights"], *places)
    elif name == "data":
        run_command(name, spec["dataset"], *places)
    else:
        for stage in ["pretrain"] * (name == "saliency") + [name]:
            run_stage(stage, spec, folder, machine)


def is_current(made: Path, folder: Path, again: bool = False) -> bool:
    """Whether a file exists whose code, data and inputs have not changed since it was made.

    A file without a record was made by other means, and is taken as it is, unless an input of it
    has just been made again. A folder is judged by its `meta.json`.
    """
    made = made / "meta.json" if made.is_dir() else made
    if not made.exists():
        return False
    try:
        record = json.loads(records.path(made).read_text())
    except FileNotFoundError:
        return not again
    except ValueError:  # a damaged record
        return False
    gone = [name for name in record["inputs"] if not input_of(name, folder).exists()]
    return not gone and not any(changed_parts(record, folder))


def run_stage(stage: str, spec: Run, folder: Path, machine: Machine) -> None:
    """Run the command of a stage of a run."""
    options = {} if stage == "partition" else machine._asdict()
    more = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    run_command(stage, json.dumps(spec), "--results", str(folder), *more)


def run_command(stage: str, *arguments: str) -> None:
    """Run a command in this process, and write the record of its work."""
    began, work = time.monotonic(), import_module(f"fedgrid.commands.{stage}").main([*arguments])
    if work:
        records.write(work, records.Command([f"fedgrid.commands.{stage}", *arguments], began))


def train_own(spec: Run, own: Method, paths: dict, out: Path, machine: Machine) -> Opened:
    """Train a method of the notebook, and write the files of its run; return its last state."""
    plain, _ = build_engine(spec, paths, machine)
    make_model, data = plain.architecture.make, plain.federation
    engine = Engine(
        make_model, own, spec["protocol"], data, machine.backend, compile=machine.compile
    )
    start = engine.start(seeds.seed("model", *data.names))
    history: list[dict[str, Any]] = []
    last, began = start, time.monotonic()
    with progress.Rounds(0, spec["protocol"]["rounds"]) as bar:
        for last in rounds(engine, start, history):  # noqa: B007
            bar.step(history[-1])
    facts = written.run_facts(engine, time.monotonic() - began, 0, last, machine.threads)
    whole = replace(last, server=engine.complete(engine.evaluation.deployed(last)))
    written.write(out, whole, history, {"run": spec} | facts)
    return engine, last
