"""Compile the whole local step of a stack, once for each shape, and replay it.

The step is recorded (`_recorded.py`), from the ids of a batch's samples to the models after it.
torch's compiler, inductor, fuses its operations and writes code for them. On a GPU one call of it
becomes a CUDA graph, which is launched as one. Its inputs have places that stay the same: models
and optimisers' states stay in theirs, and what a round or a batch brings is copied there.

The compiler keeps its code in a folder that jobs share (`folder`). If several jobs need the same
code at once, one of them compiles it.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten, tree_leaves

from fedgrid.engine.backends._recorded import kind_of, record
from fedgrid.engine.backends._steps import Given, Places
from fedgrid.engine.convolution import fold
from fedgrid.engine.hooks.calling import untouched_generators
from fedgrid.engine.optimisers import copy
from fedgrid.engine.samples import Data
from fedgrid.runtime import files

log = logging.getLogger(__name__)

# How far the compiled step may be from the step, relative to the step's change: it adds in another
# order.
FAR = {"torch.float64": 1e-6, "torch.float32": 0.1, "torch.bfloat16": 0.5}
# Random numbers are those of the operations in the record. No choice is made by a clock. Results
# are written to memory after so many operations: after the default of 30, the gradient of a
# convolution, a sum over nine places, is several kernels (tests/benchmarks/README.md).
OPTIONS = {"fallback_random": True, "deterministic": True, "realize_opcount_threshold": 100}
Step = Callable[[Places, Data, Given, tuple[Any, ...]], Tensor]
Run = Callable[..., Sequence[Tensor]]  # the leaves of a step's arguments -> its losses alone


class Compiled:
    """A local step that is compiled once per shape of its arguments.

    `fused` says whether inductor compiles it; without that the recorded operations are replayed.
    """

    def __init__(self, step: Step, fused: bool):
        self.step, self.fused = step, fused
        self.succeeded = False  # whether inductor has compiled a step
        self.programs: dict[tuple[Any, ...], Program] = {}

    def start(self, places: Places, data: Data, given: Given, batch: tuple[Any, ...]) -> "Program":
        """Return the step of these shapes, with what it reads in all batches of a round."""
        places = places._replace(models=in_order(places.models))
        named = {name: in_order(getattr(given, name)) for name in ("server", "shared", "memory")}
        given = given._replace(**named)
        leaves, form = tree_flatten((places, data, given, batch))
        kind = (*kind_of(leaves, form), *(leaf.data_ptr() for leaf in tree_leaves((places, data))))
        if kind not in self.programs:
            self.programs[kind] = self.make(places, data, given, batch)
        copy(self.programs[kind].given, tree_leaves(given))
        return self.programs[kind]

    def make(self, places: Places, data: Data, given: Given, batch: tuple[Any, ...]) -> "Program":
        """Return the compiled step for these shapes; what it changes is left as it is."""
        program = Program(places, data, given, batch)
        form = tree_flatten((places, data, given, batch))[1]
        changed = [leaf.clone() for leaf in tree_leaves(places)]
        leaves = [*changed, *program.read]
        graph = record(self.step, leaves, form, INSTEAD)[0] if self.fused else None
        fused = graph and fuse(graph, changed, program.read)
        self.succeeded |= fused is not None
        # A compiler that fails leaves the bytes of a run that compiles nothing.
        program.run = fused or record(self.step, leaves, form)[0]
        if given.round.is_cuda:
            program.try_capture()
        return program


def in_order(tree: Any) -> Any:
    """Return nested dicts with their names in a fixed order.

    A checkpoint does not keep their order, and a resumed run must find the code of its beginning.
    """
    if not isinstance(tree, dict):
        return tree
    return {name: in_order(tree[name]) for name in sorted(tree)}


class Program:
    """A compiled step, which reads and writes always the same places: a CUDA graph on a GPU."""

    run: Run

    def __init__(self, places: Places, data: Data, given: Given, batch: tuple[Any, ...]):
        self.changed, self.launch = tree_leaves(places), self.call
        self.given, self.batch = ([t.clone() for t in tree_leaves(part)] for part in (given, batch))
        self.read = [*data, *self.given, *self.batch]

    def __call__(self, batch: tuple[Any, ...]) -> Tensor:
        """Take the step; return the clients' losses (G,), which the next call changes."""
        copy(self.batch, [*batch])
        self.launch()
        return self.losses

    @torch.no_grad()
    def call(self) -> None:
        """Take the step operation by operation."""
        (self.losses,) = self.run(*self.changed, *self.read)

    def try_capture(self) -> None:
        """Let the step be launched as one graph; with a warning, it is not if that fails."""
        try:
            self.capture()
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            log.warning("the local step cannot become a CUDA graph, so it is slower: %s", problem)

    def capture(self) -> None:
        """Make the graph; the call before it, which a capture asks for, is undone."""
        before, stream = [tensor.clone() for tensor in self.changed], torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream), torch.random.fork_rng([stream.device]):
                self.call()
        finally:
            torch.cuda.current_stream().wait_stream(stream)
            copy(self.changed, before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=shared_memory()):
            self.call()
        self.launch = graph.replay


