"""Record a function of tensors as the plain sequence of PyTorch's operations.

A record includes the operations of the gradient. It avoids the overhead of vmap, modules and
autograd, half of a small model's step. A number that does not come from the arguments keeps its
value of the first call.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
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


def called_directly(graph: GraphModule) -> Callable[..., Any]:
    """Return a record as a function that calls torch's operations without looking up their names.

    The record's own function looks up `torch.ops.aten.add.Tensor` part by part at every call, which
    takes a third of the time of a small operation.
    """
    code = graph.graph.python_code("self")
    known = dict(code.globals)

    def keep(match: re.Match[str]) -> str:
        name = match[0].replace(".", "_")
        known[name] = operator.attrgetter(match[1])(torch)._op
        return name

    exec(re.sub(r"torch\.(ops(?:\.\w+){3})(?=\()", keep, code.src), known)
    return partial(known["forward"], graph)


def copied(leaf: Tensor) -> Tensor:
    """Return a copy if it has the same strides, and else the tensor, whose parts may overlap.

    Such a tensor cannot be changed in place.
    """
    leaf = leaf.detach()
    copy = leaf.clone()
    return copy if copy.stride() == leaf.stride() else leaf


class Flat:
    """Nested tensors and their leaves, with which a record is called many times."""

    def __init__(self, tree: Any):
        self.tree = tree
        self.leaves, form = tree_flatten(tree)
        self.kind = kind_of(self.leaves, form)
        self.records: dict[Any, Any] = {}  # found before: by the function and the other shapes


class Recorded:
    """A function that is recorded once per shape of its arguments, then replayed.

    Its first argument is nested, and the others are tensors. With `patience`, calls of a shape
    before so many are not recorded: a record takes as long as some calls, and shapes of a few
    clients may come once only.
    """

    def __init__(self, function: Callable[..., Any], patience: int = 0):
        self.function, self.patience = function, patience
        self.records: dict[Any, Any] = {}
        self.calls: Counter[Any] = Counter()

    def __call__(self, first: Flat, *others: Tensor) -> Any:
        """Return the function's result."""
        key = (self, *((t.shape, t.stride(), t.dtype) for t in others))
        if not (found := first.records.get(key) or self.find(first, others)):
            return self.function(first.tree, *others)
        first.records[key] = graph, result = found
        with torch.no_grad():
            return tree_unflatten(graph(*first.leaves, *others), result)

    def find(self, first: Flat, others: tuple[Tensor, ...]) -> Any:
        """Return the record of these shapes and the form of its result; None in patience."""
        kind = (first.kind, kind_of([*others], None))
        self.calls[kind] += 1
        if self.calls[kind] <= self.patience:
            return None
        if kind not in self.records:
            leaves, form = tree_flatten((first.tree, *others))
            graph, result = record(self.function, leaves, form)
            self.records[kind] = called_directly(graph), result
        return self.records[kind]


def unrecorded(function: Callable[..., Any], patience: int = 0) -> Callable[..., Any]:
    """Return a function that is called as a record of it would be, and is not recorded."""
    return lambda first, *others: function(first.tree, *others)
