"""Compile the whole local step of a stack, once for each shape, and replay it.

The step is recorded (`_recorded.py`), from the ids of a batch's samples to the models after it.
torch's compiler, inductor, fuses its operations and writes code for them. On a GPU one call of it
becomes a CUDA graph, which is launched as one: its inputs have places that stay the same, so models
and optimiser's states stay in theirs, and what a round or a batch brings is copied into them.

The compiler keeps its code in a folder that jobs share (`folder`). If several jobs need the same
code at once, one of them compiles it.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from fedgrid.engine.backends._recorded import kind_of, record
from fedgrid.engine.backends._steps import Given, Places
from fedgrid.engine.optimisers import copy
from fedgrid.engine.samples import Data
from fedgrid.runtime import files

log = logging.getLogger(__name__)

Step = Callable[[Places, Data, Given, tuple], Tensor]
Run = Callable[..., Sequence[Tensor]]  # the leaves of a step's arguments -> its losses alone


class Compiled:
    """A local step that is compiled once per shape of its arguments.

    `fused` says whether inductor compiles it; without that a GPU replays the recorded operations.
    """

    def __init__(self, step: Step, fused: bool, captured: bool):
        self.step, self.fused = step, fused
        self.kind = Captured if captured else Program
        self.programs: dict[tuple, Program] = {}

    def start(self, places: Places, data: Data, given: Given, batch: tuple) -> "Program":
        """Return the step of these shapes, with what it reads in all batches of a round."""
        leaves, form = tree_flatten((places, data, given, batch))
        kind = (*kind_of(leaves, form), *(leaf.data_ptr() for leaf in tree_leaves((places, data))))
        if kind not in self.programs:
            self.programs[kind] = self.make(places, data, given, batch)
        self.programs[kind].start(tree_leaves(given))
        return self.programs[kind]

    def make(self, places: Places, data: Data, given: Given, batch: tuple) -> "Program":
        """Return the compiled step for these shapes; what it changes is left as it is."""
        copies = tree_map(torch.clone, places)
        leaves, form = tree_flatten((copies, data, given, batch))
        graph, _ = record(self.step, leaves, form)
        run = fuse(graph, leaves) if self.fused else graph
        try:
            return self.kind(run, places, data, given, batch)
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            log.warning("the local step cannot become a CUDA graph, so it is slower: %s", problem)
            return Program(run, places, data, given, batch)


class Program:
    """A compiled step, called with the tensors that it is given."""

    def __init__(self, run: Run, places: Places, data: Data, given: Given, batch: tuple):
        self.run, self.fixed, self.given = run, tree_leaves((places, data)), tree_leaves(given)

    def start(self, given: list[Tensor]) -> None:
        """Take over what all batches of a round have."""
        self.given = given

    @torch.no_grad()
    def __call__(self, batch: tuple) -> Tensor:
        """Take the step in place; return the clients' losses (G,)."""
        return self.run(*self.fixed, *self.given, *batch)[0]


class Captured(Program):
    """A compiled step as a CUDA graph, which reads and writes always the same places."""

    def __init__(self, run: Run, places: Places, data: Data, given: Given, batch: tuple):
        super().__init__(run, places, data, given, batch)
        self.given, self.batch = ([t.clone() for t in tree_leaves(part)] for part in (given, batch))
        self.leaves = [*self.fixed, *self.given, *self.batch]
        self.capture(tree_leaves(places))

    def start(self, given: list[Tensor]) -> None:
        """Copy what all batches of a round have to its places."""
        copy(self.given, given)

    def __call__(self, batch: tuple) -> Tensor:
        """Take the step in place; return the clients' losses (G,), which the next call changes."""
        copy(self.batch, [*batch])
        self.replay()
        return self.loss

    @torch.no_grad()
    def capture(self, changed: list[Tensor]) -> None:
        """Record the graph; the call before it, which a capture asks for, is undone."""
        before, stream = [tensor.clone() for tensor in changed], torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.random.fork_rng([changed[0].device]):
            self.run(*self.leaves)
        torch.cuda.current_stream().wait_stream(stream)
        copy(changed, before)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.run(*self.leaves)[0]

    def replay(self) -> None:
        """Launch the graph."""
        self.graph.replay()


def fuse(graph: GraphModule, leaves: list[Tensor]) -> Run:
    """Return the record as inductor compiles it; as it is, with a warning, if that fails."""
    from torch._inductor import config, standalone_compile

    began = time.monotonic()
    try:
        # Random numbers are those of the operations in the record.
        with files.alone(folder() / name_of(graph, leaves)), config.patch(fallback_random=True):
            shapes = "from_example_inputs"
            fused = standalone_compile(reshaping(graph), leaves, dynamic_shapes=shapes)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:
        text = str(problem).strip().splitlines()
        why = text[0] if text else type(problem).__name__
        log.warning("torch's compiler failed, so the local step is not compiled: %s", why)
        return graph
    log.info("the local step was compiled in %.0f s", time.monotonic() - began)
    return fused


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
    """Return a name of the record for a lock: different records may have the same."""
    text = graph.code + repr([(t.shape, t.stride(), t.dtype, str(t.device)) for t in leaves])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
