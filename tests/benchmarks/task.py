"""A workload made real, the same for every contestant: data, initial weights and batches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import torch
from tests.benchmarks import workloads
from torch import Tensor, nn

from fedgrid import models
from fedgrid.engine.device import prepare
from fedgrid.engine.state import state_of
from fedgrid.federation import augment, schedule, seeds
from fedgrid.federation.federation import Federation
from fedgrid.models import Classifier
from fedgrid.partitions import dirichlet
from fedgrid.study.protocol import PROTOCOL

CLASSES = 10
SEED = 0
SHARE = 0.3  # of the cohort in comparisons in float64, which nobody times


@dataclass(frozen=True)
class Turn:
    """One client's part of a round."""

    client: int
    samples: int  # that it has
    batches: list[Tensor]  # sample ids of every step


@dataclass(frozen=True)
class Round:
    """What a cohort does."""

    lr: float
    turns: list[Turn]
    evaluated: bool  # the server's model, afterwards


@dataclass(frozen=True)
class Task:
    """All that a contestant is given; `key` makes the same task again in another process."""

    key: tuple
    workload: dict
    protocol: dict
    federation: Federation
    build: Callable[[int], nn.Module]
    plan: list[Round]
    initial: dict[str, Tensor]

    @property
    def device(self) -> torch.device:
        """Where the models are."""
        return self.federation.images.device

    @property
    def sgd(self) -> dict:
        """The optimiser's settings beside its learning rate."""
        return {name: self.protocol[name] for name in ("momentum", "weight_decay")}

    def model(self) -> nn.Module:
        """The model with its initial weights."""
        model = self.build(SEED).to(self.device)
        model.load_state_dict(self.initial, strict=False)
        return model

    def inputs(self) -> Tensor:
        """All training images, normalised; on the CPU."""
        return self._normalised(self.federation.images)

    def test_inputs(self) -> Tensor:
        """All test images, normalised; on the CPU."""
        return self._normalised(self.federation.test_images)

    def _normalised(self, images: Tensor) -> Tensor:
        data = self.federation
        made = torch.empty(images.shape, dtype=data.mean.dtype)
        for some, into in zip(images.split(1000), made.split(1000), strict=True):
            into.copy_(augment.normalise(some, data.mean, data.std))
        return made


@dataclass(frozen=True)
class Outcome:
    """What a contestant ends with."""

    state: dict[str, Tensor]  # the server's model, or other numbers to compare, by name
    accuracies: list[float] = field(default_factory=list)


@lru_cache(1)
def make(name: str, rounds: int, device: str = "cpu", precision: str = "fp32") -> Task:
    """The task of a workload; the same arguments give the same task in any process."""
    where = prepare(device, 1, precision)
    workload = workloads.find(name, device)
    protocol = PROTOCOL | workload["protocol"]
    protocol |= {"clients": workload["clients"], "precision": precision, "rounds": rounds}
    protocol |= {"evaluate_every": workload["evaluate_every"]}
    if precision == "fp64":
        protocol["participation"] *= SHARE
    dtype = torch.float64 if precision == "fp64" else torch.float32
    data = federated(workload, protocol["recipe"], where, dtype)
    build = partial(build_model, protocol["model"], workload["shape"], dtype)
    plan = [planned(data, protocol, r) for r in range(rounds)] if rounds else []
    key = (name, rounds, device, precision)
    return Task(key, workload, protocol, data, build, plan, state_of(build(SEED)))


def build_model(name: str, shape: tuple[int, int, int], dtype: torch.dtype, seed: int) -> nn.Module:
    """A model of fedgrid's, or a linear one."""
    if name != "linear":
        return models.build(name, shape, CLASSES, seed=seed).to(dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Classifier(nn.Flatten(), int(np.prod(shape)), CLASSES).to(dtype)


def federated(workload: dict, recipe: str, device: torch.device, dtype: torch.dtype) -> Federation:
    """Random images and labels, every class as often as any other, partitioned by the recipe."""
    random = torch.Generator().manual_seed(SEED)

    def images(n: int) -> Tensor:
        shape = (n, *workload["shape"])
        return torch.randint(0, 256, shape, generator=random, dtype=torch.uint8).to(device)

    labels = torch.arange(workload["samples"]) % CLASSES
    names = (workload["name"], f"dir{workload['alpha']}", SEED)
    made = dirichlet.draw(
        *(labels.numpy(), CLASSES, workload["clients"], recipe, workload["alpha"]), *names
    )
    mean = torch.full((workload["shape"][0], 1, 1), 0.5, device=device, dtype=dtype)
    return Federation(
        *(images(workload["samples"]), labels.to(device)),
        *(images(workload["tests"]), (torch.arange(workload["tests"]) % CLASSES).to(device)),
        *(mean, mean / 2),
        members=made.members,
        counts=torch.from_numpy(made.counts).to(device),
        names=names,
    )


def planned(data: Federation, protocol: dict, number: int) -> Round:
    """The round `number` as fedgrid's schedule has it."""
    names = (*data.names, number)
    cohort = schedule.cohort(len(data.members), protocol["participation"], *names)
    work = schedule.work(cohort, data.members, protocol, *names)
    turns = [
        Turn(
            client=int(client),
            samples=len(data.members[client]),
            batches=[
                torch.from_numpy(work.index[s, c][work.valid[s, c]]) for s in range(work.steps[c])
            ],
        )
        for c, client in enumerate(work.clients)
    ]
    evaluated = (number + 1) % protocol["evaluate_every"] == 0
    return Round(protocol["lr"] * protocol["lr_decay"] ** number, turns, evaluated)


def seeds_of(task: Task) -> list[int]:
    """A seed for each client's own model."""
    return [
        seeds.seed("client", *task.federation.names, k) for k in range(task.protocol["clients"])
    ]
