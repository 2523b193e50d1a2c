"""Train one run in this process, as in a notebook: `fedgrid.run`. No Snakemake is needed.

The stages are those of the commands, one after the other, so the numbers are those of the same run
on the command line, to the byte.
"""

import json
import signal
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

import pandas as pd
import torch
from safetensors.torch import load_file
from torch import nn

from fedgrid import models
from fedgrid.engine.round import Engine
from fedgrid.federation import seeds
from fedgrid.method import Method
from fedgrid.runtime import cli, own_data, progress, records, source
from fedgrid.runtime.names import UsageError, known, listed, registered, shown
from fedgrid.study.checks import check_keywords, needs_client_test
from fedgrid.study.command import Machine, run_of_names
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import needed_stages
from fedgrid.study.paths import RUN, input_paths
from fedgrid.study.protocol import PROTOCOL, has_client_test
from fedgrid.study.reading import CONFIG, laid_over, read_config, read_studies
from fedgrid.study.variants import checked_text
from fedgrid.training import results as written
from fedgrid.training.build import build_engine, build_method, build_part
from fedgrid.training.rounds import rounds

PLAIN = "fedavg"  # whose names a method of the notebook has while its run is resolved


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
        module = self.build()
        module.load_state_dict({name: self.parameters[name] for name in module.state_dict()})
        return module.eval()

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
    config: dict | None = None,
    **values: Any,
) -> Result:
    """Train a run in this process, and return its result.

    `method` is the name of a method or variant, or a `Method`, which needs a `name`. `values` are
    fields of the protocol, such as rounds=5, and hyper-parameters of the method, such as mu=0.1.
    `config` has entries as in config.yaml, such as `protocols` and `variants`.

    With a folder `results`, all files are kept there as the commands keep them: a finished run is
    found again, and an interrupted one goes on. Without it they are in a temporary folder. The run
    of a `Method` is never kept, because no file has its code. `device`, `backend` and `threads`
    change numbers by rounding only.

    By default `method` is FedAvg, and `data_root` is the folder `data`. It works in the main thread
    only. Raises UsageError for an unknown name or value.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("fedgrid.run works in the main thread only: use processes instead")
    own = method if isinstance(method, Method) else None
    config = own_data.give(laid_over(read_config(CONFIG), config or {}) | {"dataset": dataset})
    source.forget()
    (dataset,) = listed(config["dataset"])
    names = {"dataset": dataset, "partition": partition, "seed": seed, "protocol": protocol}
    names["method"] = check_name(name) if own else method
    spec = resolve(names, values, config, own)
    machine = Machine(device, backend, threads)
    with place_for(results) as folder, unchanged_process():
        paths = make_inputs(spec, folder, Path(data_root), machine)
        if own:
            out = folder / "own"
            train_own(spec, own, paths, out, machine)
        else:
            out = folder / "runs" / RUN.format(**spec["name"])
            make("train", spec, folder, *options(machine))
        return read_result(out, own or build_method(spec), paths)


def load_method(name: str, **values: Any) -> Method:
    """Return the `Method` of a file of fedgrid/methods/, to be combined with another by `|`."""
    known("method", name, registered("methods"))
    check_keywords("load_method", name, values)
    return build_part(name, values)


def list_names(kind: str) -> list[str]:
    """Return the names of `methods`, `datasets`, `models`, `partitions`, `protocols`, `studies`."""
    studies = read_studies()
    other = {"protocols": Grid(studies).protocols, "studies": studies}
    kinds = ("methods", "datasets", "models", "partitions", *other)
    return sorted(other[kind]) if kind in other else registered(known("kind of name", kind, kinds))


# -- the run --------------------------------------------------------------------------------------


def check_name(name: str) -> str:
    """Return the name of a notebook's method; UsageError if it has none, or that of a file."""
    if not name:
        raise UsageError("a Method needs a name: give one, such as name='mine'")
    if name in registered("methods"):
        raise UsageError(f"name={name!r} is a method of fedgrid already: give another name")
    if not name.replace("_", "").replace("+", "").isalnum():
        raise UsageError(f"name={shown(repr(name))} may have only letters, digits, _ and +")
    return name


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
        check_own(names["method"], spec["protocol"], own)
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


