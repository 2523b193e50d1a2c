"""Train one run in this process, as in a notebook: `fedgrid.run`. No Snakemake is needed.

The stages are those of the commands, one after the other, so the numbers are those of the same run
on the command line, to the byte.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from torch import nn

from fedgrid import models
from fedgrid.commands import verify
from fedgrid.commands.collect import read_rows
from fedgrid.engine import prediction
from fedgrid.engine.device import DEVICES
from fedgrid.engine.prediction import Inputs
from fedgrid.engine.round import Engine
from fedgrid.engine.state import fill
from fedgrid.federation import seeds
from fedgrid.federation.stored import open_data, read_statistics
from fedgrid.method import Method
from fedgrid.notebook.session import forget_edited, sentences, stoppable, unchanged_process
from fedgrid.runtime import cli, files, records
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, known, listed, registered, shown
from fedgrid.runtime.watch import progress
from fedgrid.study.checks import check_keywords
from fedgrid.study.command import BACKENDS, COMPILE, Machine, run_of_names
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import needed_stages, stage_modules
from fedgrid.study.paths import RUN, input_paths
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.reading import CONFIG, check_config, laid_over, read_config, read_studies
from fedgrid.study.variants import checked_text
from fedgrid.training import results as written
from fedgrid.training.build import build_engine, build_method, build_part, check_method
from fedgrid.training.rounds import rounds

PLAIN = "fedavg"  # whose names a method of the notebook has while its run is resolved
TABLES = ("metrics", "clients", "predictions")


@dataclass(frozen=True)
class Result:
    """A finished run: its tables, its model, its settings."""

    metrics: pd.DataFrame  # a row per evaluated round: accuracy in 0..1, loss, ...
    clients: pd.DataFrame  # a row per evaluated round and client; empty without tests of clients
    predictions: pd.DataFrame  # a row per evaluated round and class: predicted test images
    spec: dict[str, Any]  # the resolved run: protocol, method, dataset, partition, seed
    summary: dict[str, Any]  # machine, versions, seconds, whether it diverged
    parameters: dict[str, torch.Tensor]  # the server's last model by the names of its entries
    private: tuple[str, ...]  # the beginnings of names that the server has no values for
    build: Callable[[], nn.Module]  # returns the server's network, with other weights
    inputs: Inputs  # what samples of the dataset are, and how the protocol normalises them

    @cached_property
    def model(self) -> nn.Module:
        """The server's last model, in evaluation mode: normalised inputs -> features, logits.

        UsageError if clients keep a part of it, because the server then has no complete model.
        """
        if self.private:
            raise UsageError(
                f"the server has no complete model, because clients keep {', '.join(self.private)} "
                "for themselves: use `parameters`, which has what all clients share"
            )
        return fill(self.build(), self.parameters).eval()

    def predict(self, samples: Any, probabilities: bool = False) -> np.ndarray:
        """Return the class (n,) that the server's last model predicts for each sample.

        `samples` are as they are in the data, not normalised: images uint8 (n, channels, height,
        width), in data of one's own also floats or vectors, or tokens (n, length). They are
        normalised as in the run, and evaluated in parts like the test set, in single precision on
        the CPU. With `probabilities` the result is the probability of each class, float32 (n, K).
        The class is -1 where these are not numbers, as in a run that diverged. UsageError for
        other samples, and where `model` raises one.
        """
        found = prediction.predict(self.model, self.inputs, samples)
        return (found if probabilities else prediction.classes(found)).numpy()

    @property
    def accuracy(self) -> float:
        """The accuracy of the last evaluated round, in 0..1; NaN if the server has no model."""
        return float(self.metrics["accuracy"].iloc[-1])

    def __repr__(self) -> str:
        name, rounds = RUN.format(**self.spec["name"]), self.summary["rounds"]
        return (
            f"<fedgrid run {name}: accuracy {self.accuracy:.4f} after {rounds} rounds, "
            f"{self.summary['seconds']:.1f} s>"
        )


def run(
    method: str | Method = PLAIN,
    *,
    dataset: str = "digits",
    partition: str = "dir0.1",
    protocol: str = "fedsls-quick",
    seed: int = 0,
    name: str = "",
    results: str | Path | None = None,
    data_root: str | Path = cli.DATA,
    device: str = "auto",
    backend: str = "auto",
    threads: int = 1,
    compile: str = "auto",
    config: dict | None = None,
    **values: Any,
) -> Result:
    """Train a run in this process, and return its result.

    `method` is the name of a method or variant, or a `Method`, which needs a `name`. `values` are
    fields of the protocol, such as rounds=5, and hyper-parameters of the method, such as mu=0.1.
    `config` has entries as in config.yaml, such as `protocols` and `variants`.

    With a folder `results`, all files are kept there as the commands keep them: a finished run is
    found again, and an interrupted one goes on. Without it they are in a temporary folder. The run
    of a `Method` is never kept, because no file has its code. `device`, `backend`,
    `threads` and `compile` change numbers by rounding only.

    By default `method` is FedAvg, and `data_root` is the folder `data`. It works in the main thread
    only. Raises UsageError for an unknown name or value.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("fedgrid.run works in the main thread only: use processes instead")
    own = method if isinstance(method, Method) else None
    names = {"dataset": dataset, "partition": partition, "seed": seed, "protocol": protocol}
    names["method"] = name_of(method, name)
    check_names(names)
    machine = check_machine(Machine(device, backend, threads, compile))
    with unchanged_process(), sentences():
        config = known_data(config, dataset)
        (names["dataset"],) = listed(config["dataset"])
        spec = resolve(names, plain(values), config, own)
        with place_for(results) as folder:
            paths = make_inputs(spec, folder, Path(data_root).expanduser(), machine)
            return trained(spec, own, paths, folder, machine)


