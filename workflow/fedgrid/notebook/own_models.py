"""The models of a finished run's clients, where they differ from the server's."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from fedgrid.engine.client_evaluation import evaluated_model
from fedgrid.engine.round import Engine
from fedgrid.engine.state import RunState
from fedgrid.method import Model
from fedgrid.notebook.session import isolate_settings
from fedgrid.runtime.names import UsageError, shown
from fedgrid.runtime.resolved import Run
from fedgrid.stages.interpolation import last_state
from fedgrid.stages.train import ended_states
from fedgrid.study.command import Machine
from fedgrid.study.jobs import run_of_stage
from fedgrid.study.paths import RUN
from fedgrid.training import results
from fedgrid.training.build import build_engine

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
    rounds = results.read_summary(out)["rounds"]
    return engine, last_state(ended, rounds, out / "metrics.csv", checkpoint)


def fail(problem: UsageError) -> Any:
    """Raise the error."""
    raise problem
