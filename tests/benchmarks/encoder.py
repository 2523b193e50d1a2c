"""Workload F's contestants: the salience R_k of every client's images to its own model.

fedgrid's encoder, the textbook's (guided modules in a copy of the model, hooks, one image at a
time, a whole backward pass each) and the textbook's over a batch. All take the paper's default
reading: the label's logit, gradient times activation, layers weighted by 0.5 to their depth.
"""

import copy
from functools import partial

import torch
from tests.benchmarks.task import Outcome, seeds_of
from torch import Tensor, nn

from fedgrid.encoders import guided
from fedgrid.engine.round import Engine
from fedgrid.engine.state import state_of
from fedgrid.method import Method

TARGETS = ("label",)
CHUNK = 64


def fedgrid(task):
    """As `fedgrid saliency` does it, for one target."""
    engine = Engine(task.build, Method(), task.protocol, task.federation)
    states = [state_of(engine.architecture.build(seed)) for seed in seeds_of(task)]

    def play(rounds: int, clock) -> Outcome:
        found = []
        with clock:
            for client, state in enumerate(states):
                contributions = partial(
                    guided.contributions, engine.architecture.empty, state, targets=TARGETS
                )
                sums = engine.samples.total(client, contributions)
                found.append(guided.stack(sums))
            main = guided.main_path(engine.architecture.empty, sums)
            weights = guided.Choice().weights(torch.stack(found, dim=-2), main, TARGETS)
        return Outcome({"R": weights})

    return play


def textbook(task):
    """One image at a time."""
    return partial(saliences, task, 1, models(task))


def batched(task):
    """The same with batches."""
    return partial(saliences, task, CHUNK, models(task))


def models(task) -> list[nn.Module]:
    """Every client's model."""
    return [task.build(seed).to(task.device).eval() for seed in seeds_of(task)]


def saliences(task, batch: int, models: list[nn.Module], rounds: int, clock) -> Outcome:
    """R_k of every client."""
    images, labels, weights = task.inputs(), task.federation.labels, []
    with clock:
        for model, members in zip(models, task.federation.members, strict=True):
            model, recorded = guide(copy.deepcopy(model))
            total = torch.zeros((), dtype=torch.float64, device=task.device)
            for index in torch.from_numpy(members).split(batch):
                x, y = images[index].to(task.device), labels[index]
                total += salience(model, recorded, x, y)
            weights.append(total)
        weights = torch.stack(weights)
    return Outcome({"R": weights})


def salience(model: nn.Module, recorded: list, x: Tensor, y: Tensor) -> Tensor:
    """sum_l 0.5^l sum_i |channel mean of gradient times activation| of a batch."""
    recorded.clear()
    model.zero_grad()
    _, logits = model(x)
    logits.gather(1, y[:, None]).sum().backward()
    total = 0
    for depth, output in enumerate(recorded):
        maps = (output.grad * output.detach().clamp(min=0)).mean(1)
        total += 0.5**depth * maps.flatten(1).norm(dim=1).sum().double()
    return total


def guide(model: nn.Module) -> tuple[nn.Module, list[Tensor]]:
    """The model with guided ReLUs, and where each pass leaves its main convolutions' outputs."""
    recorded = []

    def keep(module, inputs, output):
        output.retain_grad()
        recorded.append(output)

    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Conv2d) and not any(part in name for part in model.side_paths):
            module.register_forward_hook(keep)
        for child, relu in module.named_children():
            if isinstance(relu, nn.ReLU):
                setattr(module, child, GuidedReLU())
    return model, recorded


class GuidedReLU(nn.Module):
    """Lets a gradient pass where it and the input are positive; not in place."""

    def forward(self, x: Tensor) -> Tensor:
        """As ReLU's."""
        output = torch.relu(x)
        if output.requires_grad:
            output.register_hook(lambda gradient: gradient.clamp(min=0))
        return output
