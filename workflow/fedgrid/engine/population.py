"""The clients of a run: what each keeps between its rounds, and what a method sees of it."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.gradients import differentiate_batch
from fedgrid.engine.hooks.calling import hooks
from fedgrid.engine.hooks.rules import alike
from fedgrid.engine.optimisers import STATE, Optimiser, named, overlaid
from fedgrid.engine.samples import Samples
from fedgrid.engine.state import RunState, own_model
from fedgrid.federation import seeds
from fedgrid.method import Client, Cohort, Memory, Method, Model, Start
from fedgrid.runtime.resolved import Protocol


class Population:
    """All clients of a run; `start` has the run's beginning once its initial model is drawn.

    Of the trained parameters, `averaged` are those whose optimiser's state the server averages, and
    `own` those whose optimiser's state a client keeps.
    """

    start: Start

    def __init__(
        self, architecture: Architecture, method: Method, protocol: Protocol, samples: Samples
    ):
        self.architecture, self.method, self.protocol = architecture, method, protocol
        self.samples, self.federation = samples, samples.federation
        trained, averages = architecture.trainable, method.average_optimiser
        private = [*self.private(dict.fromkeys(trained))] if averages else []
        self.averaged = [name for name in trained if name not in private] if averages else []
        self.own = trained if protocol["optimiser_state"] == "kept" else private

    def __len__(self) -> int:
        return len(self.federation.members)

    # -- what a method sees of a client ----------------------------------------------------------

    def client(
        self, state: RunState, number: int, model: Model, memory: Memory, steps: int
    ) -> Client:
        """Return a client with this model, and with access to its data."""
        noise = seeds.seed("gradient", *self.federation.names, state.round, number)
        return Client(
            model=model,
            server=own_model(state.server, memory),
            memory=memory,
            shared=state.shared,
            counts=self.federation.counts[number],
            steps=steps,
            round=state.round,
            lr=self.lr(state.round),
            momentum=self.protocol["momentum"],
            architecture=self.architecture.empty,
            total=partial(self.samples.total, number),
            epoch=partial(self.samples.epoch, number, state.round),
            test=partial(self.samples.total_client_test, number),
            gradient=partial(differentiate_batch, self.architecture, noise),
        )

    def idle_client(self, state: RunState, number: int) -> Client:
        """Return a client with the model that it would use next, before it takes part again."""
        memory = self.memory(state, number)
        client = self.client(state, number, own_model(state.server, memory), memory, steps=0)
        if self.method.begin:
            client = replace(client, model=client.model | self.method.begin(client))
        return client

    def lr(self, number: int) -> float:
        """Return the learning rate of a round."""
        return self.protocol["lr"] * self.protocol["lr_decay"] ** number

    # -- what a client keeps ---------------------------------------------------------------------

    def memory(self, state: RunState, client: int) -> Memory:
        """Return a client's memory, or its initial memory if it has never taken part.

        Without `remember` the initial memory of the method stays.
        """
        method, start, later = self.method, self.start, client in state.memory
        if later and (method.remember or not method.memory):
            return state.memory[client]
        kept = method.memory(start, client) if method.memory else {}
        if later:
            return kept | state.memory[client]
        own = {"private": self.private(start.server)} if method.private else {}
        return kept | own | self.first_optimiser(self.own)

    def begin(self, cohort: Cohort, clients: Iterable[Any]) -> list[Memory]:
        """Return every client's memory before the round, without what a placebo takes from it.

        `clients` are the ids of the cohort's clients.
        """
        if self.method.forgets:
            own = [self.draw_private(cohort.round, int(client)) for client in clients]
        elif self.method.resets:
            own = [self.private(self.start.server) for _ in clients]
        else:
            return cohort.before
        pairs = zip(cohort.before, own, strict=True)
        return [self.forget(memory) | {"private": first} for memory, first in pairs]

    def forget(self, memory: Memory) -> Memory:
        """Return a client's memory with the optimiser's first state of its private entries."""
        names = [*self.private(dict.fromkeys(self.own))]
        first = self.first_optimiser(names).get(STATE)
        return memory | ({STATE: overlaid(memory[STATE], first)} if first else {})

    def draw_private(self, *names: Any) -> Model:
        """Return initial weights for the private entries, drawn from the names."""
        drawn = self.architecture.draw(seeds.seed("private", *self.federation.names, *names))
        return self.private(drawn)

    def private(self, model: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of the model that never leave their client."""
        return {name: w for name, w in model.items() if name in self.architecture.private}

    def check_form(self, kept: Memory, client: int) -> None:
        """Refuse a memory after a round that has not the form of the initial one."""
        initial = self.method.memory(self.start, client) if self.method.memory else {}
        with hooks(self.method, "remember")[0].named():
            alike(kept, initial, "the initial memory (`memory`)")

    def first_optimiser(self, names: list[str]) -> Memory:
        """Return the optimiser's state of parameters before the first step, if it has any."""
        if not names:
            return {}
        state = Optimiser(self.protocol).start([self.start.server[name] for name in names])
        return {STATE: named(state, names)} if state else {}