@cache
def shared_memory() -> Any:
    """Return the memory in which all graphs work, which they can share, one after the other."""
    return torch.cuda.graph_pool_handle()


def spread(x: Tensor, dim: int, index: Tensor | int, source: Tensor) -> Tensor:
    """Add to x (..., K, ...) one number at each index: `source` has the size 1 in `dim`."""
    if source.shape[dim] != 1:
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    places = torch.arange(x.shape[dim], device=x.device).view(shape)
    return x + torch.where(places == index, source, source.new_zeros(()))


def select_backward(gradient: Tensor, sizes: list[int], dim: int, index: int) -> Tensor:
    """Return zeros of these sizes with the gradient at one index of a dimension."""
    place = index % sizes[dim]
    return spread(gradient.new_zeros(sizes), dim, place, gradient.unsqueeze(dim))


# What the compiler would do wrong: it adds up the numbers of windows in an order that changes from
# run to run, and with `repeatable` that of PyTorch 2.11 puts gradients in wrong places.
INSTEAD = {
    torch.ops.aten.unfold_backward.default: fold,
    torch.ops.aten.scatter_add.default: spread,
    torch.ops.aten.select_backward.default: select_backward,
}


def fuse(graph: GraphModule, changed: list[Tensor], read: list[Tensor]) -> Run | None:
    """Return the record as inductor compiles it; None, with a warning, if it cannot be used.

    It is called once with copies of what it changes, and must do what the record does.
    """
    try:
        expected = call_with_copies(graph, changed, read)
        fused = compiled(graph, [*changed, *read])
        found = call_with_copies(fused, changed, read)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:
        text = str(problem).strip().splitlines()
        why = text[0] if text else type(problem).__name__
        log.warning("torch's compiler failed, so the local step is not compiled: %s", why)
        return None
    if is_far(graph, changed, expected, found):
        log.warning(
            "torch %s compiles the local step wrongly: its first call gives other numbers than the "
            "operations one by one. So the step is not compiled",
            torch.__version__,
        )
        return None
    return fused


def call_with_copies(run: Run, changed: list[Tensor], read: list[Tensor]) -> list[Tensor]:
    """Return what a step would make of its places; random numbers stay as they are."""
    copies = [tensor.clone() for tensor in changed]
    with untouched_generators(), torch.no_grad():
        run(*copies, *read)
    return copies


def is_far(
    graph: GraphModule, before: list[Tensor], expected: list[Tensor], found: list[Tensor]
) -> bool:
    """Whether a step's result is farther from the expected one than by rounding."""
    floats = [t for t in before if t.is_floating_point()]
    share = max(FAR[kind] for kind in FAR if kind in graph.code or str(floats[0].dtype) == kind)
    largest = max(float(t.abs().max()) for t in floats if t.numel())
    for old, right, tensor in zip(before, expected, found, strict=True):
        if tensor.numel() and tensor.is_floating_point():
            allowed = share * float((right - old).abs().max())
            allowed += 100 * torch.finfo(tensor.dtype).eps * largest
            if not float((tensor - right).abs().max()) <= allowed:
                return bool(right.isfinite().all())
    return False


def compiled(graph: GraphModule, leaves: list[Tensor]) -> Run:
    """Return the record as inductor compiles it, and say in the log how long this took."""
    from torch._inductor import config, standalone_compile

    known = {name: value for name, value in OPTIONS.items() if hasattr(config, name)}
    asked = time.monotonic()
    with files.alone(folder() / name_of(graph, leaves)), repeatable(), config.patch(known):
        began, before = time.monotonic(), count_hits()
        fused = standalone_compile(
            reshaping(graph), [*leaves], dynamic_shapes="from_example_inputs"
        )
    said = "read from the folder of compiled code" if count_hits() > before else "compiled"
    seconds = time.monotonic() - began, began - asked
    log.info("the local step was %s in %.0f s, after %.0f s of waiting for others", said, *seconds)
    return fused


def count_hits() -> int:
    """Return how many programs the compiler has found in its folder, in this process."""
    from torch._dynamo.utils import counters

    return counters["aot_autograd"]["autograd_cache_hit"]


@contextmanager
def repeatable() -> Iterator[None]:
    """While it is on, the compiler adds up no numbers in an order that changes from run to run."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def reshaping(graph: GraphModule) -> GraphModule:
    """Return the record with reshapes for views, because inductor may choose other strides."""
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    graph.recompile()
    return graph


def folder() -> Path:
    """Return the folder in which the compiler keeps its code."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir())


def name_of(graph: GraphModule, leaves: list[Tensor]) -> str:
    """Return a name of the record for a lock: different records may have the same.

    The compiler writes other code for another precision of matrix products.
    """
    text = graph.code + repr([(t.shape, t.stride(), t.dtype, str(t.device)) for t in leaves])
    text += torch.get_float32_matmul_precision()
    return hashlib.sha256(text.encode()).hexdigest()[:16]