def load_method(name: str, **values: Any) -> Method:
    """Return the `Method` of a file of fedgrid/methods/, to be combined with another by `|`.

    UsageError for a method that needs earlier stages, which only a name can ask for.
    """
    known("method", name, registered("methods"))
    values = plain(values)
    check_keywords("load_method", name, values)
    if needs := source.literal(f"methods.{name}", "NEEDS", ()):
        raise UsageError(
            f"{name} needs the stage {needs[0]}, which is made for names only: give its name to "
            "fedgrid.run, or write a file for the method that you combine it with"
        )
    return build_part(name, values)


def list_names(kind: str) -> list[str]:
    """Return the names of `methods`, `datasets`, `models`, `partitions`, `protocols`, `studies`."""
    studies = read_studies()
    other = {"protocols": Grid(studies).protocols, "studies": studies}
    kinds = ("methods", "datasets", "models", "partitions", *other)
    return sorted(other[kind]) if kind in other else registered(known("kind of name", kind, kinds))


# -- the run --------------------------------------------------------------------------------------


def name_of(method: str | Method, name: str) -> str:
    """Return the name of a method; UsageError if a notebook's has none, or that of a file."""
    if not isinstance(method, Method):
        if name:
            raise UsageError("`name` is for a Method of the notebook: leave it out for a name")
        return method
    if not name:
        raise UsageError("a Method needs a name: give one, such as name='mine'")
    if name in registered("methods"):
        raise UsageError(f"name={name!r} is a method of fedgrid already: give another name")
    if not isinstance(name, str) or not name.replace("_", "").replace("+", "").isalnum():
        raise UsageError(f"name={shown(repr(name))} may have only letters, digits, _ and +")
    return name


def check_names(names: dict) -> None:
    """Raise a UsageError for a name that is no text, and for a seed that is no whole number."""
    for kind, value in names.items():
        if kind != "seed" and not isinstance(value, str):
            what = "a name or a Method" if kind == "method" else "a name"
            raise UsageError(f"{kind} is {shown(repr(value))}: give {what}")
    if not isinstance(names["seed"], int | np.integer) or names["seed"] < 0:
        raise UsageError(f"seed is {shown(repr(names['seed']))}: give a whole number from 0 on")
    names["seed"] = int(names["seed"])


def check_machine(machine: Machine) -> Machine:
    """Return the machine; UsageError for a choice that there is not."""
    known("device", machine.device, DEVICES)
    known("backend", machine.backend, BACKENDS)
    known("compile", machine.compile, COMPILE)
    if not isinstance(machine.threads, int) or machine.threads < 1:
        raise UsageError(f"threads is {shown(repr(machine.threads))}, not at least 1")
    return machine


