"""Try the functions of a local step before the first and the last round, on a batch of a client.

They are called with a model that differs a little from the server's, because many penalties are
zero where both are equal. Each must give the same for the same step, leave the step unchanged, and,
if the method says that it leaves out padded samples, give the same for a padded batch.
"""

import logging
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
from fedgrid.engine.hooks.arguments import finite, same
from fedgrid.engine.hooks.calling import (
    IN_STEP,
    Hook,
    file_and_line,
    hooks,
    untouched_generators,
)
from fedgrid.engine.hooks.rules import MistakeError
from fedgrid.engine.masked import Masked
from fedgrid.method import Method, Model, Step

log = logging.getLogger(__name__)

MOVED = 0.01  # times a normal number, added to the server's parameters
PADDING = 3  # samples


def try_step(method: Method, architecture: Architecture, client: LocalWork) -> None:
    """Try the functions of a local step on the first batch of a client; UsageError if one fails.

    A warning names one without an effect. A `correct` may begin to have one after the first round,
    so its second trial counts.
    """
    if not (tried := hooks(method, *IN_STEP)):
        return
    with untouched_generators():
        step, gradients = first_step(method, architecture, client)
        for hook in tried:
            try_hook(hook, method.padded, step, gradients)
            if hook.idle and hook.trials == 1 + (hook.name == "correct"):
                log.warning("%s", describe_idle(hook))


def try_hook(hook: Hook, padded: bool, step: Step, gradients: Model) -> None:
    """Try one function of a local step."""
    seen = (step, gradients) if hook.name == "correct" else (step,)

    def given(step: Step = step) -> tuple[Any, ...]:
        return (step, *map(dict, seen[1:]))

    result = hook.trial(seen, given)
    with hook.named():
        hook.idle &= is_idle(hook.name, result, step, gradients)
        if hook.trials > 1:
            return
        if hook.name == "loss" and not result.requires_grad:
            raise MistakeError("does not depend on the parameters in training: use `step.logits`")
        if hook.name == "rate" and any(factor < 0 for factor in result.values()):
            raise MistakeError("gives a negative factor: give factors of at least 0")
        if not finite(result):
            if step.round:  # a model that has trained may diverge, also in a resumed run
                return
            raise MistakeError("gives a number that is not finite in the first round")
        if padded and not same(result, padded_result(lambda own: hook.call(*given(own)), step)):
            raise MistakeError(
                "counts the padding of a batch, although the method has padded=True: take means "
                "with `step.mean`, multiply sums by `step.valid`, or leave padded=True out"
            )


def is_idle(name: str, result: Any, step: Step, gradients: Model) -> bool:
    """Whether what a function gives changes no step, and is not zero because it need not."""
    if name == "correct":
        return result.keys() == gradients.keys() and all(
            torch.equal(result[n], one) for n, one in gradients.items()
        )
    if name == "rate" or not result:
        return False
    if not result.requires_grad:
        return True
    trained = [entry for entry in step.params.values() if entry.requires_grad]
    found = torch.autograd.grad(result, trained, retain_graph=True, allow_unused=True)
    return not any(one.any() for one in found if one is not None)


def describe_idle(hook: Hook) -> str:
    """Return in a sentence that a function has no effect."""
    why = "gives the gradients as they are" if hook.name == "correct" else "has no gradient"
    return (
        f"{file_and_line(hook.function)}: `{hook.name}` {why}, so that local steps are the same "
        "without it: compute it from `step.params` or `step.logits`, without `detach` or `item`"
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
        # A network with dropout draws the same numbers in each call.
        differentiate=untouched_generators()(partial(differentiate, architecture, method, own)),
    )
    return step, {name: noise(own[name]) for name in architecture.trainable}
