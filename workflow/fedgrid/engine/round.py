"""One round of federated learning, for every method: send, train the cohort, aggregate.

The clients between their rounds are in `population.py`, and what is measured between two rounds is
in `run_evaluation.py`. A backend (`backends/`) takes the local steps of a round's clients.

BatchNorm's running statistics are averaged with the round's weights scaled to sum to 1, also where
a method aggregates parameters in another way: only such a mean of variances is a variance.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedgrid.engine import backends
from fedgrid.engine.aggregation import Kept, Running, Weights, start_sum, weigh
from fedgrid.engine.architecture import Architecture
from fedgrid.engine.batches import check_batches
from fedgrid.engine.client import Clients
from fedgrid.engine.client_evaluation import ClientEvaluation
from fedgrid.engine.evaluation import join
from fedgrid.engine.hooks import calling
from fedgrid.engine.hooks.calling import checked, unchanged_by_steps, untouched_generators
from fedgrid.engine.hooks.trial import try_step
from fedgrid.engine.operations import count_around, count_operations
from fedgrid.engine.optimisers import STATE, of_entries
from fedgrid.engine.population import Population
from fedgrid.engine.run_evaluation import RunEvaluation
from fedgrid.engine.samples import Samples
from fedgrid.engine.state import RunState, add_to_log, effective, moved, own_model
from fedgrid.engine.traffic import count_bytes, count_traffic
from fedgrid.federation import cohorts, conditions, schedule, seeds
from fedgrid.federation.federation import Federation
from fedgrid.method import (
    Aggregated,
    Candidates,
    Cohort,
    Later,
    Memory,
    Method,
    Model,
    Start,
    relative,
)
from fedgrid.runtime.names import UsageError, known, registered
from fedgrid.runtime.resolved import Protocol

log = logging.getLogger(__name__)


class Engine:
    """A round of FedAvg with a method's changes; `make(seed)` returns a module with new weights."""

    def __init__(
        self,
        make: Callable[[int], nn.Module],
        method: Method,
        protocol: Protocol,
        federation: Federation,
        backend: str = "auto",
        artifacts: Memory | None = None,
        compile: str = "off",
    ):
        self.method = method = checked(method, federation.images.device)
        self.protocol, self.federation = protocol, federation
        self.artifacts, self.device = artifacts or {}, federation.images.device
        self.dtype, shape = federation.mean.dtype, tuple(federation.images.shape[1:])
        self.architecture = Architecture(make, method, protocol, shape, self.device, self.dtype)
        self.samples = Samples(federation, protocol, self.architecture.layout)
        entries = self.architecture.parameters, self.architecture.statistics
        self.sent = tuple(map(self.public, entries))
        self.is_free = backend == "auto"  # to choose another backend
        if self.is_free:
            backend = backends.best(self.architecture.live, self.device)
        fused = backends.compiles(compile, backend, self.device, *self.count_steps())
        self.use(backend, fused)
        moving = [name for name in self.sent[0] if name in self.architecture.trainable]
        self.attack = conditions.Attack(
            protocol, len(federation.members), moving, *federation.names
        )
        self.traffic: dict[str, int] = {}  # bytes of a round, from its first round on
        self.operations: float | None = None  # of a sample in a local step, if asked for
        self.around: float | None = None  # of a sample before and after the local steps
        self.tried = False  # whether the method's functions have worked in a round
        check_batches(self.architecture, self.samples)
        self.population = Population(self.architecture, method, protocol, self.samples)
        self.evaluation = RunEvaluation(self.population)

    def use(self, backend: str, fused: bool = False) -> None:
        """Train by this backend from now on; with `fused`, its local step is compiled."""
        self.backend_name = known("backend", backend, registered("engine/backends"))
        file = import_module(f"fedgrid.engine.backends.{backend}")
        parts = self.architecture, self.method, self.protocol, self.samples
        self.backend = file.Backend(*parts, fused)

    def count_steps(self) -> tuple[int, int]:
        """Return how many local steps a client could take in the run, and in how many stacks.

        The protocol of a stage that does not train has no rounds.
        """
        protocol, population = self.protocol, len(self.federation.members)
        if "rounds" not in protocol:
            return 0, 1
        size = protocol["batch"], protocol["smallest_batch"]
        batches = {schedule.count_batches(len(own), *size) for own in self.federation.members}
        each = {schedule.steps(number, protocol) for number in batches if number}
        cohort = cohorts.size(population, protocol["participation"], protocol["sampler"])
        stacks = backends.count_stacks(cohort) if len(each) > 1 else 1
        return max(each, default=0) * protocol["rounds"], stacks

    def start(self, seed: int) -> RunState:
        """Return the state before the first round, with the initial model drawn from `seed`."""
        self.seed, server = seed, self.architecture.draw(seed)
        sent = [name for name in self.architecture.parameters if name in self.sent[0]]
        counts = self.federation.counts
        sizes, rounds = counts.sum(1).to(self.dtype), self.protocol.get("rounds", 0)
        share, sampler = self.protocol.get("participation", 1.0), self.protocol.get("sampler", "")
        cohort = cohorts.size(len(counts), share, sampler)
        first = Start(server, len(counts), sizes, counts, rounds, cohort, self.random, sent)
        self.population.start = first
        shared = self.method.shared(first) if self.method.shared else {}
        optimiser = self.population.first_optimiser(self.population.averaged)
        return RunState(server, shared | optimiser)

    def random(self, client: int) -> Model:
        """Return initial weights drawn for this client, and leave PyTorch's generators."""
        with untouched_generators():
            return self.architecture.draw(seeds.seed("client", *self.federation.names, client))

    def public(self, names: Iterable[str]) -> list[str]:
        """Return the entries of the model that are sent to the server, in a fixed order."""
        return sorted(name for name in names if name not in self.architecture.private)

    def complete(self, model: Model) -> Model:
        """Return the model with all taps (`dead_taps.py`)."""
        return self.architecture.complete(model, self.seed)

    # -- a round ---------------------------------------------------------------------------------

    def round(self, state: RunState, seen: ClientEvaluation | None = None) -> RunState:
        """Return the state of the run after one more round; `seen` evaluates its clients."""
        if self.is_last(state):  # a mistake may show in trained models only
            calling.try_again(self.method)
        work = self.plan(state)
        if not work.valid.any():  # no client of the cohort has enough samples for a batch
            return replace(state, round=state.round + 1)
        lr = self.population.lr(state.round)
        cohort = self.cohort(state, work, lr)
        memories = self.send(cohort, work.clients)
        sums = start_sum(self.method, cohort, state.server, *self.sent)
        after, measured, losses, optimisers = [], [], [], []
        for which, models, loss, optimiser in self.train(state, work, memories, lr):
            left = self.leave(state, work, which, models, optimiser, memories, seen)
            sums.add(
                which, self.attack.change(models, state.server, work.clients[which], work.noise)
            )
            losses.append(loss)
            if self.method.average_optimiser:
                optimisers.append(
                    tree_map(torch.clone, of_entries(optimiser, self.population.averaged))
                )
            after += [memory for memory, _ in left]
            measured += [told for _, told in left if told is not None]
        cohort = replace(cohort, deltas=sums.deltas, memory=after, measured=measured)
        server, shared, weights = self.aggregate(state, cohort, sums, optimisers)
        busy = moved(np.flatnonzero(work.steps > 0), self.device)
        trained = torch.cat(losses).double()[busy]
        values = {"train_loss": trained.mean()}
        if self.method.follows_weights:
            values["effective_clients"] = effective(weights.new)  # before `scale`
        if self.method.observe or self.method.refine:
            found, data = weights[:2], self.samples.of_server()
            network = self.architecture.empty
            end = Aggregated(cohort, *found, state.server, server, network, sums.local, data)
            values = join(values, self.method.observe(end) if self.method.observe else {})
            server = server | (self.method.refine(end) if self.method.refine else {})
        if not self.tried:
            self.tried, self.traffic = True, self.count_traffic(cohort, memories)
        clients = map(int, work.clients)
        state.memory.update({k: m for k, m in zip(clients, after, strict=True) if m})
        logged = add_to_log(state.logged, values)
        compiled = state.compiled or self.backend.has_compiled
        return RunState(server, shared, state.memory, logged, state.round + 1, compiled)

    def is_last(self, state: RunState) -> bool:
        """Whether the round after this state is the run's last one."""
        return state.round + 1 == self.protocol.get("rounds")

    def plan(self, state: RunState) -> schedule.Work:
        """Draw the cohort of a round and the samples of its local steps."""
        federation, protocol = self.federation, self.protocol
        names, number = (*federation.names, state.round), len(self.population)
        clients = schedule.cohort_of(number, protocol, *names)
        if self.method.choose and len(clients):
            clients = self.choose(state, clients)
        clients = conditions.answering(clients, protocol["dropout"], *names)
        clients = conditions.in_time(clients, protocol, *names)
        return schedule.work(clients, federation.members, protocol, *names)

    def choose(self, state: RunState, drawn: np.ndarray) -> np.ndarray:
        """Return the clients that the method chooses for a round, ascending."""
        assert self.method.choose
        candidates = Candidates(
            round=state.round,
            server=state.server,
            shared=state.shared,
            drawn=moved(drawn, self.device),
            sizes=self.population.start.sizes,
            counts=self.population.start.counts,
            trains=self.trains(state.round),
            client=partial(self.population.idle_client, state),
            noise=seeds.seed("choice", *self.federation.names, state.round),
        )
        chosen = self.method.choose(candidates)
        return np.sort(chosen[self.there(state.round)[chosen]].cpu().numpy())

    def trains(self, number: int) -> torch.Tensor:
        """Return (N,): whether each client is there and has enough samples for a batch."""
        limits = self.protocol["batch"], self.protocol["smallest_batch"]
        known = [schedule.trains(len(own), *limits) for own in self.federation.members]
        return torch.tensor(known, device=self.device) & self.there(number)

    def there(self, number: int) -> torch.Tensor:
        """Return (N,): whether each client is there in a round."""
        population, names = len(self.federation.members), (*self.federation.names, number)
        found = conditions.available(population, self.protocol, *names)
        everyone = np.arange(population)
        return moved(np.isin(everyone, everyone if found is None else found), self.device)

    def cohort(self, state: RunState, work: schedule.Work, lr: float) -> Cohort:
        """Return the round's clients as the server sees them before local training."""
        clients = moved(work.clients, self.device)
        counts = self.federation.counts[clients]
        return Cohort(
            round=state.round,
            server=state.server,
            population=len(self.population),
            clients=clients,
            sizes=counts.sum(1).to(self.dtype),
            counts=counts,
            steps=moved(work.steps, self.device),
            lr=lr,
            momentum=self.protocol["momentum"],
            deltas=Later("deltas"),
            before=[self.population.memory(state, int(client)) for client in work.clients],
            memory=Later("memory"),
            measured=Later("measured"),
            shared=state.shared,
            artifacts=self.artifacts,
            noise=work.noise,
        )

    def send(self, cohort: Cohort, clients: np.ndarray) -> list[Memory]:
        """Return every client's memory in this round, with what the server sends it."""
        memories = self.population.begin(cohort, clients)
        if not self.method.send:
            return memories
        sent = self.method.send(cohort)
        return [kept | more for kept, more in zip(memories, sent, strict=True)]

    def train(
        self, state: RunState, work: schedule.Work, memories: list[Memory], lr: float
    ) -> Iterator[tuple[slice, Model, Tensor, Memory]]:
        """Train the cohort; yield positions, models (G, ...), mean losses (G,) and optimisers."""
        given = self.samples, work, state.server, state.shared, memories
        clients = Clients(*given, self.begun(state, work, memories), state.round, lr)
        tries = not self.tried or self.is_last(state)
        if tries:
            busy = int((work.steps > 0).argmax())
            try_step(self.method, self.architecture, clients.one(busy))
            if not self.tried and "operations" in self.protocol.get("metrics", ()):
                made = self.method, self.architecture, self.protocol
                self.operations = count_operations(*made, clients.one(busy))
        with unchanged_by_steps(self.method, (state.server, state.shared, memories), tries):
            yield from self.train_stacks(clients)

    def train_stacks(self, clients: Clients) -> Iterator[tuple[slice, Model, Tensor, Memory]]:
        """Yield what `train` does; in the loop, with a warning, if `auto` chose what cannot train.

        Then nothing of the run has changed, and a resumed run decides the same.
        """
        stacks, numbers = self.backend.train(clients), torch.get_rng_state()
        try:
            first = next(stacks)
        except UsageError as problem:
            if self.tried or not self.is_free or self.backend_name == "loop":
                raise
            log.warning("clients are trained one after the other (backend loop): %s", problem)
            self.use("loop")
            torch.set_rng_state(numbers)
            stacks = self.backend.train(clients)
            first = next(stacks)
        yield first
        yield from stacks

    def begun(self, state: RunState, work: schedule.Work, memories: list[Memory]) -> list[Model]:
        """Return the entries with which each client's local steps begin, if the method has any."""
        if not self.method.begin:
            return [{} for _ in memories]
        clients = [
            self.population.client(state, k, own_model(state.server, memory), memory, 0)
            for k, memory in zip(work.clients, memories, strict=True)
        ]
        first = [self.method.begin(client) for client in clients]
        return [  # a client that takes no step has no change
            begun if steps else {name: client.model[name] for name in begun}
            for begun, client, steps in zip(first, clients, work.steps, strict=True)
        ]

    def leave(
        self,
        state: RunState,
        work: schedule.Work,
        which: slice,
        models: Model,
        optimisers: Memory,
        memories: list[Memory],
        seen: ClientEvaluation | None,
    ) -> list[tuple[Memory, Memory | None]]:
        """Return what each client of `which` keeps, and what it measures, after local training."""
        method, left = self.method, []
        for i, c in enumerate(range(*which.indices(len(work.clients)))):
            client = work.clients[c]
            model = {name: tensor[i] for name, tensor in models.items()}
            trained = self.population.client(state, client, model, memories[c], work.steps[c])
            if self.operations is not None and self.around is None and work.steps[c]:
                self.around = count_around(method, trained)
            keep = method.remember(trained) if method.remember else {}
            if method.remember and not self.tried:
                self.population.check_form(keep, int(client))
            if method.private:
                keep = keep | {"private": {name: model[name] for name in memories[c]["private"]}}
            if self.population.own:
                state_of_own = of_entries(optimisers, self.population.own)
                keep = keep | {STATE: tree_map(lambda kept, i=i: kept[i], state_of_own)}
            told = tree_map(torch.clone, method.measure(trained)) if method.measure else None
            left.append((tree_map(torch.clone, keep), told))
            if seen is not None:
                seen.see(int(client), partial(replace, trained, memory=keep))
        return left

    def count_traffic(self, cohort: Cohort, memories: list[Memory]) -> dict[str, int]:
        """Return the bytes that travel to and from a client of the round that has trained."""
        which = int(cohort.steps.argmax())
        kept, measured = cohort.memory[which], [*cohort.measured][which : which + 1]
        begun = self.population.begin(cohort, cohort.clients.tolist())[which]
        sent = {k: v for k, v in memories[which].items() if k not in begun}
        moving = {*self.architecture.trainable, *self.architecture.statistics}
        names = [name for of in self.sent for name in of if name in moving]
        averaged = of_entries(cohort.shared.get(STATE, {}), self.population.averaged)
        model: Memory = {name: cohort.server[name] for name in names}
        model |= {STATE: averaged} if averaged else {}
        traffic = count_traffic(self.method, model, cohort.shared, sent, kept, measured)
        sends_more = traffic["up"] > count_bytes(model)
        self.attack.check(sends_more)
        if sends_more and self.method.discreet:
            raise UsageError(
                "the method has a guarantee for clients that send changes of parameters only, and "
                "these send more: leave out the method of which `share` reads what clients keep"
            )
        return traffic

    def aggregate(
        self, state: RunState, cohort: Cohort, sums: Running | Kept, optimisers: list[Memory]
    ) -> tuple[Model, Memory, Weights]:
        """Return the server's new model, what it shares, and the clients' weights.

        `optimisers` are the states of the clients' optimisers, (G, ...) each, if they are averaged.
        """
        method, weights = self.method, sums.weights or weigh(self.method, cohort)
        update, share = sums.update(method, cohort, weights.factors), relative(weights.factors)
        shared = state.shared | (method.share(cohort, update) if method.share else {})
        if optimisers:
            shared |= {STATE: mean_of(optimisers, relative(weights.new))}
        step = method.server(update, shared) if method.server else update
        server = state.server | {name: state.server[name] - step[name] for name in step}
        return server | sums.means(share), shared, weights


def mean_of(parts: list[Memory], share: Tensor) -> Memory:
    """Return the weighted mean over clients of tensors that come in parts (G, ...) of a cohort."""

    def mean(*tensors: Tensor) -> Tensor:
        stack = torch.cat(tensors)
        return torch.tensordot(share.to(stack), stack, dims=1)

    return tree_map(mean, *parts)
