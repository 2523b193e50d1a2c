"""Floating point operations of a client, counted by torch's `FlopCounterMode`.

If the protocol's `metrics` ask for `operations`, one real step of the backend `loop` is counted in
the first round of a process, with all passes that the method's functions make, forward and
backward; and what its `begin`, `remember` and `measure` compute for a client that has trained.
Products of matrices, convolutions and attention count, with two operations for a multiplication and
its addition; what works element by element does not. LSTMs are unrolled, because PyTorch does not
count its fused ones. For a network with another recurrent layer nothing is counted. What a method
computes on the server or in evaluations does not count either.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from fedgrid.engine import recurrent
from fedgrid.engine.architecture import Architecture
from fedgrid.engine.backends import loop
from fedgrid.engine.client import LocalWork
from fedgrid.engine.hooks.calling import hooks, untouched_generators
from fedgrid.engine.optimisers import copy
from fedgrid.method import Client, Method, Model
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Protocol


def count_operations(
    method: Method, architecture: Architecture, protocol: Protocol, client: LocalWork
) -> float | None:
    """Return the operations of a client's first local step, divided by the samples of its batch."""
    try:
        recurrent.check(architecture.live)
    except UsageError:
        return None
    batches = [*islice(client.batches, 1)]
    backend = loop.Backend(architecture, method, protocol)
    given = architecture.live, backend.train_client, replace(client, batches=batches)
    with untouched_generators():
        _, count = counted(leave_as_it_was, *given)
    return count / len(batches[0][1])


def count_around(method: Method, client: Client) -> float:
    """Return the operations of a client before and after its local steps, by its samples."""
    asked = hooks(method, "begin", "remember", "measure")
    with untouched_generators():
        count = sum(counted(hook.function, client)[1] for hook in asked)
    return count / int(client.counts.sum())


def counted(work: Callable[..., Any], *given: Any) -> tuple[Any, int]:
    """Return what `work` gives, and its operations."""
    counter: Any = FlopCounterMode(display=False)
    counter.mod_tracker = Together()
    with Unrolled(), counter:
        found = work(*given)
    return found, counter.get_total_flops()


class Together(nullcontext[None]):
    """Has a counter count all modules together: its hooks on each fail in some gradients."""

    parents = ("Global",)


def count_plain_step(network: torch.nn.Module, model: Model, x: Tensor, y: Tensor) -> int:
    """Return the operations of the gradient of the cross-entropy of a batch."""
    names = [name for name, _ in network.named_parameters()]
    trained = {name: model[name].detach().requires_grad_() for name in names}

    def differentiate() -> None:
        _, logits = functional_call(network, {**model, **trained}, (x,))
        torch.autograd.grad(F.cross_entropy(logits, y), [*trained.values()])

    return counted(differentiate)[1]


def leave_as_it_was(module: torch.nn.Module, work: Callable[..., Any], *given: Any) -> None:
    """Do some work that changes a module, and give the module its entries back."""
    entries = [*module.state_dict().values()]
    before = [entry.clone() for entry in entries]
    work(*given)
    copy(entries, before)


class Unrolled(TorchFunctionMode):
    """Unrolls LSTMs into operations that can be counted."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Every call of torch's API passes here."""
        lstm = function is torch.lstm
        return (recurrent.unrolled if lstm else function)(*arguments, **keywords or {})
