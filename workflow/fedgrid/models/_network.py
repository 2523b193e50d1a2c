"""Refuse a network that local training, averages and stacks of clients cannot have."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedgrid.runtime.names import UsageError, shown_error


def check_network(where: str, model: nn.Module, inputs: Tensor, width: int) -> None:
    """Refuse a model of a file `where` whose entries or features are not as they must be.

    Two samples are passed, because BatchNorm refuses a single value per channel.
    """
    if problem := find_entry(model) or find_output(model, inputs, width):
        raise UsageError(f"{where}: {problem}")


def find_entry(model: nn.Module) -> str:
    """Return what is wrong with the parameters and buffers of a model; "" if nothing is."""
    seen: dict[int, str] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if is_lazy(tensor):
            return f"`{name}` is of a lazy layer, without a size: give its layer all sizes"
        if not (tensor.is_floating_point() and tensor.requires_grad):
            return f"the parameter `{name}` cannot be trained by real gradients: make it a buffer"
        if seen.setdefault(id(tensor), name) != name:
            same = f"`{name}` is the same parameter as `{seen[id(tensor)]}`"
            return f"{same}: give each layer its own weights"
        if hasattr(tensor, "drawn"):
            return f"`{name}` is the same parameter in each model: let `body` make all its layers"
    for name, buffer in model.named_buffers():
        if is_lazy(buffer) or buffer.is_complex():
            return f"the buffer `{name}` has no size, or complex numbers: give it real numbers"
    for name, entry in [*model.named_parameters(), *model.named_buffers()]:
        vars(entry)["drawn"] = True
        if entry.device.type != "cpu":
            return f"`{name}` is on {entry.device}: make it on the CPU"
    return ""


def find_output(model: nn.Module, inputs: Tensor, width: int) -> str:
    """Return what is wrong with what the body of a model gives; "" if nothing is."""
    wanted = f"a tensor ({len(inputs)}, {width}) of real numbers for {len(inputs)} samples"
    for training in (False, True):
        try:
            network: Any = copy.deepcopy(model).to(torch.get_default_dtype())
            given = network.train(training).body(inputs)
        except Exception as problem:
            return f"the body fails with {shown_error(problem)}, for inputs {(*inputs.shape,)}"
        if not (isinstance(given, Tensor) and given.shape == (len(inputs), width)):
            what = tuple(given.shape) if isinstance(given, Tensor) else f"a {type(given).__name__}"
            return f"the body gives {what}, not {wanted}, by its width {width}: correct `body`"
        if given.dtype != torch.get_default_dtype():
            return f"the body gives {given.dtype}, not {torch.get_default_dtype()}: convert it"
        if {*map(id, leaves(given))} - {*map(id, network.parameters())}:
            return "the body trains weights that are not its parameters: use nn.ModuleList"
    return ""


def leaves(given: Tensor) -> Iterator[Tensor]:
    """Yield the tensors that a gradient of `given` would be of."""
    found, left = set(), [given.grad_fn]
    while left:
        if (step := left.pop()) and step not in found:
            found.add(step)
            left += [before for before, _ in step.next_functions]
            if hasattr(step, "variable"):
                yield step.variable
