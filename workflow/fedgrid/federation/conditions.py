"""What goes wrong in a federation: clients that are away, never answer, do less work, or attack.

By its `availability`, a round draws its clients from those that are there. Where fewer are there
than take part in a round, all of them do. A share `available` of the clients is there at a time:

    cyclic   clients come and go in a fixed order, once in `available_rounds` rounds, as by time
             zones (Eichner et al., ICML 2019)
    sticky   each client is there or away by a Markov chain: one that is there leaves with the
             chance 1 / `available_rounds` per round, and one that is away comes back with the
             chance at which the share stays

`dropout` is the chance with which a client of a round never answers: it is not trained, nothing of
it reaches the server, and it keeps nothing of the round. `stragglers` is the chance with which a
client does only a part of its local work, from one of its `local` epochs or steps to all of them,
each equally likely (Li et al., FedProx, MLSys 2020, appendix C.2). With `late: dropped` such a
client is lost instead, as that paper's FedAvg drops stragglers. `attackers` is the share of the
population that works against the others in all rounds, by its `attack`:

    labels   the labels of its training samples are flipped, class c to K - 1 - c (Tolpegin et al.,
             ESORICS 2020)
    noise    it sends Gaussian noise, as long as its own change times `attack_strength`
    sign     it sends its own change times -`attack_strength` (Li et al., RSA, AAAI 2019)

Noise and sign are of the parameters. A method whose clients send other numbers, such as variates or
prototypes, is refused with them.

All draws depend on the names of dataset, partition and seed, so methods meet the same.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgrid.federation import seeds
from fedgrid.federation.federation import Federation
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Protocol

Model = dict[str, Tensor]
LATE = ("partial", "dropped")  # what becomes of stragglers


def available(population: int, protocol: Protocol, *names: Any) -> np.ndarray | None:
    """Return the ids of the clients that are there, ascending, or None if all always are.

    `names` end with the round.
    """
    *seeded, number = names
    kind, share = protocol.get("availability", "always"), protocol.get("available", 0.5)
    if kind == "always":
        return None
    rounds = protocol["available_rounds"]
    if kind == "sticky":
        return np.flatnonzero(stays_of(population, share, rounds, *seeded).at(number))
    place = seeds.generator("availability", *seeded).permutation(population) / population
    return np.flatnonzero((place + number / rounds) % 1 < share)


class Stays:
    """Which clients of a population are there, round by round, by a Markov chain for each.

    An earlier round than the last one is computed from round 0 again.
    """

    def __init__(self, population: int, share: float, rounds: float, *names: Any):
        self.names, self.number = names, 0
        self.first = seeds.generator("availability", *names).random(population) < share
        self.leaves, self.returns = 1 / rounds, share / (1 - share) / rounds
        self.there = self.first

    def at(self, number: int) -> np.ndarray:
        """Return (N,): whether each client is there in this round."""
        if number < self.number:
            self.number, self.there = 0, self.first
        while self.number < number:
            self.number += 1
            random = seeds.generator("availability", *self.names, self.number)
            drawn = random.random(len(self.there))
            self.there = np.where(self.there, drawn >= self.leaves, drawn < self.returns)
        return self.there


stays_of = cache(Stays)  # those of a run, by what they depend on


def answering(clients: np.ndarray, dropout: float, *names: Any) -> np.ndarray:
    """Return those of a round's clients (C,) that answer; `names` end with the round."""
    if not dropout:
        return clients
    return clients[seeds.generator("dropout", *names).random(len(clients)) >= dropout]


def in_time(clients: np.ndarray, protocol: Protocol, *names: Any) -> np.ndarray:
    """Return those of a round's clients (C,) whose work counts; `names` end with the round."""
    if protocol.get("late", "partial") == "partial":
        return clients
    late = [count_units(protocol, *names, int(k)) is not None for k in clients]
    return clients[~np.array(late, bool)]


def count_units(protocol: Protocol, *names: Any) -> int | None:
    """Return how many of the `local` units a straggler does; None for any other client."""
    if not protocol.get("stragglers"):
        return None
    random = seeds.generator("stragglers", *names)
    if random.random() >= protocol["stragglers"]:
        return None
    return int(random.integers(1, protocol["local"] + 1))


def reduced(batches: list[Any], protocol: Protocol, *names: Any) -> list[Any]:
    """Return the batches that a client works through; `names` end with round and client."""
    if (units := count_units(protocol, *names)) is None:
        return batches
    return batches[: max(len(batches) * units // protocol["local"], 1)]


def attackers(population: int, share: float, *names: Any) -> np.ndarray:
    """Return the ids of the clients that attack, ascending."""
    count = round(population * share)
    return np.sort(seeds.generator("attackers", *names).choice(population, count, replace=False))


def with_flipped_labels(data: Federation, protocol: Protocol) -> Federation:
    """Return the federation whose attackers train on flipped labels, if that is their attack."""
    if protocol["attack"] != "labels" or not protocol["attackers"]:
        return data
    labels, counts = data.labels.clone(), data.counts.clone()
    for client in attackers(len(data.members), protocol["attackers"], *data.names):
        ids = torch.from_numpy(data.members[client]).to(labels.device)
        labels[ids] = counts.shape[1] - 1 - labels[ids]
        counts[client] = counts[client].flip(0)
    return replace(data, labels=labels, counts=counts)


class Attack:
    """What attackers send: other entries than those of their trained models.

    `sent` are the names of the entries that a client sends, and `names` those of the federation.
    """

    def __init__(self, protocol: Protocol, population: int, sent: list[str], *names: Any):
        share, self.kind = protocol.get("attackers", 0), protocol.get("attack", "labels")
        self.strength, self.sent = protocol.get("attack_strength", 1), sent
        self.clients = {*attackers(population, share, *names).tolist()}

    def check(self, sends_more: bool) -> None:
        """Refuse a method whose clients send more than parameters, which would stay honest."""
        if self.clients and self.kind != "labels" and (sends_more or not self.sent):
            raise UsageError(
                f"attackers with `attack: {self.kind}` change the parameters that they send, and "
                "this method's clients send other numbers: set `attack: labels`"
            )

    def change(self, models: Model, server: Model, clients: np.ndarray, noise: int) -> Model:
        """Return models (G, ...) of clients (G,) as the server gets them; `noise` is a seed."""
        false = [i for i, client in enumerate(clients.tolist()) if client in self.clients]
        if self.kind == "labels" or not false:
            return models
        entries = {name: models[name].clone() for name in self.sent}
        for i in false:
            change = {name: server[name] - entry[i] for name, entry in entries.items()}
            if self.kind == "noise":
                change = noise_like(change, seeds.seed("attack", noise, int(clients[i])))
            factor = -self.strength if self.kind == "sign" else self.strength
            for name, delta in change.items():
                entries[name][i] = server[name] - factor * delta
        return models | entries


def noise_like(change: Model, seed: int) -> Model:
    """Return Gaussian noise with the Euclidean norm of a change over all its entries."""
    device = next(iter(change.values())).device
    random = torch.Generator(device).manual_seed(seed)
    drawn = {
        name: torch.randn(delta.shape, generator=random, device=device).to(delta)
        for name, delta in change.items()
    }
    factor = norm(change) / norm(drawn)
    return {name: factor * entry for name, entry in drawn.items()}


def norm(model: Model) -> Tensor:
    """Return the Euclidean norm over all entries of a model."""
    return torch.stack([entry.square().sum() for entry in model.values()]).sum().sqrt()
