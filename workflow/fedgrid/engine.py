"""One round of federated learning, for every method: send, train the cohort, aggregate.

The engine owns the data on the device, the server's model and the clients' memories; a backend
(`backends/`) owns the local steps. Statistics of BatchNorm are averaged with the round's weights
scaled to sum to 1, whatever a method does to the parameters, so that a variance stays one.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from fedgrid import augment, backends, schedule, seeds, tally, taps
from fedgrid.federation import Federation
from fedgrid.method import (
    Client,
    Cohort,
    Memory,
    Method,
    Start,
    State,
    by_samples,
    relative,
)
from fedgrid.names import known, registered

EVALUATION_BATCH = 1000  # at most: the parts are alike, and none is of a few images
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
        backend: str = "auto",
        artifacts: Memory | None = None,
    ):
        self.method, self.protocol, self.federation = method, protocol, federation
        self.artifacts = artifacts or {}
        self.device = federation.images.device
        self.dtype = federation.mean.dtype
        self.architecture = build
        self.kept: taps.Kept = {}
        self.live = self.build(0).train()  # the one model that a loop trains in place
        self.empty = copy.deepcopy(self.live).to("meta").eval()  # to call with any state
        self.parameters = [name for name, _ in self.live.named_parameters()]
        self.trainable = [n for n in self.parameters if not n.startswith(method.frozen or ("\0",))]
        statistics = self.live.state_dict().keys() - set(self.parameters)
        self.sent = self.public(self.parameters), self.public(statistics)
        self.between: dict[str, Any] = {}  # what a backend keeps from round to round
        if backend == "auto":
            backend = backends.best(self.live, self.device)
        known("backend", backend, registered("backends"))
        self.local_training = import_module(f"fedgrid.backends.{backend}").train

    # -- models ----------------------------------------------------------------------------------

    def build(self, seed: int) -> nn.Module:
        """The method's model on the device, with initial weights drawn from `seed`.

        Without the taps that no image reaches (`taps.py`), unless weight decay reaches them.
        """
        model = self.whole_model(seed)
        if not self.protocol["weight_decay"]:
            self.kept = taps.trim(model, tuple(self.federation.images.shape[1:]))
        self.layout = getattr(model, "layout", torch.contiguous_format)
        return model.to(self.device, self.dtype, memory_format=self.layout)

    def whole_model(self, seed: int) -> nn.Module:
        """The architecture with what the method adds to it."""
        model = self.architecture(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.method.model(model) if self.method.model else model

    def whole(self, state: State) -> State:
        """A state of the model as others know it, with the taps that were left out."""
        if not self.kept:
            return state
        initial = self.whole_model(self.seed).to(self.device, self.dtype).state_dict()
        return taps.whole(state, initial, self.kept)

    def start(self, seed: int) -> Progress:
        """A run before its first round, with the initial model drawn from `seed`."""
        self.seed = seed
        server = state_of(self.build(seed))
        self._start = Start(server, len(self.federation.members), self.random, self.parameters)
        return Progress(server, self.method.shared(self._start) if self.method.shared else {})

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
        x = augment.cut_out(self.normalise(images), self.protocol["augment"], draws)
        return x, data.labels[index]

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 images as the model takes them."""
        data = self.federation
        x = augment.normalise(images, data.mean, data.std)
        return x.contiguous(memory_format=self.layout)

    def total(self, client: int, function: Callable[[Tensor, Tensor], Any]) -> Any:
        """The sum of function(x, y) over chunks of a client's data, not augmented; None without."""
        data, summed = self.federation, None
        chunks = torch.from_numpy(data.members[client]).split(CHUNK)
        for index in (chunk.to(self.device) for chunk in chunks):
            part = function(self.normalise(data.images[index]), data.labels[index])
            summed = part if summed is None else tree_map(torch.add, summed, part)
        return summed

    def epoch(self, client: int, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A client's batches of one more epoch after round `number`: shuffled, augmented."""
        once = self.protocol | {"local": 1, "local_unit": "epochs"}
        names = (*self.federation.names, number, "once more")
        work = schedule.work(np.array([client]), self.federation.members, once, *names)
        for s in range(int(work.steps[0])):
            real = work.valid[s, 0]
            rows = (torch.from_numpy(of[s, 0][real]) for of in (work.index, work.draws))
            yield self.batch(*(row.to(self.device) for row in rows))

    # -- a round ---------------------------------------------------------------------------------

    def round(self, run: Progress) -> Progress:
        """The run after one more round."""
        federation, protocol = self.federation, self.protocol
        names = (*federation.names, run.round)
        who = len(federation.members), protocol["participation"]
        clients = schedule.cohort(*who, *names, sampler=protocol["sampler"])
        work = schedule.work(clients, federation.members, protocol, *names)
        if not work.valid.any():  # clients with too few samples to train on, all of them
            return replace(run, round=run.round + 1)
        lr = protocol["lr"] * protocol["lr_decay"] ** run.round
        before = [self.memory(run, int(k)) for k in clients]
        cohort = self.cohort(run, work, before, lr)
        sums = tally.tally(self.method, cohort, run.server, *self.sent)
        sent = self.method.send(cohort) if self.method.send else [{}] * len(before)
        memories = [kept | more for kept, more in zip(before, sent, strict=True)]
        after, measured, losses = [], [], []
        for which, states, loss in self.local_training(self, run, memories, work, lr):
            left = self.leave(run, work, which, memories, states, lr)
            sums.add(which, states)
            losses.append(loss)
            after += [memory for memory, _ in left]
            measured += [told for _, told in left if told is not None]
        cohort = replace(cohort, deltas=sums.deltas, memory=after, measured=measured)
        server, shared, weights = self.aggregate(run, cohort, sums)
        memory = run.memory | {int(k): m for k, m in zip(clients, after, strict=True) if m}
        trained = torch.cat(losses).double()[cohort.steps > 0]
        log = {"train_loss": trained.mean(), "effective_clients": effective(weights)}
        log |= {"rounds": torch.ones_like(log["train_loss"])}
        logged = {name: value + run.sums.get(name, 0) for name, value in log.items()}
        return Progress(server, shared, memory, logged, run.round + 1)

    def cohort(self, run: Progress, work: schedule.Work, before: list[Memory], lr: float) -> Cohort:
        """The round's clients, as the server sees them before they have trained."""
        counts, unknown = self.federation.counts[work.clients], tally.Unknown()
        return Cohort(
            round=run.round,
            population=len(self.federation.members),
            clients=torch.from_numpy(work.clients).to(self.device),
            sizes=counts.sum(1).to(self.dtype),
            counts=counts,
            steps=torch.from_numpy(work.steps).to(self.device),
            lr=lr,
            momentum=self.protocol["momentum"],
            deltas=unknown,
            before=before,
            memory=unknown,
            measured=unknown,
            shared=run.shared,
            artifacts=self.artifacts,
        )

    def memory(self, run: Progress, client: int) -> Memory:
        """What a client has kept, or its initial memory if it has never taken part."""
        if client in run.memory:
            return run.memory[client]
        kept = self.method.memory(self._start, client) if self.method.memory else {}
        private = {n: w for n, w in self._start.server.items() if n.startswith(self.method.private)}
        return kept | ({"private": private} if self.method.private else {})

    def leave(self, run, work, which: slice, memories, states, lr) -> list[tuple]:
        """What each client of `which` keeps and what it sends along, after its local training."""
        method, left = self.method, []
        for i, c in enumerate(range(*which.indices(len(work.clients)))):
            client = work.clients[c]
            state = {name: tensor[i] for name, tensor in states.items()}
            what = dict(state=state, server=run.server, memory=memories[c], shared=run.shared)
            what |= dict(counts=self.federation.counts[client], steps=work.steps[c], lr=lr)
            what |= {"momentum": self.protocol["momentum"], "model": self.empty}
            what |= {"epoch": partial(self.epoch, client, run.round)}
            trained = Client(**what, total=partial(self.total, client))
            keep = method.remember(trained) if method.remember else {}
            if method.private:
                keep = keep | {"private": {n: state[n] for n in memories[c]["private"]}}
            told = method.measure(trained) if method.measure else None
            left.append((tree_map(torch.clone, keep), told))
        return left

    def aggregate(self, run, cohort: Cohort, sums) -> tuple[State, Memory, Tensor]:
        """The server's new model, what it shares, and the weights of the clients."""
        method, weights = self.method, sums.weights
        if weights is None:
            weights = (method.weigh or by_samples)(cohort)
        update = sums.update(method, cohort, weights)
        shared = run.shared | (method.share(cohort, update) if method.share else {})
        step = method.server(update, shared) if method.server else update
        server = run.server | {name: run.server[name] - step[name] for name in step}
        return server | sums.means(relative(weights)), shared, weights

    def public(self, names) -> list[str]:
        """The entries of the model that leave the client, in a fixed order."""
        return sorted(n for n in names if not n.startswith(self.method.private or ("\0",)))

    # -- evaluation ------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self, server: State) -> dict[str, Any]:
        """Accuracy (0..1), mean cross-entropy and predictions per class on the whole test set.

        Logits that are not numbers predict no class, not the first.
        """
        data, correct, loss = self.federation, 0.0, 0.0
        predicted = torch.zeros_like(data.counts[0])
        parts = math.ceil(len(data.test_labels) / EVALUATION_BATCH)
        for images, y in zip(
            data.test_images.tensor_split(parts), data.test_labels.tensor_split(parts), strict=True
        ):
            _, logits = self.forward(server, self.normalise(images))
            sane = ~logits.isnan().any(1)
            said = logits.argmax(1)[sane]
            correct += (said == y[sane]).sum()
            predicted += said.bincount(minlength=len(predicted))
            loss += F.cross_entropy(logits, y, reduction="sum").double()
        total = len(data.test_labels)
        found = {"accuracy": float(correct) / total, "loss": float(loss) / total}
        return found | {"predicted": predicted.tolist()}


def reseed(device: torch.device, seed: int) -> None:
    """What the device draws from now on, such as dropout's masks.

    torch.manual_seed does it for all devices, and formats its caller's stack to do so later for
    those that are not in use: 7 % of a small model's round.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def state_of(model: nn.Module) -> State:
    """A copy of a model's parameters and running statistics."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def effective(weights: Tensor) -> Tensor:
    """The effective number of clients, 1 / sum_k a_k^2, of weights scaled to sum to 1."""
    return 1 / relative(weights.double()).square().sum()