def known_data(config: dict | None, dataset: str) -> dict:
    """Return the configuration, checked, with its data made known; reload what was edited."""
    if not isinstance(config or {}, dict):
        raise UsageError("config is no mapping: write it as config.yaml has it")
    check_config("config", config or {}, required=False)
    found = own_data.give(laid_over(read_config(CONFIG), config or {}) | {"dataset": [dataset]})
    source.forget()
    forget_edited()
    return found


def plain(values: dict) -> dict:
    """Return values with numpy's numbers as Python's."""
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}


def resolve(names: dict, values: dict, config: dict, own: Method | None) -> dict:
    """Return the resolved run of names and values; UsageError if one is unknown or does not fit."""
    studies = read_studies()
    grid = Grid(studies, entries(config))
    fields, keywords = apart(grid, None if own else names["method"], values)
    if not own:
        names = names | {"method": names["method"] + suffix(keywords, grid, names["method"])}
    protocol, added = with_fields(names["protocol"], fields)
    grid = Grid(studies, entries(laid_over(config, {"protocols": added})))
    spec = run_of_names(names | {"protocol": protocol} | ({"method": PLAIN} if own else {}), grid)
    if own:
        check_method(names["method"], own, spec["protocol"])
        spec |= {"name": spec["name"] | {"method": names["method"]}, "method": {}, "own": {}}
    return spec


def entries(config: dict) -> dict:
    """Return those entries of a configuration that say what names mean."""
    return {key: config[key] or {} for key in ("protocols", "variants") if key in config}


def apart(grid: Grid, method: str | None, values: dict) -> tuple[dict, dict]:
    """Return the values that are fields of the protocol, and those that the method takes.

    A `Method` of the notebook has no name here, and has its values already.
    """
    keywords = grid.hyper_parameters(method) if method else {}
    kind = f"hyper-parameter of {method} or field of a protocol" if method else "protocol's field"
    for key in values:
        known(kind, key, {*keywords, *PROTOCOL})
        if key in keywords and key in PROTOCOL:
            raise UsageError(
                f"{key} is a hyper-parameter of {method} and a field of the protocol: write it "
                f"into one of their names, such as {method}-{key}{values[key]}"
            )
    fields = {key: value for key, value in values.items() if key in PROTOCOL}
    return fields, {key: value for key, value in values.items() if key in keywords}


def suffix(values: dict, grid: Grid, method: str) -> str:
    """Return hyper-parameters as they stand in a method's name."""
    defaults = grid.hyper_parameters(method)
    return "".join(f"-{k}{checked_text(k, v, defaults[k])}" for k, v in values.items())


def with_fields(protocol: str, fields: dict) -> tuple[str, dict]:
    """Return the name of a protocol with other fields, and an entry if a name cannot say them."""
    plain = {k: v for k, v in fields.items() if not isinstance(v, list | dict)}
    name = protocol + "".join(f"-{k}{checked_text(k, v, PROTOCOL[k])}" for k, v in plain.items())
    rest = {k: v for k, v in fields.items() if k not in plain}
    if not rest:
        return name, {}
    number = sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:8]
    return f"{name}-{number}", {f"{name}-{number}": {"base": name} | rest}


# -- the stages -----------------------------------------------------------------------------------


@contextmanager
def place_for(results: str | Path | None) -> Iterator[Path]:
    """Yield the folder of results, or one that is removed at the end."""
    if results is not None:
        yield Path(results).expanduser()
    else:
        with TemporaryDirectory(prefix="fedgrid.") as folder:
            yield Path(folder)


def trained(
    spec: dict, own: Method | None, paths: dict[str, Path], folder: Path, machine: Machine
) -> Result:
    """Train a run whose inputs are there; return its result."""
    if own:
        with place_for(None) as out:
            train_own(spec, own, paths, out, machine)
            return read_result(out, own, paths)
    with stoppable():
        make("train", spec, folder, machine)
    return read_result(folder / "runs" / RUN.format(**spec["name"]), build_method(spec), paths)


def make_inputs(spec: dict, folder: Path, root: Path, machine: Machine) -> dict[str, Path]:
    """Make those inputs of a run that are missing or stale; return the paths of all by name.

    If several processes need the same input, one makes it and the others wait.
    """
    paths = {name: folder / path for name, path in input_paths(spec).items() if name != "metrics"}
    names = [n for n in ("weights", "data", "partition", *needed_stages(spec)) if n in paths]
    again = False
    for name in names:
        if is_current(paths[name], folder, again):
            continue
        with files.alone(paths[name].with_name(f".{paths[name].name}")):
            if not is_current(paths[name], folder, again):  # no other process has just made it
                make_input(name, spec, folder, paths[name], root, machine)
                again |= name != "weights"
    return {name: paths[name] for name in names}


