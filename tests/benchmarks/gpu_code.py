"""What torch's compiler writes for a GPU, on a machine that has none.

    python -m tests.benchmarks.gpu_code A C E           # workloads, with ten clients
    python -m tests.benchmarks.gpu_code --methods moon  # methods, on the network of `fedgrid check`

A local step is recorded on the CPU, with the convolutions that a GPU takes. Then its devices are
renamed, and the compiler is told that there is an H100. It writes the step for it: kernels, which
Triton translates into machine code, and calls of libraries. Nothing is run, so no time is measured.
It prints the launches of a step, and the operations and bytes of them, as the compiler counts
them. A step that the compiler cannot write, and a kernel that adds in a changing order, are errors.
"""

import argparse
import re
import runpy
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.utils._triton
from tests.benchmarks import task
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._inductor import async_compile, compile_fx, config, graph
from torch._inductor.runtime import triton_helpers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from fedgrid.checking import small
from fedgrid.engine import convolution
from fedgrid.engine.backends import _compiled
from fedgrid.engine.backends._recorded import record
from fedgrid.engine.backends._steps import Steps
from fedgrid.engine.round import Engine
from fedgrid.method import Method
from fedgrid.runtime.code import contract

GPU = torch.device("cuda", 0)
CAPABILITY = (9, 0)
H100 = SimpleNamespace(
    **{"name": "NVIDIA H100", "major": 9, "minor": 0, "multi_processor_count": 132},
    **{"total_memory": 85 * 10**9, "L2_cache_size": 50 * 2**20, "warp_size": 32},
    **{"max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024},
    **{"regs_per_multiprocessor": 65536, "shared_memory_per_block": 49152},
    **{"shared_memory_per_block_optin": 232448, "shared_memory_per_multiprocessor": 233472},
)
# Constants cannot be computed beforehand on a card that is not there.
OPTIONS = _compiled.OPTIONS | {"joint_graph_constant_folding": False, "force_disable_caches": True}


@dataclass
class Written:
    """What the compiler wrote for one step."""

    launches: Counter[str] = field(default_factory=Counter)  # by what is launched
    read_and_written: Counter[str] = field(default_factory=Counter)  # bytes, by their purpose
    kernels: dict[str, str] = field(default_factory=dict)  # sources, by name
    flops: int = 0  # of products and convolutions


class Asked(Exception):  # noqa: N818
    """The arguments of a step."""


class Asking(_compiled.Compiled):
    """In place of a compiled step: it only tells with which arguments it would be made."""

    def make(self, *arguments: Any) -> Any:
        """Raise Asked."""
        raise Asked(arguments)


def recorded(engine: Engine, method: Method) -> tuple[GraphModule, list[Tensor]]:
    """The step of a stack, as it would be recorded on a GPU, and its arguments on the CPU."""
    parts = engine.architecture, method, engine.backend.optimiser, engine.samples
    step = Steps(*parts, whole=True).take_whole
    engine.backend.compiled = Asking(step, fused=True)
    try:
        engine.round(engine.start(task.SEED))
        raise LookupError("no step of the first round can be compiled")
    except Asked as asked:
        leaves, form = tree_flatten(asked.args[0])
    with patch.object(convolution, "worth", few_taps):
        made, _ = record(step, [leaf.clone() for leaf in leaves], form, _compiled.INSTEAD)
    for node in made.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", GPU)
    return _compiled.reshaping(made), leaves


def few_taps(x: Tensor, weight: Tensor) -> bool:
    """`convolution.worth` on a GPU."""
    return weight.shape[2:].numel() <= convolution.TAPS


def write(made: GraphModule, leaves: list[Tensor]) -> Written:
    """What the compiler writes of a recorded step."""
    written, mode = Written(), FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        places = [
            torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=GPU)
            for leaf in leaves
        ]

    def inner(*arguments: Any, **keywords: Any) -> Any:
        with card(written):
            return compile_fx.compile_fx_inner(*arguments, **keywords)

    known = {name: value for name, value in OPTIONS.items() if hasattr(config, name)}
    with mode, tracing(TracingContext(mode)), _compiled.repeatable(), config.patch(known):
        compile_fx.compile_fx(made, places, inner_compile=inner)
    return written


@contextmanager
def card(written: Written) -> Iterator[None]:
    """While it is on, the compiler believes that there is an H100, and what it writes is noted."""
    generate = graph.GraphLowering.codegen

    def noting(lowering: graph.GraphLowering) -> Any:
        code = generate(lowering)
        note(lowering.scheduler.nodes, code[0].value, written)
        return code

    def keep(compiler: Any, name: str, source: str, **device: str) -> SimpleNamespace:
        written.kernels[name] = source
        return SimpleNamespace(run=None)

    known = {
        **{"is_available": True, "device_count": 1, "current_device": 0},
        **{"get_device_properties": H100, "_get_device_properties": H100},
        **{"get_device_capability": CAPABILITY, "is_bf16_supported": True},
        **{"_exchange_device": 0, "_maybe_exchange_device": 0, "set_rng_state": None},
        **{"get_rng_state": torch.zeros(16, dtype=torch.uint8), "_lazy_init": None},
        "current_stream": SimpleNamespace(cuda_stream=0, stream_id=0),
    }
    with ExitStack() as stack:
        for name, value in known.items():
            stack.enter_context(patch.object(torch.cuda, name, answer(value), create=True))
        stack.enter_context(patch.object(async_compile.AsyncCompile, "triton", keep))
        stack.enter_context(patch.object(async_compile.AsyncCompile, "wait", answer(None)))
        stack.enter_context(patch.object(graph.GraphLowering, "codegen", noting))
        forget()
        stack.callback(forget)
        stack.enter_context(patch.object(driver, "_active", Driver()))
        yield


