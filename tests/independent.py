"""Federated training once more, in plain PyTorch, to compare the engine with over several rounds.

It shares with the package the schedule of batches and the normalisation of images alone: modules,
`torch.optim`, and a dict per client for what a client keeps. It is written from the papers.
"""

import copy
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from conftest import tiny
from fedgrid.federation import augment, schedule
from fedgrid.federation.federation import Federation

ADAMS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def optimiser_of(protocol: dict, parameters) -> torch.optim.Optimizer:
    """torch's optimiser for the local steps of a protocol."""
    rates = {"lr": protocol["lr"], "weight_decay": protocol["weight_decay"]}
    if protocol["optimiser"] == "sgd":
        return torch.optim.SGD(parameters, momentum=protocol["momentum"], **rates)
    betas, epsilon = (protocol["beta1"], protocol["beta2"]), protocol["epsilon"]
    return ADAMS[protocol["optimiser"]](parameters, betas=betas, eps=epsilon, **rates)


class Federated:
    """Some of the methods of client contribution normalisation's tables, and its weights.

    `kind` is fedavg, fedprox, scaffold, sgdm, fednova or fedbabu; `temperature` None is without
    normalisation. All clients take part in every round.
    """

    def __init__(self, kind: str, data: Federation, protocol: dict, temperature: float | None):
        self.kind, self.data, self.protocol, self.temperature = kind, data, protocol, temperature
        self.model, self.round = tiny(7), 0
        self.clients = range(len(data.members))
        self.variates = [self.zeros() for _ in self.clients]
        self.variate, self.buffers = self.zeros(), None
        self.optimisers: dict[int, dict] = {}
        self.distance = 0.0

    def zeros(self) -> dict[str, Tensor]:
        return {name: torch.zeros_like(p) for name, p in self.model.named_parameters()}

    def play(self, rounds: int) -> dict[str, Tensor]:
        for _ in range(rounds):
            self.average([self.train(client) for client in self.clients])
            self.round += 1
        return self.model.state_dict()

    # -- a client --------------------------------------------------------------------------------

    def batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        data, names = self.data, (*self.data.names, self.round)
        cohort = schedule.cohort(len(self.clients), 1.0, *names)
        work = schedule.work(cohort, data.members, self.protocol, *names)
        at = cohort.tolist().index(client)
        for index, valid in zip(work.index[:, at], work.valid[:, at], strict=True):
            if valid.any():
                images = data.images[index[valid]]
                yield augment.normalise(images, data.mean, data.std), data.labels[index[valid]]

    def optimiser(self, model, client: int) -> torch.optim.Optimizer:
        asked = self.protocol
        trained = [p for n, p in model.named_parameters() if not self.is_frozen(n)]
        lr = asked["lr"] * asked["lr_decay"] ** self.round
        made = optimiser_of(asked | {"lr": lr}, trained)
        if asked["optimiser_state"] == "kept" and client in self.optimisers:
            made.load_state_dict({**made.state_dict(), "state": self.optimisers[client]["state"]})
        if self.kind == "sgdm" and self.buffers is not None:
            for parameter, buffer in zip(trained, self.buffers, strict=True):
                made.state[parameter]["momentum_buffer"] = buffer.clone()
        return made

    def is_frozen(self, name: str) -> bool:
        return self.kind == "fedbabu" and name.startswith("head.")

    def train(self, client: int) -> dict:
        model = copy.deepcopy(self.model).train()
        sent = {n: p.detach().clone() for n, p in model.named_parameters()}
        optimiser, steps = self.optimiser(model, client), 0
        for x, y in self.batches(client):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x)[1], y)
            if self.kind == "fedprox":
                away = sum((p - sent[n]).square().sum() for n, p in model.named_parameters())
                loss = loss + 0.01 / 2 * away
            loss.backward()
            if self.kind == "scaffold":
                for name, p in model.named_parameters():
                    p.grad += self.variate[name] - self.variates[client][name]
            optimiser.step()
            steps += 1
        self.optimisers[client] = copy.deepcopy(optimiser.state_dict())
        way = steps if not (rho := self.protocol["momentum"]) else 0
        if rho:  # the factors of the steps' gradients in the client's change, added up
            running = 0.0
            for _ in range(steps):
                running = rho * running + 1
                way += running
        buffers = [s.get("momentum_buffer") for s in optimiser.state.values()]
        return {"model": model, "sent": sent, "way": way, "buffers": buffers, "client": client}

    # -- the server ------------------------------------------------------------------------------

    def average(self, ends: list[dict]) -> None:
        sizes = torch.tensor([len(ids) for ids in self.data.members], dtype=torch.float64)
        weights = sizes / sizes.sum()
        if self.kind == "fedbabu":
            weights = torch.full_like(sizes, 1 / len(sizes))
        if self.temperature:
            weights = self.normalised(ends, weights)
        ways = [end["way"] for end in ends]
        mean_way = sum(a * way for a, way in zip(weights, ways, strict=True))
        factors = [
            a * mean_way / way if self.kind == "fednova" else a
            for a, way in zip(weights, ways, strict=True)
        ]
        before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        state, whole = self.model.state_dict(), float(sum(factors))
        for name, tensor in state.items():
            theirs = [end["model"].state_dict()[name] for end in ends]
            if name in before:
                changes = (a * (before[name] - w) for a, w in zip(factors, theirs, strict=True))
                tensor.copy_(before[name] - sum(changes))
            else:  # running statistics
                tensor.copy_(sum(a / whole * w for a, w in zip(factors, theirs, strict=True)))
        self.keep(ends, weights, before)

    def keep(self, ends: list[dict], weights: Tensor, before: dict[str, Tensor]) -> None:
        if self.kind == "sgdm":
            each = zip(*(end["buffers"] for end in ends), strict=True)
            self.buffers = [sum(a * b for a, b in zip(weights, of, strict=True)) for of in each]
        if self.kind == "scaffold":
            lr = self.protocol["lr"] * self.protocol["lr_decay"] ** self.round
            changes = self.zeros()
            for end in ends:
                own = self.variates[end["client"]]
                for name, p in end["model"].named_parameters():
                    mean = (before[name] - p.detach()) / (end["way"] * lr)
                    new = own[name] - self.variate[name] + mean
                    changes[name] += (new - own[name]) / len(ends)
                    own[name] = new
            self.variate = {n: w + changes[n] for n, w in self.variate.items()}

    def normalised(self, ends: list[dict], weights: Tensor) -> Tensor:
        means = []
        for end in ends:
            ids = self.data.members[end["client"]]
            x = augment.normalise(self.data.images[ids], self.data.mean, self.data.std)
            with torch.no_grad():
                means.append(end["model"].eval()(x)[0].mean(0))
        new = weights.clone()
        scores = []
        for z in means:
            cosines = [float(z @ other / (z.norm() * other.norm())) for other in means]
            scores.append(math.exp(sum(cosines) / self.temperature))
        for r, score in enumerate(scores):
            new[r] = weights[r] * (sum(scores) - score) / sum(scores)
        new = new / new.sum()
        self.distance = float((new - weights).abs().sum()) / 2
        return new
