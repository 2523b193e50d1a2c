"""The result of a run in a notebook: tables, model, settings, and the models of its clients."""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from torch import nn

from fedgrid import models
from fedgrid.engine import prediction
from fedgrid.engine.architecture import choose_names, list_beginnings
from fedgrid.engine.client_evaluation import evaluated_model
from fedgrid.engine.prediction import Inputs
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState, fill
from fedgrid.federation.stored import open_data, read_statistics
from fedgrid.method import Method, Model
from fedgrid.notebook.session import isolate_settings
from fedgrid.runtime.names import UsageError, shown
from fedgrid.runtime.resolved import Run
from fedgrid.stages.interpolation import last_state
from fedgrid.stages.train import ended_states
from fedgrid.store.tables import read_typed
from fedgrid.study.command import Machine
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import RUN
from fedgrid.training import results as written
from fedgrid.training.build import build_engine, build_method

TABLES = ("metrics", "clients", "predictions")
Opened = tuple[Engine, RunState]  # of a run, and its state after the last round
CPU = Machine("cpu", "loop")


class OwnModels:
    """The models by which clients are evaluated after the last round; they are made when asked.

    `exist` says whether the method gives clients models of their own.
    """

    def __init__(self, find: Callable[[], Opened], exist: bool):
        self._find, self.exist = find, exist

    @cached_property
    def opened(self) -> Opened:
        """The engine and the last state; UsageError if the state was not kept."""
        with isolate_settings():
            return self._find()

    def hold(self) -> None:
        """Read the last state into memory, because its files are about to be removed."""
        problem = UsageError("a copy of this result has no models of clients: train with `results`")
        try:
            if self.exist:
                engine, state = self.opened
                self.opened = engine, replace(state, memory={**state.memory})
        except UsageError as found:
            problem = found
        self._find = partial(fail, problem)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: it opens the files of the run again."""
        return {name: value for name, value in vars(self).items() if name != "opened"}

    def parameters(self, client: int) -> Model:
        """Return a client's model; UsageError if there is no such client, or it has none."""
        if not self.exist:
            raise UsageError(
                "clients of this method have no models of their own: take the server's model"
            )
        engine, state = self.opened
        last = len(engine.federation.members) - 1
        if client not in range(last + 1):
            raise UsageError(f"there is no client {shown(client)}: the clients are 0 to {last}")
        with isolate_settings():
            model = evaluated_model(engine.method, engine.population.idle_client(state, client))
            return {name: tensor.cpu() for name, tensor in engine.complete(model).items()}


def find_models(spec: Run, paths: dict[str, Path], folder: Path) -> Opened:
    """Return the engine of a run in a folder of results, and its last state, on the CPU."""
    run, name = run_of_stage("train", spec), RUN.format(**spec["name"])
    out, checkpoint = folder / "runs" / name, folder / f"checkpoints/runs/{name}.safetensors"
    engine, _ = build_engine(run, paths, CPU)
    ended = ended_states(run, paths, checkpoint, folder)
    rounds = written.read_summary(out)["rounds"]
    return engine, last_state(ended, rounds, out / "metrics.csv", checkpoint)


def fail(problem: UsageError) -> Any:
    """Raise the error."""
    raise problem