def answer(value: Any) -> Any:
    """A function that always gives this value."""
    return lambda *arguments, **keywords: value


def forget() -> None:
    """Let torch ask again whether there is Triton and a GPU for it."""
    for function in vars(torch.utils._triton).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


class Driver:
    """What Triton asks about the card."""

    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda *arguments: 0)
    get_active_torch_device = staticmethod(lambda: GPU)
    get_device_interface = staticmethod(lambda: torch.cuda)


def note(nodes: list[Any], code: str, written: Written) -> None:
    """Note the launches in the code, and the bytes of what the compiler has scheduled."""
    call = code[code.index("def call(") :]
    calls = re.findall(r"(?:extern_kernels|torch\.ops\.aten)\.(\w+)[\w.]*\(", call)
    written.launches.update(calls)
    written.launches["kernel"] += len(re.findall(r"\.run\(", call))
    for node in nodes:
        written.read_and_written[purpose(node)] += node.get_read_write_buffers_sizes()
        written.flops += node.estimate_flops() or 0


def purpose(node: Any) -> str:
    """What a part of a step is for, by the operations that it was made of."""
    made_of = {
        str(origin.target).removeprefix("aten.").partition(".")[0]
        for one in node.get_nodes()
        for origin in (one.node.origins if one.node is not None else ())
    }
    if any(name.startswith("_foreach") for name in made_of):
        return "update of models"
    if "Extern" in type(node).__name__:
        return "products and convolutions"
    if "unfold" in made_of:
        return "windows of convolutions"
    if "constant_pad_nd" in made_of:
        return "gradients of windows"
    return "all else"


def translate(written: Written) -> None:
    """Let Triton translate the kernels into machine code; an exception if it cannot."""
    driverless = patch.object(triton_helpers, "set_driver_to_gpu", answer(None))
    with tempfile.TemporaryDirectory() as folder, card(Written()), driverless:
        for number, (name, source) in enumerate(written.kernels.items()):
            path = Path(folder) / f"kernel{number}.py"
            path.write_text(source, encoding="utf-8")
            kernel = runpy.run_path(str(path))[name]
            kernel._precompile_config(kernel.configs[0])


def of_workload(name: str, precision: str) -> tuple[GraphModule, list[Tensor]]:
    """The recorded step of a workload, with FedAvg."""
    made = task.make(name, 1, "cpu", precision)
    engine = Engine(made.build, Method(), made.protocol, made.federation, "stacked")
    return recorded(engine, Method())


def of_method(name: str) -> tuple[GraphModule, list[Tensor]]:
    """The recorded step of a method, on the tiny network and federation of `fedgrid check`."""
    method = contract.imported(f"methods.{name}").method()
    protocol = task.PROTOCOL | {"clients": len(small.SIZES), "participation": 2 / 3, "rounds": 4}
    protocol |= {"local": 3, "local_unit": "steps", "batch": 4, "precision": "fp64"}
    protocol |= {"momentum": 0.9, "weight_decay": 0.01, "augment": ["crop", "flip"]}
    given = protocol, small.uneven(), "stacked", small.artifacts(name)
    return recorded(Engine(small.tiny, method, *given), method)


def show(name: str, made: tuple[GraphModule, list[Tensor]]) -> None:
    """Print what the compiler writes of a step, after Triton has translated it."""
    written = write(*made)
    if changing := [kernel for kernel, source in written.kernels.items() if "tl.atomic" in source]:
        raise AssertionError(f"{name}: {changing} add up in an order that changes")
    translate(written)
    calls = ", ".join(f"{n} {what}" for what, n in written.launches.most_common())
    total = written.read_and_written.total()
    print(f"{name}: {written.launches.total()} launches ({calls})")
    print(f"    {'floating-point operations':28} {written.flops / 1e9:9.2f} billion")
    print(f"    {'read and written':28} {total / 1e6:9.1f} MB:")
    for what, size in written.read_and_written.most_common():
        print(f"      {what:26} {size / 1e6:9.1f} MB")
    sys.stdout.flush()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--precision", default="fp32", help="of workloads")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name in asked.workloads:
        show(name, of_workload(name, asked.precision))
    for name in asked.methods:
        show(name, of_method(name))


if __name__ == "__main__":
    main()
