"""Evaluate a run between two rounds: the server's model, and those of the clients."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from fedgrid.engine.client_evaluation import ClientEvaluation, evaluated_model
from fedgrid.engine.evaluation import (
    at_once,
    batches_of_pool,
    batches_of_test_set,
    evaluate,
)
from fedgrid.engine.metrics import AVERAGED, plain
from fedgrid.engine.population import Population
from fedgrid.engine.state import RunState
from fedgrid.federation import seeds
from fedgrid.federation.federation import Pool
from fedgrid.method import Client, Model, Server
from fedgrid.runtime.names import UsageError


class RunEvaluation:
    """Evaluates the states of a run, whose clients are `population`."""

    def __init__(self, population: Population):
        self.population, self.method = population, population.method
        self.architecture, self.protocol = population.architecture, population.protocol
        self.samples, self.federation = population.samples, population.federation
        self.at_once = at_once(self.architecture, self.samples)
        self.last: tuple[RunState | None, Model] = None, {}  # a state and its deployed model

    def evaluate(self, model: Model) -> dict[str, Any]:
        """Return accuracy, loss, predictions and the protocol's metrics on the test set."""
        batches = batches_of_test_set(self.samples, self.at_once)
        asked = self.protocol.get("metrics", ())
        return evaluate(self.architecture.forward_server, self.samples, model, batches, asked)

    def deployed(self, state: RunState) -> Model:
        """Return the model by which the server is evaluated.

        Of the last state it is computed once: a method may train for it.
        """
        if not self.method.deploy:
            return state.server
        if state is not self.last[0]:
            server = self.server(state)
            if self.method.discreet:
                server = replace(server, clients=refuse_clients)
            self.last = state, state.server | self.method.deploy(server)
        return self.last[1]

    def server(self, state: RunState) -> Server:
        """Return the server between two rounds, as the method's functions see it."""
        clients, network = range(len(self.population)), self.architecture
        return Server(
            model=network.of_server(state.server),
            shared=state.shared,
            round=state.round,
            architecture=network.empty_served,
            entries=state.server,
            test=self.samples.total_test,
            clients=lambda: (self.population.idle_client(state, k) for k in clients),
            data=self.samples.of_server(),
            noise=seeds.seed("server", *self.federation.names, state.round),
        )

    def evaluate_validation(self, state: RunState) -> dict[str, float]:
        """Return accuracy and loss on the validation data, if there are any.

        It is the deployed model that is evaluated. If this is not complete without private entries,
        it is each client's own model, on its own validation data.
        """
        if not (pool := self.federation.validation):
            return {}
        if self.architecture.complete_server:
            forward, parts = self.architecture.forward_server, [(self.deployed(state), pool.ids)]
        else:
            forward, parts = self.architecture.forward, self.own_models(state, pool)
        sums = {"accuracy": 0.0, "loss": 0.0}
        for model, ids in parts:
            if len(ids):
                batches = batches_of_pool(pool, ids, self.at_once)
                found = evaluate(forward, self.samples, model, batches)
                sums = {name: sums[name] + len(ids) * found[name] for name in sums}
        return {f"validation_{name}": value / len(pool.ids) for name, value in sums.items()}

    def evaluate_average(self, state: RunState) -> dict[str, float]:
        """Return accuracy and loss of the mean of the last models, on test and validation data.

        The method deploys the mean as it deploys a model. Empty if the protocol averages none.
        """
        if not state.recent:
            return {}
        mean = {name: models.mean(0) for name, models in state.recent.items()}
        state = replace(state, server=mean)
        found = self.evaluate(self.deployed(state)) | self.evaluate_validation(state)
        return {column: found[name] for name, column in AVERAGED.items() if name in found}

    def own_models(self, state: RunState, pool: Pool) -> list[tuple[Model, Tensor]]:
        """Return every client's own model, with the numbers of its samples in a pool."""
        idle = (self.population.idle_client(state, k) for k in range(len(self.population)))
        models = (evaluated_model(self.method, client) for client in idle)
        return [(model, pool.of_client(k)) for k, model in enumerate(models)]

    @property
    def has_own_models(self) -> bool:
        """Whether clients have models that differ from the server's before local training."""
        return bool(self.method.private or self.method.personal or self.method.begin)

    def start_client_evaluation(self) -> ClientEvaluation:
        """Return an evaluation that has not seen any client yet."""
        asked = tuple(self.protocol["metrics"])
        return ClientEvaluation(self.architecture, self.samples, self.method, asked, self.at_once)

    def evaluate_all_clients(self, state: RunState) -> ClientEvaluation:
        """Return the evaluation of all clients, each with the model that it would use next."""
        found = self.start_client_evaluation()
        for number in range(len(self.population)):
            client = partial(self.population.idle_client, state, number)
            found.see(number, client, own=self.has_own_models)
        return found

    def evaluate_server(self, state: RunState) -> dict[str, float | None]:
        """Return the values of the method's `evaluate_server`, if it has any."""
        if not self.method.evaluate_server:
            return {}
        found = self.method.evaluate_server(self.server(state))
        return {name: plain(value) for name, value in found.items()}


def refuse_clients() -> Iterator[Client]:
    """Refuse to show a server the clients' data, which would break a method's guarantee."""
    raise UsageError(
        "the method has a guarantee for clients that send changes of parameters only, and its "
        "`deploy` asks clients for more: leave out the method that has it"
    )