def check_own(name: str, protocol: dict, own: Method) -> None:
    """Raise a UsageError if the protocol lacks what a notebook's method needs."""
    if (own.private or own.evaluate) and not has_client_test(protocol):
        raise UsageError(needs_client_test(name))


# -- the stages -----------------------------------------------------------------------------------


@contextmanager
def place_for(results: str | Path | None) -> Iterator[Path]:
    """Yield the folder of results, or one that is removed at the end."""
    if results is not None:
        yield Path(results)
    else:
        with TemporaryDirectory(prefix="fedgrid.") as folder:
            yield Path(folder)


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore at the end what training sets for its process: threads, tiny numbers, signals."""
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        signal.signal(signal.SIGTERM, handler)


def make_inputs(spec: dict, folder: Path, root: Path, machine: Machine) -> dict[str, Path]:
    """Make those inputs of a run that are missing; return the paths of all by name."""
    paths = {name: folder / path for name, path in input_paths(spec).items() if name != "metrics"}
    model, weights = spec["protocol"]["model"], spec["protocol"]["weights"]
    originals = ["--root", str(root), "--out"]
    if not (paths["data"] / "meta.json").exists():
        command("data", spec["dataset"], *originals, str(paths["data"]))
    if "weights" in paths and not paths["weights"].exists():
        command("weights", model, "--name", weights, *originals, str(paths["weights"]))
    needed = needed_stages(spec)
    before = ["pretrain"] if "saliency" in needed else []
    for stage in ["partition", *before, *needed]:
        if not paths[stage].exists():
            make(stage, spec, folder, *(options(machine) if stage != "partition" else ()))
    return {n: paths[n] for n in ("data", "partition", "weights", *needed) if n in paths}


def make(stage: str, spec: dict, folder: Path, *more: str) -> None:
    """Run the command of a stage of a run."""
    command(stage, json.dumps(spec), "--results", str(folder), *more)


def command(stage: str, *arguments: str) -> None:
    """Run a command in this process, and write the record of its work."""
    work = import_module(f"fedgrid.{stage}").main([*arguments])
    if work:
        records.write(work)


def options(machine: Machine) -> list[str]:
    """Return the machine as the options of a command."""
    return [text for key, value in machine._asdict().items() for text in (f"--{key}", str(value))]


def train_own(spec: dict, own: Method, paths: dict, out: Path, machine: Machine) -> None:
    """Train a method of the notebook, and write the files of its run."""
    plain, _ = build_engine(spec, paths, machine)
    make_model, data = plain.architecture.make, plain.federation
    engine = Engine(make_model, own, spec["protocol"], data, machine.backend)
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
    tables = {name: pd.read_csv(out / f"{name}.csv") for name in TABLES}
    private = () if method.served else method.private
    shared = load_file(out / "model.safetensors")
    shared = {name: value for name, value in shared.items() if not name.startswith(private)}
    meta = json.loads((paths["data"] / "meta.json").read_text())
    build = partial(empty_model, summary["run"], method, meta)
    about = {"spec": summary["run"], "summary": summary}
    return Result(**tables, **about, parameters=shared, private=private, build=build)


TABLES = ("metrics", "clients", "predictions")


def empty_model(spec: dict, method: Method, meta: dict) -> nn.Module:
    """Return the server's network of a run with other weights, and what the method adds to it."""
    shape, tokens = tuple(meta["shape"]), meta.get("tokens", 0)
    made = models.build(spec["protocol"]["model"], shape, meta["classes"], tokens=tokens)
    made = method.architecture(made) if method.architecture else made
    return method.served(made) if method.served else made