def make_input(
    name: str, spec: dict, folder: Path, out: Path, root: Path, machine: Machine
) -> None:
    """Make one input of a run, and what only this input is made of."""
    places = ["--root", str(root), "--out", str(out)]
    if name == "weights":
        protocol = spec["protocol"]
        command(name, spec, protocol["model"], "--name", protocol["weights"], *places)
    elif name == "data":
        command(name, spec, spec["dataset"], *places)
    else:
        for stage in ["pretrain"] * (name == "saliency") + [name]:
            make(stage, spec, folder, machine)


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
    inputs = {verify.input_of(name, folder): says for name, says in record["inputs"].items()}
    same = all(path.exists() and records.checksum(path) == says for path, says in inputs.items())
    return same and not verify.changed(record["code"])


def make(stage: str, spec: dict, folder: Path, machine: Machine) -> None:
    """Run the command of a stage of a run."""
    more = options(machine) if stage != "partition" else []
    command(stage, spec, json.dumps(spec), "--results", str(folder), *more)


def command(stage: str, spec: dict, *arguments: str) -> None:
    """Run a command in this process, and write the record of its work."""
    began, work = time.monotonic(), import_module(f"fedgrid.{stage}").main([*arguments])
    if work:
        code = modules_of(stage, spec)
        records.write(work, records.Command([f"fedgrid.{stage}", *arguments], code, began))


def modules_of(stage: str, spec: dict) -> list[str]:
    """Return the modules that can change what a stage makes."""
    if stage == "weights":
        own = [stage, f"models.{spec['protocol']['model']}"]
    else:
        own = ["data", f"datasets.{spec['dataset']}"]
        own += stage_modules(stage, spec) if stage != "data" else []
    return sorted(frozenset().union(*(source.counted(module) for module in own)))


def options(machine: Machine) -> list[str]:
    """Return the machine as the options of a command."""
    return [text for key, value in machine._asdict().items() for text in (f"--{key}", str(value))]


def train_own(spec: dict, own: Method, paths: dict, out: Path, machine: Machine) -> None:
    """Train a method of the notebook, and write the files of its run."""
    plain, _ = build_engine(spec, paths, machine)
    make_model, data = plain.architecture.make, plain.federation
    engine = Engine(
        make_model, own, spec["protocol"], data, machine.backend, compile=machine.compile
    )
    start = engine.start(seeds.seed("model", *data.names))
    last, history, began = start, [], time.monotonic()
    with progress.Rounds(0, spec["protocol"]["rounds"]) as bar:
        for last in rounds(engine, start, history):  # noqa: B007
            bar.step(history[-1])
    facts = written.run_facts(engine, time.monotonic() - began, 0, last, machine.threads)
    last = replace(last, server=engine.complete(last.server))
    written.write(out, last, history, {"run": spec} | facts)


def read_result(out: Path, method: Method, paths: dict[str, Path]) -> Result:
    """Return the result in the files of a finished run."""
    summary = written.read_summary(out)
    tables = {name: read_rows(out / f"{name}.csv") for name in TABLES}
    private = () if method.served else method.private
    shared = load_file(out / "model.safetensors")
    shared = {name: value for name, value in shared.items() if not name.startswith(private)}
    data, spec = open_data(paths["data"]), summary["run"]
    statistics = read_statistics(data, spec["protocol"]["normalization"], paths["data"])
    inputs = prediction.inputs_of(data, statistics)
    build = partial(empty_model, spec, method, inputs, data.classes)
    about = {"spec": spec, "summary": summary, "inputs": inputs}
    return Result(**tables, **about, parameters=shared, private=private, build=build)


def empty_model(spec: dict, method: Method, inputs: Inputs, classes: int) -> nn.Module:
    """Return the server's network of a run with other weights, and what the method adds to it."""
    name = spec["protocol"]["model"]
    made = models.build(name, inputs.shape, classes, tokens=inputs.tokens)
    made = method.architecture(made) if method.architecture else made
    return method.served(made) if method.served else made
