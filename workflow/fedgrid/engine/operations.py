"""Floating point operations of a client's local step, counted by torch's `FlopCounterMode`.

If the protocol's `metrics` ask for `operations`, one real step of the backend `loop` is counted in
the first round of a process, with all passes that the method's functions make, forward and
backward. Products of matrices, convolutions and attention count, with two operations for a
multiplication and its addition; what works element by element does not. LSTMs are unrolled, because
PyTorch does not count its fused ones. For a network with another recurrent layer nothing is
counted. What a method computes before and after its local steps, or on the server, does not count
either.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from fedgrid.engine import recurrent
from fedgrid.engine.architecture import Architecture
from fedgrid.engine.backends import loop
from fedgrid.engine.client import LocalWork
from fedgrid.engine.hooks.calling import untouched_generators
from fedgrid.engine.optimisers import copy
from fedgrid.method import Method
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
    with untouched_generators(), Unrolled(), FlopCounterMode(display=False) as counter:
        leave_as_it_was(architecture.live, backend.train_client, replace(client, batches=batches))
    return counter.get_total_flops() / len(batches[0][1])


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
