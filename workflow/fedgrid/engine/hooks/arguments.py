"""The tensors in what a method's function is given, or gives: their values, places and changes."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

ROUNDING = 100  # times the precision of the largest number
LARGE = 1e9  # a model with a larger entry is about to diverge
CLOSE = 1e-3  # relative; a sum in another order differs by less, other random numbers by more


def tensors(value: Any, place: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested dicts, lists and records, with its place as Python writes it."""
    if isinstance(value, Tensor):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors(part, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from tensors(part, f"{place}[{i}]")
    elif is_dataclass(value):
        for one in fields(value):
            yield from tensors(getattr(value, one.name), f"{place}.{one.name}")


Versions = dict[str, tuple[Any, Any]]  # place -> a tensor or network, and what says if it changed


def versions(arguments: tuple[Any, ...]) -> Versions:
    """Return every tensor of the arguments by its place, with PyTorch's count of its changes.

    A network is there with the number of its modules that are in training mode.
    """
    found: Versions = {place: (tensor, tensor._version) for place, tensor in tensors(arguments)}
    for number, argument in enumerate(arguments):
        if isinstance(network := getattr(argument, "architecture", None), nn.Module):
            training = sum(module.training for module in network.modules())
            found[f"[{number}].architecture"] = network, training
    return found


@torch.no_grad()
def sums(arguments: tuple[Any, ...]) -> dict[str, float]:
    """Return a sum of each tensor of the arguments by its place, with a weight for each number.

    It shows changes by `tensor.data` or `tensor.numpy()`, which PyTorch does not count.
    """
    return {place: weighted_sum(t) for place, t in tensors(arguments) if not t.is_meta}


def weighted_sum(tensor: Tensor) -> float:
    """Return the sum of a tensor's numbers with weights from 1 to 2."""
    weights = torch.linspace(1, 2, tensor.numel(), dtype=torch.float64, device=tensor.device)
    return float(tensor.double().flatten() @ weights)


def changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the first place whose value was changed in place or exchanged; empty if none was."""
    for place in {**before, **after}:
        if not unchanged(before.get(place), after.get(place)):
            return place
    return ""


def unchanged(old: Any, new: Any) -> bool:
    """Whether two values, or an object and its version twice, are the same."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        return old[0] is new[0] and old[1] == new[1]
    return old == new or (old != old and new != new)  # NaN


def largest(value: Any) -> tuple[list[str], Tensor | None]:
    """Return the places of the floating tensors of a value, and the largest number of each (n,)."""
    found = [(place, t) for place, t in tensors(value) if t.is_floating_point() and t.numel()]
    if not found:
        return [], None
    found.sort(key=lambda pair: str(pair[1].dtype))  # one call takes tensors of one type
    types = [[*of] for _, of in groupby(found, key=lambda pair: pair[1].dtype)]
    numbers = [n for of in types for n in torch._foreach_norm([t for _, t in of], torch.inf)]
    places = [place for place, _ in found]
    like = numbers[0].double()
    return places, torch.stack([n.to(like) for n in numbers])


def finite(value: Any) -> bool:
    """Whether all numbers in all tensors of a value are finite."""
    found = largest(value)[1]
    return found is None or bool(found.isfinite().all())


def diverging(arguments: tuple[Any, ...]) -> Tensor:
    """Return (): whether the arguments have a number that is not finite, or a very large one."""
    found = largest(arguments)[1]
    return torch.tensor(False) if found is None else ~(found < LARGE).all()  # also if one is NaN


@torch.no_grad()
def same(one: Any, other: Any, close: float = CLOSE) -> bool:
    """Whether two results have the same form, and the same numbers up to rounding.

    `close` is how far numbers on the CPU may be apart, relative to the largest of their tensor. It
    is 0.0 where both results come from the same operations. On a GPU it is always CLOSE, because
    sums there have no fixed order.

    A tensor of nothing but rounding, such as the gradient of a bias before BatchNorm, is held
    against the largest number of all tensors.
    """
    (ours, form), (theirs, other_form) = tree_flatten(one), tree_flatten(other)
    if form != other_form:
        return False
    floating = [t for t in ours if isinstance(t, Tensor) and t.is_floating_point() and t.numel()]
    top = max((_largest(t) * ROUNDING * torch.finfo(t.dtype).eps for t in floating), default=0.0)
    return all(_same_leaf(*pair, top, close) for pair in zip(ours, theirs, strict=True))


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().nan_to_num(0, 0, 0).max())


def _same_leaf(one: Any, other: Any, top: float, close: float) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one == other or (one != one and other != other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    close = CLOSE if one.is_cuda else close
    near = max(close * _largest(one), top) if one.numel() else 0.0
    return bool(torch.isclose(one, other, close, near, equal_nan=True).all())
