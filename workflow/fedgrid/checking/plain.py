"""Federated averaging in plain PyTorch, to hold a method against: modules, autograd, torch.optim.

It shares with the engine only which samples a client's batches have, and how images are normalised.
Write a method a second time as a subclass, with loops and dicts as the paper has them, and compare
its `play` with the engine's rounds in float64:

    class FedProx(PlainLoop):
        def loss(self, client, model, x, y):
            away = sum((p - q).square().sum() for p, q in zip(model.parameters(), self.sent()))
            return super().loss(client, model, x, y) + 0.01 / 2 * away

    difference(FedProx, fedprox.method(mu=0.01))
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgrid.checking import small
from fedgrid.engine.round import Engine
from fedgrid.federation import augment, schedule
from fedgrid.federation.federation import Federation
from fedgrid.federation.protocols import changed_protocol
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError, known
from fedgrid.runtime.resolved import Protocol
from fedgrid.study.protocol import PROTOCOL

OPTIMISERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class PlainLoop:
    """FedAvg, client after client; a subclass changes what its method changes.

    `make(seed)` returns a module that maps inputs to features and logits; `seed` is that of the
    initial weights. `model` is the server's model, `kept` a list with a dict for each client of the
    population, for what it keeps between rounds, and `shared` is the server's. `data` are the
    clients' samples, `protocol` is a dict of fields, and `round` counts from 0.
    """

    def __init__(
        self, make: Callable[[int], nn.Module], data: Federation, protocol: Protocol, seed: int
    ):
        self.data, self.protocol, self.round = data, protocol, 0
        self.make, self.model = make, make(seed)
        self.kept: list[dict[str, Any]] = [{} for _ in data.members]
        self.shared: dict[str, Any] = {}

    def play(self, rounds: int) -> dict[str, Tensor]:
        """Return the server's model, by entry, after so many more rounds."""
        for _ in range(rounds):
            clients = self.cohort()
            models = [self.train(client) for client in clients]
            with torch.no_grad():
                self.aggregate(clients, models)
            self.round += 1
        return self.model.state_dict()

    def cohort(self) -> list[int]:
        """Return the clients that take part in this round."""
        names = (*self.data.names, self.round)
        drawn = schedule.cohort_of(len(self.data.members), self.protocol, *names)
        return [int(client) for client in drawn]

    # -- a client --------------------------------------------------------------------------------

    def batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches (B, ...), (B,) of a client in this round."""
        names = (*self.data.names, self.round)
        work = schedule.work(np.array(self.cohort()), self.data.members, self.protocol, *names)
        yield from self.batches_of(work, client)

    def epoch(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one more epoch of a client in this round, as `Client.epoch`."""
        names = (*self.data.names, self.round, "once more")
        once = changed_protocol(self.protocol, schedule.epochs(1))
        work = schedule.work(np.array([client]), self.data.members, once, *names)
        yield from self.batches_of(work, client)

    def batches_of(self, work: schedule.Work, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches that a schedule has for a client."""
        at = work.clients.tolist().index(client)
        for index, valid in zip(work.index[:, at], work.valid[:, at], strict=True):
            if valid.any():
                yield self.inputs(index[valid]), self.data.labels[index[valid]]

    def inputs(self, ids: Any) -> Tensor:
        """Return samples as the model's inputs (B, ...), without augmentation."""
        images = self.data.images[ids]
        if self.data.tokens:
            return images.long()
        return augment.normalise(images, self.data.mean, self.data.std)

    def samples(self, client: int) -> tuple[Tensor, Tensor]:
        """Return all training samples of a client, (n, ...) and (n,)."""
        ids = self.data.members[client]
        return self.inputs(ids), self.data.labels[ids]

    def rate(self) -> float:
        """Return the learning rate of this round."""
        return self.protocol["lr"] * self.protocol["lr_decay"] ** self.round

    def optimiser(self, client: int, model: nn.Module) -> torch.optim.Optimizer:
        """Return torch's optimiser for a client's local steps."""
        asked = self.protocol
        given: dict[str, Any] = {"lr": self.rate(), "weight_decay": asked["weight_decay"]}
        if asked["optimiser"] == "sgd":
            given["momentum"] = asked["momentum"]
        else:
            given |= {"betas": (asked["beta1"], asked["beta2"]), "eps": asked["epsilon"]}
        made = OPTIMISERS[asked["optimiser"]](model.parameters(), **given)
        if state := self.kept[client].get("optimiser"):
            made.load_state_dict(made.state_dict() | {"state": state})
        return made

    def sent(self) -> list[Tensor]:
        """Return the parameters that the server sent, in the order of `model.parameters()`."""
        return [p.detach() for p in self.model.parameters()]

    def begin(self, client: int) -> nn.Module:
        """Return the model with which a client's local steps begin."""
        return copy.deepcopy(self.model).train()

    def train(self, client: int) -> nn.Module:
        """Return a client's model after its local steps."""
        model = self.begin(client)
        optimiser = self.optimiser(client, model)
        for x, y in self.batches(client):
            optimiser.zero_grad()
            self.loss(client, model, x, y).backward()
            self.correct(client, model, x, y)
            optimiser.step()
        self.remember(client, model, optimiser)
        return model

    def loss(self, client: int, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch, one number."""
        return F.cross_entropy(model(x)[1], y)

    def correct(self, client: int, model: nn.Module, x: Tensor, y: Tensor) -> None:
        """Change the gradients of the model's parameters before the optimiser's step."""

    def remember(self, client: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Keep what a client needs in later rounds: its optimiser's state, if it is kept."""
        if self.protocol["optimiser_state"] == "kept":
            self.kept[client]["optimiser"] = copy.deepcopy(optimiser.state_dict()["state"])

    # -- the server ------------------------------------------------------------------------------

    def weights(self, clients: list[int], models: list[nn.Module]) -> Tensor:
        """Return the weights of a round's clients, (C,): by samples."""
        sizes = torch.tensor([len(self.data.members[k]) for k in clients], dtype=torch.float64)
        return sizes / sizes.sum()

    def aggregate(self, clients: list[int], models: list[nn.Module]) -> None:
        """Change the server's model, in place: the weighted mean of the clients' models."""
        self.average(models, self.weights(clients, models))

    def average(self, models: list[nn.Module], weights: Tensor) -> None:
        """Make the server's model the weighted sum of these models."""
        states = [model.state_dict() for model in models]
        for name, entry in self.model.state_dict().items():
            theirs = (a * state[name] for a, state in zip(weights, states, strict=True))
            entry.copy_(sum(theirs, torch.zeros_like(entry)))


# -- comparing ------------------------------------------------------------------------------------

SIZES = (5, 9, 12, 6, 8, 7)  # samples of the clients, in batches of four
SETTING: dict[str, Any] = {
    **{"clients": len(SIZES), "participation": 2 / 3, "rounds": 4, "local": 2, "batch": 4},
    **{"local_unit": "epochs", "smallest_batch": 2, "lr": 0.05, "lr_decay": 0.9, "momentum": 0.9},
    **{"weight_decay": 0.01, "precision": "fp64", "evaluate_every": 2, "augment": []},
}


def play_both(
    plain: type[PlainLoop],
    method: Method,
    rounds: int = 3,
    backend: str = "loop",
    data: Federation | None = None,
    **fields: Any,
) -> tuple[Any, PlainLoop]:
    """Return the engine's run of a method, and its plain loop, after the same rounds.

    `data` are clients of images (1, 6, 6) of three classes, by default six; `fields` are those of
    the protocol that differ from SETTING. Raises a UsageError for a field that does not exist.
    """
    if not isinstance(method, Method):
        raise UsageError(f"{method!r} is not a method: give what the file's `method()` returns")
    for name in fields:
        known("field of a protocol", name, PROTOCOL)
    protocol = changed_protocol(PROTOCOL, SETTING | fields)
    data, seed = data or small.uneven(SIZES), 7
    engine = Engine(small.tiny, method, protocol, data, backend)
    state = engine.start(seed)
    for _ in range(rounds):
        state = engine.round(state)
    loop = plain(small.tiny, data, protocol, seed)
    loop.play(rounds)
    return state, loop


def difference(plain: type[PlainLoop], method: Method, **options: Any) -> float:
    """Return the greatest difference of an entry of the server's models after three rounds.

    About 1e-14 is rounding, and 1e-3 another method. The difference is relative to the largest
    number of its tensor; `options` are those of `play_both`, which gives both models. BatchNorm's
    running statistics are entries, too: the engine averages them with the factors of `scale`.
    """
    state, loop = play_both(plain, method, **options)
    expected = loop.model.state_dict()
    apart = [(state.server[n] - w).abs().max() / w.abs().max() for n, w in expected.items()]
    return float(torch.stack(apart).max())
