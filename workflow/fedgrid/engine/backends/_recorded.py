"""Record a function of tensors as the plain sequence of PyTorch's operations.

A record includes the operations of the gradient. It avoids the overhead of vmap, modules and
autograd, half of a small model's step. A number that does not come from the arguments keeps its
value of the first call.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from fedgrid.engine.hooks.calling import untouched_generators


def kind_of(leaves: list[Tensor], form: Any) -> tuple[Any, ...]:
    """Return what a record depends on: the form of the arguments, and shapes and types."""
    return (form, *((t.shape, t.stride(), t.dtype) for t in leaves))


def record(
    function: Callable[..., Any],
    leaves: list[Tensor],
    form: Any,
    instead: dict[Any, Any] | None = None,
) -> tuple[GraphModule, Any]:
    """Return the record of a function of nested tensors, and the structure of its result.

    The record is a function of the leaves, which stay as they are until it is called.
    `instead` has functions in place of some of torch's operations.
    """
    result = None

    def flat(*leaves: Any) -> Any:
        nonlocal result
        flattened, result = tree_flatten(function(*tree_unflatten(leaves, form)))
        return flattened

    # Tensors are identified by `id`, and one tensor may occur in several places. A resumed run
    # records in another round, so what recording draws must not move the random numbers. Without
    # a tracing context torch makes a mode for each operation, which takes most of the time.
    shapes = TracingContext(FakeTensorMode(allow_fallback_kernels=True))
    with untouched_generators(), tracing(shapes):
        graph = make_fx(flat, decomposition_table=instead)(*map(copied, leaves))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, result


def copied(leaf: Tensor) -> Tensor:
    """Return a copy if it has the same strides, and else the tensor, whose parts may overlap.

    Such a tensor cannot be changed in place.
    """
    leaf = leaf.detach()
    copy = leaf.clone()
    return copy if copy.stride() == leaf.stride() else leaf


class Recorded:
    """A function of nested tensors that is recorded once per shape of its arguments, then replayed.

    With `patience`, calls of a shape before so many are not recorded: a record takes as long as
    some calls, and shapes of a few clients may come once only.
    """

    def __init__(self, function: Callable[..., Any], patience: int = 0):
        self.function, self.patience = function, patience
        self.records: dict[Any, Any] = {}
        self.calls: Counter[Any] = Counter()

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's result."""
        leaves, form = tree_flatten(arguments)
        kind = kind_of(leaves, form)
        self.calls[kind] += 1
        if self.calls[kind] <= self.patience:
            return self.function(*arguments)
        if kind not in self.records:
            self.records[kind] = record(self.function, leaves, form)
        graph, result = self.records[kind]
        with torch.no_grad():
            return tree_unflatten(graph(*leaves), result)
