"""A simulated GPU: its tensors say that they are on a GPU, and the CPU holds their numbers.

As on a GPU, an operation on tensors in two places fails, unless the tensor on the CPU is a single
number or an index. So a function that forgets the device is found on a machine that has no GPU. All
other numbers are those of the CPU. There are no streams and no CUDA graphs.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


@contextmanager
def simulated_gpu() -> Iterator[torch.device]:
    """Yield the device of the simulated GPU, which can be used as long as the context is open."""
    memory = SimpleNamespace(total_memory=0)
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "Generator", AnyGenerator))
        stack.enter_context(patch.object(torch.cuda, "_lazy_init"))
        stack.enter_context(patch.object(torch.cuda, "manual_seed"))
        stack.enter_context(patch.object(torch.cuda, "get_device_properties", lambda _: memory))
        stack.enter_context(Creation())
        stack.enter_context(Operations())
        yield GPU


class OnGpu(Tensor):
    """A tensor on the simulated GPU. `held` has its numbers.

    For PyTorch itself it is on the device "meta", because PyTorch asks for a driver for any other.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnGpu":
        like: Any = {name: getattr(held, name) for name in ("dtype", "layout", "requires_grad")}
        like |= {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, held.shape, device=torch.device("meta"), **like)
        assert isinstance(made, cls)
        made.held = held
        return made

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = is_meta = property(lambda self: False)

    def tolist(self) -> Any:
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Return the numbers if they may be copied; otherwise fail as a tensor on a GPU does."""
        if not force:
            raise TypeError("can't convert a tensor on a GPU to numpy; use Tensor.cpu() first")
        return self.held.numpy(force=True)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGpu({self.held})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(function, args, kwargs or {})


class Operations(TorchDispatchMode):
    """While it is on, what is asked for on a GPU is on the simulated one."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(function, args, kwargs or {})


class Creation(TorchFunctionMode):
    """While it is on, a tensor of given numbers is made on the CPU and moved.

    PyTorch makes it in a way that no `TorchDispatchMode` sees.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        refuse_other_generator(args, kwargs)
        if function is Tensor.new_tensor:
            like, *args = args
            kwargs = {"dtype": like.dtype, "device": like.device} | kwargs
            function = torch.tensor
        device = kwargs.pop("device", None) if function in (torch.tensor, torch.as_tensor) else None
        made = function(*args, **kwargs)
        return made if device is None else made.to(device)


class AnyGenerator(torch.Generator):
    """A generator of random numbers that is on the CPU, whatever device is asked for."""

    asked: str

    def __new__(cls, device: Any = CPU) -> "AnyGenerator":
        made = super().__new__(cls, CPU)  # type: ignore[call-arg]
        made.asked = torch.device(device).type
        return made


def compute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of an operation, as a tensor on the simulated GPU if it is one there."""
    name, device = function._schema.name.partition("::")[2], kwargs.get("device")
    if name == "_pin_memory":
        return args[0].clone()
    on_cpu: dict[str, Any] = {"device": CPU} if device is not None else {}
    on_cpu |= {"pin_memory": False} if kwargs.get("pin_memory") else {}
    given = args, kwargs | on_cpu
    held, options = tree_map_only(OnGpu, lambda leaf: leaf.held, given)
    if name == "copy_":
        function(*held, **options)
        return args[0]
    from_gpu = any(isinstance(leaf, OnGpu) for leaf in tree_leaves((args, kwargs)))
    if from_gpu and name != "_to_copy":
        refuse_two_devices(name, args, kwargs)
    result = function(*held, **options)
    if not (from_gpu if device is None else torch.device(device).type in ("cuda", "meta")):
        return result
    result = tree_map_only(Tensor, lambda t: t if isinstance(t, OnGpu) else OnGpu(t), result)
    return return_and_correct_aliasing(function, args, kwargs, result) if from_gpu else result


def refuse_two_devices(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Fail in PyTorch's words if a tensor is on the CPU, and is neither a number nor an index."""
    if name in INDEXING and isinstance(args[0], OnGpu):
        args = (args[0], *args[2:])
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, Tensor) and not isinstance(leaf, OnGpu) and leaf.dim():
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu, of shape {tuple(leaf.shape)}, in {name}"
            )


def refuse_other_generator(args: Any, kwargs: dict[str, Any]) -> None:
    """Fail in PyTorch's words if random numbers are drawn from a generator of another device."""
    first = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)), None)
    device = torch.device(kwargs.get("device") or (CPU if first is None else first.device)).type
    if (asked := getattr(kwargs.get("generator"), "asked", device)) != device:
        raise RuntimeError(f"Expected a '{device}' device type for generator but found '{asked}'")
