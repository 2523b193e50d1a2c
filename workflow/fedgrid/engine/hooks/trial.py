"""Try the functions of a local step before the first round, on a batch of a client of this round.

They are called with a model that differs a little from the server's, because many penalties are
zero where both are equal. Each must give the same for the same step, leave the step unchanged, and,
if the method says that it leaves out padded samples, give the same for a padded batch.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.client import LocalWork
from fedgrid.engine.gradients import differentiate
from fedgrid.engine.hooks.arguments import finite, same, versions
from fedgrid.engine.hooks.calling import IN_STEP, Hook, hooks, untouched_generators
from fedgrid.engine.hooks.rules import MistakeError
from fedgrid.engine.masked import Masked
from fedgrid.method import Method, Model, Step

MOVED = 0.01  # times a normal number, added to the server's parameters
PADDING = 3  # samples


def try_step(method: Method, architecture: Architecture, client: LocalWork) -> None:
    """Try the functions of a local step on the first batch of a client; UsageError if one fails."""
    if not (tried := hooks(method, *IN_STEP)):
        return
    with untouched_generators():
        step, gradients = first_step(method, architecture, client)
        for hook in tried:
            try_hook(hook, method.padded, step, gradients)


def try_hook(hook: Hook, padded: bool, step: Step, gradients: Model) -> None:
    """Try one function of a local step."""

    def call(step: Step) -> Any:
        return hook.call(step, *([dict(gradients)] if hook.name == "correct" else []))

    before = versions((step, gradients))
    result = call(step)
    hook.unchanged(before, versions((step, gradients)))
    hook.repeat(result, step, *([dict(gradients)] if hook.name == "correct" else []))
    with hook.named():
        if hook.name == "loss" and not result.requires_grad:
            raise MistakeError("does not depend on the parameters in training: use `step.logits`")
        if hook.name == "rate" and any(factor < 0 for factor in result.values()):
            raise MistakeError("gives a negative factor: give factors of at least 0")
        if not finite(result):
            raise MistakeError("gives a number that is not finite in the first round")
        if padded and not same(result, padded_result(call, step)):
            raise MistakeError(
                "counts the padding of a batch, although the method has padded=True: take means "
                "with `step.mean`, multiply sums by `step.valid`, or leave padded=True out"
            )


def padded_result(call: Callable[[Step], Any], step: Step) -> Any:
    """Return what a function gives for the step with padding at the end of its batch."""
    again = torch.arange(PADDING, device=step.y.device) % len(step.y)

    def longer(values: Tensor) -> Tensor:
        more = values[again]
        return torch.cat([values, 3 * more + 1 if values.is_floating_point() else more.flip(0)])

    batch: dict[str, Any] = {
        name: longer(getattr(step, name)) for name in ("x", "y", "features", "logits")
    }
    valid = torch.cat([step.valid, torch.zeros_like(step.valid[:1]).expand(PADDING)])
    with Masked(valid, {}):  # a teacher may use batch statistics
        return call(replace(step, valid=valid, **batch))


def first_step(method: Method, architecture: Architecture, client: LocalWork) -> tuple[Step, Model]:
    """Return a client's first step, with a model beside the server's, and numbers for gradients."""
    x, y = next(iter(client.batches))
    generator = torch.Generator(architecture.device).manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=generator, device=like.device)
        return MOVED * drawn.to(like.dtype)

    own = client.server
    moved = {name: own[name] + noise(own[name]) for name in architecture.parameters}
    statistics = {name: own[name].clone() for name in architecture.statistics}
    for name in architecture.trainable:
        moved[name].requires_grad_()
    with architecture.precision():
        features, logits = functional_call(architecture.live, moved | statistics, (x,))
    valid = torch.ones(len(y), dtype=architecture.dtype, device=architecture.device)
    features, logits = (part.to(architecture.dtype) for part in (features, logits))
    step = Step(
        params=moved,
        server=own,
        memory=client.memory,
        shared=client.shared,
        x=x,
        y=y,
        valid=valid,
        counts=client.counts,
        features=features,
        logits=logits,
        round=client.round,
        step=torch.zeros_like(client.steps),
        steps=client.steps,
        lr=torch.full_like(valid[0], client.lr),
        forward=architecture.forward,
        differentiate=partial(differentiate, architecture, method, own),
    )
    return step, {name: noise(own[name]) for name in architecture.trainable}