@dataclass(frozen=True)
class Result:
    """A finished run: its tables, its model, its settings."""

    metrics: pd.DataFrame  # a row per evaluated round: accuracy in 0..1, loss, ...
    clients: pd.DataFrame  # a row per evaluated round and client; empty without tests of clients
    predictions: pd.DataFrame  # a row per evaluated round and class: predicted test images
    spec: Run  # the resolved run: protocol, method, dataset, partition, seed
    summary: dict[str, Any]  # machine, versions, seconds, whether it diverged
    parameters: dict[str, torch.Tensor]  # the server's last model by the names of its entries
    private: list[str]  # the names of entries that the server has no values for
    build: Callable[[], nn.Module]  # returns the server's network, with other weights
    inputs: Inputs  # what samples of the dataset are, and how the protocol normalises them
    own_models: OwnModels  # the models of clients
    build_own: Callable[[], nn.Module]  # returns a client's network, with other weights

    @cached_property
    @isolate_settings()
    def model(self) -> nn.Module:
        """The server's last model, in evaluation mode: normalised inputs -> features, logits.

        UsageError if clients keep a part of it, because the server then has no complete model.
        """
        if self.private:
            kept = list_beginnings(self.private)
            raise UsageError(
                f"the server has no complete model, because clients keep {kept} for themselves: "
                "use `parameters`, which has what all clients share, or `client_model`"
            )
        return fill(self.build(), self.parameters).eval()

    @isolate_settings()
    def client_model(self, client: int) -> nn.Module:
        """Return the model by which a client is evaluated after the last round, as `model` is.

        It has what the client keeps for itself, and is fitted to the client if the method does
        that. UsageError if the method gives clients no models of their own.
        """
        return fill(self.build_own(), self.own_models.parameters(client)).eval()

    @isolate_settings()
    def features(self, samples: Any, client: int | None = None) -> np.ndarray:
        """Return the features (n, D) of samples: what the last layer of the model is given.

        The model is the server's last one, or that of a client. `samples` are as in `predict`.
        """
        model = self.model if client is None else self.client_model(client)
        return prediction.forward(model, self.inputs, samples)[0].numpy()

    @isolate_settings()
    def predict(
        self, samples: Any, probabilities: bool = False, client: int | None = None
    ) -> np.ndarray:
        """Return the class (n,) that the server's last model predicts for each sample.

        With `client` it is the model of this client (`client_model`).
        `samples` are as they are in the data, not normalised: images uint8 (n, channels, height,
        width), in data of one's own also floats or vectors, or tokens (n, length). They are
        normalised as in the run, and evaluated in parts like the test set, in single precision on
        the CPU. With `probabilities` the result is the probability of each class, float32 (n, K).
        The class is -1 where these are not numbers, as in a run that diverged. UsageError for
        other samples, and where `model` raises one.
        """
        model = self.model if client is None else self.client_model(client)
        predicted = prediction.predict(model, self.inputs, samples)
        return (predicted if probabilities else prediction.classes(predicted)).numpy()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: no network of a notebook's Method that cannot be pickled."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        try:
            pickle.dumps(self.build)
        except Exception:  # of any kind, by the objects that the Method's functions hold
            problem = UsageError("a copy of this result has no network: its Method does not pickle")
            state |= dict.fromkeys(("build", "build_own"), partial(fail, problem))
        return state

    @property
    def accuracy(self) -> float:
        """The accuracy of the last evaluated round, in 0..1; NaN if the server has no model."""
        return float(self.metrics["accuracy"].iloc[-1])

    @property
    def own_accuracy(self) -> float:
        """The mean accuracy of clients' own models on their own tests in the last evaluated round.

        It is in 0..1, and clients count by their test samples; NaN if clients have no own models.
        """
        if not (self.own_models.exist and "own_weighted" in self.metrics):
            return float("nan")
        return float(self.metrics["own_weighted"].iloc[-1])

    def __repr__(self) -> str:
        name, rounds = RUN.format(**self.spec["name"]), self.summary["rounds"]
        lost = self.summary["diverged"]
        found = {"accuracy": self.accuracy, "own accuracy": self.own_accuracy}
        there = {words: value for words, value in found.items() if not math.isnan(value)}
        said = ", ".join(f"{words} {value:.4f}" for words, value in there.items())
        score = f"diverged in round {lost}" if lost else said or "accuracy nan"
        return (
            f"<fedgrid run {name}: {score} after {rounds} rounds, {self.summary['seconds']:.1f} s>"
        )


def read_result(
    out: Path, own: Method | None, paths: dict[str, Path], find: Callable[[], Opened]
) -> Result:
    """Return the result in the files of a finished run; `find` opens its last state.

    `own` is the Method of a notebook, None for one that the run names.
    """
    summary = written.read_summary(out)
    tables = {name: read_typed(out / f"{name}.csv") for name in TABLES}
    entries = load_file(out / "model.safetensors")
    data, spec = open_data(paths["data"]), summary["run"]
    statistics = read_statistics(data, spec["protocol"]["normalization"], paths["data"])
    inputs = prediction.inputs_of(data, statistics)
    method = own or build_method(spec)
    build = partial(build_network, spec, own, inputs, data.classes)
    build_own = partial(build, whole=True)
    kept = () if method.served else method.private
    private = choose_names(kept, build(), entries) if kept else []
    shared = {name: value for name, value in entries.items() if name not in private}
    clients = OwnModels(find, bool(method.private or method.personal or method.begin))
    facts = {"spec": spec, "summary": summary, "inputs": inputs, "own_models": clients}
    facts |= {"build": build, "build_own": build_own}
    return Result(**tables, **facts, parameters=shared, private=private)


def build_network(
    spec: Run, own: Method | None, inputs: Inputs, classes: int, whole: bool = False
) -> nn.Module:
    """Build the network of a run's server with initial weights, as the method changes it.

    With `whole` it is that of a client.
    """
    name, method = spec["protocol"]["model"], own or build_method(spec)
    made: nn.Module = models.build(name, inputs.shape, classes, tokens=inputs.tokens)
    made = method.architecture(made) if method.architecture else made
    return method.served(made) if method.served and not whole else made
