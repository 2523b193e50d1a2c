"""One round of federated learning, for every method: send, train the cohort, aggregate.

The engine owns the data on the device, the server's model and the clients' memories; a backend
(`backends/`) owns the local steps. Statistics of BatchNorm are averaged with the round's weights
scaled to sum to 1, whatever a method does to the parameters, so that a variance stays one.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from fedgrid import augment, schedule, seeds
from fedgrid.federation import Federation
from fedgrid.method import (
    Client,
    Cohort,
    Memory,
    Method,
    Start,
    State,
    Trained,
    by_samples,
    relative,
    weighted_sum,
)

EVALUATION_BATCH = 1000
CHUNK = 64  # images at a time where a client's whole data is passed through the model


@dataclass
class Progress:
    """A run between two rounds: all there is to save."""

    server: State
    shared: Memory
    memory: dict[int, Memory] = field(default_factory=dict)  # of clients that have taken part
    sums: dict[str, Tensor] = field(default_factory=dict)  # what is logged, since it last was
    round: int = 0


class Engine:
    """FedAvg's round with a method's changes; `build(seed)` makes a model with initial weights."""

    def __init__(
        self,
        build: Callable[[int], nn.Module],
        method: Method,
        protocol: dict,
        federation: Federation,
        backend: str = "loop",
        artifacts: Memory | None = None,
    ):
        self.method, self.protocol, self.federation = method, protocol, federation
        self.artifacts = artifacts or {}
        self.device = federation.images.device
        self.dtype = federation.mean.dtype
        self.architecture = build
        self.live = self.build(0).train()  # the one model that a loop trains in place
        self.empty = copy.deepcopy(self.live).to("meta").eval()  # to call with any state
        self.parameters = [name for name, _ in self.live.named_parameters()]
        self.trainable = [n for n in self.parameters if not n.startswith(method.frozen or ("\0",))]
        self.local_training = import_module(f"fedgrid.backends.{backend}").train

    # -- models ----------------------------------------------------------------------------------

    def build(self, seed: int) -> nn.Module:
        """The method's model on the device, with initial weights drawn from `seed`."""
        model = self.architecture(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.method.model(model) if self.method.model else model
        return model.to(self.device, self.dtype)

    def start(self, seed: int) -> Progress:
        """A run before its first round, with the initial model drawn from `seed`."""
        server = state_of(self.build(seed))
        known = Start(server, len(self.federation.members), self.random)
        self._start = known
        return Progress(server, self.method.shared(known) if self.method.shared else {})

    def random(self, client: int) -> State:
        """Initial weights of the client's own."""
        return state_of(self.build(seeds.seed("client", *self.federation.names, client)))

    def precision(self):
        """The autocast context of the protocol's precision."""
        if self.protocol["precision"] == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    @torch.no_grad()
    def forward(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of any model in evaluation mode, without gradient."""
        with self.precision():
            features, logits = functional_call(self.empty, state, (x,))
        return features.to(self.dtype), logits.to(self.dtype)

    # -- data ------------------------------------------------------------------------------------

    def batch(self, index: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Augmented images and labels of the samples `index` (B,)."""
        data = self.federation
        images = augment.augment(data.images[index], self.protocol["augment"], draws)
        return augment.normalise(images, data.mean, data.std), data.labels[index]

    def total(self, client: int, function: Callable[[Tensor, Tensor], Any]) -> Any:
        """The sum of function(x, y) over chunks of a client's data, not augmented."""
        data, summed = self.federation, None
        for index in torch.from_numpy(data.members[client]).to(self.device).split(CHUNK):
            x = augment.normalise(data.images[index], data.mean, data.std)
            part = function(x, data.labels[index])
            summed = part if summed is None else tree_map(torch.add, summed, part)
        return summed

    # -- a round ---------------------------------------------------------------------------------

    def round(self, run: Progress) -> Progress:
        """The run after one more round."""
        federation, protocol, method = self.federation, self.protocol, self.method
        names = (*federation.names, run.round)
        clients = schedule.cohort(len(federation.members), protocol["participation"], *names)
        work = schedule.work(clients, federation.members, protocol, *names)
        lr = protocol["lr"] * protocol["lr_decay"] ** run.round
        before = [self.memory(run, int(k)) for k in clients]
        states, losses = self.local_training(self, run.server, before, run.shared, work, lr)
        after, measured = self.leave(run, work, before, states, lr)
        cohort = Cohort(
            round=run.round,
            population=len(federation.members),
            clients=torch.from_numpy(clients).to(self.device),
            sizes=federation.counts[clients].sum(1).to(self.dtype),
            counts=federation.counts[clients],
            steps=torch.from_numpy(work.steps).to(self.device),
            lr=lr,
            deltas={n: run.server[n] - states[n] for n in self.public(self.parameters)},
            before=before,
            memory=after,
            measured=measured,
            shared=run.shared,
            artifacts=self.artifacts,
        )
        weights = (method.weigh or by_samples)(cohort)
        server, shared = self.aggregate(run, cohort, weights, states)
        memory = run.memory | {int(k): m for k, m in zip(clients, after, strict=True) if m}
        trained = losses.double()[cohort.steps > 0]
        log = {"train_loss": trained.mean(), "effective_clients": effective(weights)}
        log |= {"rounds": torch.ones_like(log["train_loss"])}
        sums = {name: value + run.sums.get(name, 0) for name, value in log.items()}
        return Progress(server, shared, memory, sums, run.round + 1)

    def memory(self, run: Progress, client: int) -> Memory:
        """What a client has kept, or its initial memory if it has never taken part."""
        if client in run.memory:
            return run.memory[client]
        kept = self.method.memory(self._start, client) if self.method.memory else {}
        private = {n: w for n, w in self._start.server.items() if n.startswith(self.method.private)}
        return kept | ({"private": private} if self.method.private else {})

    def leave(self, run, work, before, states, lr) -> tuple[list[Memory], list[Memory]]:
        """What each client keeps and what it sends along, once its local training is over."""
        method, after, measured = self.method, [], []
        for c, client in enumerate(work.clients):
            state = {name: tensor[c] for name, tensor in states.items()}
            what = dict(state=state, server=run.server, memory=before[c], shared=run.shared)
            what |= dict(counts=self.federation.counts[client], steps=work.steps[c], lr=lr)
            keep = method.remember(Trained(**what)) if method.remember else {}
            if method.private:
                keep = keep | {"private": {n: state[n] for n in before[c]["private"]}}
            after.append(tree_map(torch.clone, keep))
            if method.measure:
                total = partial(self.total, client)
                measured.append(method.measure(Client(**what, model=self.empty, total=total)))
        return after, measured

    def aggregate(self, run, cohort, weights, states) -> tuple[State, Memory]:
        """The server's new model and what it shares."""
        method = self.method
        update = (method.aggregate or weighted_sum)(cohort, weights)
        shared = run.shared | (method.share(cohort, update) if method.share else {})
        step = method.server(update, shared) if method.server else update
        server = run.server | {name: run.server[name] - step[name] for name in step}
        share = relative(weights)
        for name in self.public(run.server.keys() - set(self.parameters)):
            server[name] = torch.tensordot(share.to(states[name]), states[name], dims=1)
        return server, shared

    def public(self, names) -> list[str]:
        """The entries of the model that leave the client, in a fixed order."""
        return sorted(n for n in names if not n.startswith(self.method.private or ("\0",)))

    # -- evaluation ------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self, server: State) -> dict[str, float]:
        """Accuracy (0..1) and mean cross-entropy of the server's model on the whole test set."""
        data, correct, loss = self.federation, 0.0, 0.0
        for images, y in zip(
            data.test_images.split(EVALUATION_BATCH),
            data.test_labels.split(EVALUATION_BATCH),
            strict=True,
        ):
            _, logits = self.forward(server, augment.normalise(images, data.mean, data.std))
            correct += (logits.argmax(1) == y).sum()
            loss += F.cross_entropy(logits, y, reduction="sum").double()
        total = len(data.test_labels)
        return {"accuracy": float(correct) / total, "loss": float(loss) / total}


def state_of(model: nn.Module) -> State:
    """A copy of a model's parameters and running statistics."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def effective(weights: Tensor) -> Tensor:
    """The effective number of clients, 1 / sum_k a_k^2, of weights scaled to sum to 1."""
    return 1 / relative(weights.double()).square().sum()
