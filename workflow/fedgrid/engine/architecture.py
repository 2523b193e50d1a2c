"""The architecture of a run: its model with the method's additions, on the device.

Convolutions are built without the taps that no image reaches (`dead_taps.py`), except with weight
decay, which changes them. A model is a dict of tensors; a module is only called with it.
"""

import copy
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedgrid.engine import dead_taps
from fedgrid.engine.hooks.calling import file_and_line
from fedgrid.engine.state import state_of
from fedgrid.method import Entries, Method, Model
from fedgrid.runtime.names import UsageError, shown, shown_error
from fedgrid.runtime.resolved import Protocol


class Architecture:
    """Makes models and calls them; `make(seed)` returns a module with initial weights."""

    def __init__(
        self,
        make: Callable[[int], nn.Module],
        method: Method,
        protocol: Protocol,
        shape: tuple[int, ...],
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.make, self.method, self.protocol = make, method, protocol
        self.shape, self.device, self.dtype = shape, device, dtype
        self.kept: dead_taps.Kept = {}
        self.live = self.build(0).train()  # the loop backend trains this module in place
        self.empty = emptied(self.live)  # called with any model's weights
        self.parameters = [name for name, _ in self.live.named_parameters()]
        self.statistics = sorted(self.live.state_dict().keys() - set(self.parameters))
        self.entries = [*self.parameters, *self.statistics]
        frozen = self.choose("frozen", method.frozen, self.parameters)
        self.private = {*self.choose("private", method.private, self.entries)}
        self.trainable = [name for name in self.parameters if name not in frozen]
        if not self.trainable:
            raise UsageError("the method freezes all parameters: `frozen` must leave some of them")
        serve = method.served or (lambda module: module)
        self.live_served, self.empty_served = serve(self.live), serve(self.empty)
        entries = self.live_served.state_dict()
        self.served = [name for name in self.entries if name in entries]
        # Positions among `trainable` of the parameters that a second step on each batch trains.
        self.trained_twice = [
            i for i, name in enumerate(self.trainable) if method.train_served and name in entries
        ]
        # Without private entries, or with a part that works without them, the server has a model.
        self.complete_server = bool(method.served or not method.private)

    def choose(self, field: str, chosen: Entries, names: list[str]) -> list[str]:
        """Return those of the names that a field of the method means; refuse a part without any."""
        for part in chosen:
            if not isinstance(part, str):
                check_names(field, part, self.live)
            if not choose_names((part,), self.live, names):
                said = f'"{part}"' if isinstance(part, str) else getattr(part, "__name__", part)
                raise UsageError(
                    f"the method's {field}=({said},) fits no entry of the model "
                    f"{self.protocol['model']}, whose names begin with {list_beginnings(names)}"
                )
            if isinstance(part, str) and (cut := find_cut(part, names)):
                raise UsageError(
                    f'the method\'s {field}=("{part}",) ends within the name {cut}: write whole '
                    'parts of names, as in "head." or "head.weight"'
                )
        return choose_names(chosen, self.live, names)

    def build(self, seed: int) -> nn.Module:
        """Return a module on the device, with initial weights drawn from `seed`."""
        module = self.build_whole(seed)
        if not self.protocol["weight_decay"]:
            self.kept = dead_taps.trim(module, self.shape)
        self.layout = getattr(module, "layout", torch.contiguous_format)
        where: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        return module.to(**where, memory_format=self.layout)

    def build_whole(self, seed: int) -> nn.Module:
        """Return a module as `build` does, but with all taps and on the CPU."""
        module = self.make(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.method.architecture(module) if self.method.architecture else module

    def draw(self, seed: int) -> Model:
        """Return a model with initial weights drawn from `seed`."""
        return state_of(self.build(seed))

    def complete(self, model: Model, seed: int) -> Model:
        """Return the model with all taps; dead taps have their initial values for `seed`."""
        if not self.kept:
            return model
        initial = self.build_whole(seed).to(self.device, self.dtype).state_dict()
        return dead_taps.whole(model, initial, self.kept)

    def precision(self) -> Any:
        """Return the autocast context of the protocol's precision."""
        if self.protocol["precision"] == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def forward(self, model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of a model in evaluation mode, without gradient."""
        return self.call(self.empty, model, x)

    def forward_server(self, model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same of the server's model, which works without private entries."""
        return self.call(self.empty_served, self.of_server(model), x)

    def of_server(self, model: Model) -> Model:
        """Return the entries of the model that the server's model works with."""
        return {name: model[name] for name in self.served}

    @torch.no_grad()
    def call(self, module: nn.Module, model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of a module with these entries, without gradient."""
        with self.precision():
            features, logits = functional_call(module, model, (x,))
        return features.to(self.dtype), logits.to(self.dtype)


def find_cut(beginning: str, names: Iterable[str]) -> str | None:
    """Return a name that goes on after a beginning, and not with a dot."""
    whole = beginning.removesuffix(".") + "."
    begun = (name for name in names if name.startswith(beginning))
    return next((name for name in begun if not f"{name}.".startswith(whole)), None)


def emptied(network: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode, without the values of entries of a model.

    It has the network's own buffers that are no entries, because no model brings them.
    """
    made = copy.deepcopy(network).to("meta").eval()
    for module, own in zip(made.modules(), network.modules(), strict=True):
        module._buffers |= {name: own._buffers[name] for name in own._non_persistent_buffers_set}
    return made


def choose_names(chosen: Entries, network: nn.Module, names: Iterable[str]) -> list[str]:
    """Return those of the names that begin with a text in `chosen`, or that a function gives."""
    texts = tuple(part for part in chosen if isinstance(part, str))
    given = {name for part in chosen if not isinstance(part, str) for name in part(network)}
    return [name for name in names if name.startswith(texts) or name in given]


def check_names(
    field: str, function: Callable[[nn.Module], Iterable[str]], network: nn.Module
) -> None:
    """Refuse a function in `private` or `frozen` that fails, or gives what no entry is called."""
    where = f"the function in `{field}` ({file_and_line(function)})"
    try:
        given = function(network)
    except Exception as problem:
        where = f"the function in `{field}` ({file_and_line(function, problem)})"
        raise UsageError(f"{where} fails with {shown_error(problem)}") from problem
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{where} gives {shown(repr(given))}, not names of entries of the network")
    there = network.state_dict()
    if strange := next((name for name in given if name not in there), None):
        names = list_beginnings(there)
        raise UsageError(
            f"{where} gives `{shown(str(strange))}`, and no entry of the network has this name; "
            f"names begin with {names}"
        )


def list_beginnings(names: Iterable[str]) -> str:
    """Return how the names of a model's entries begin, in words: `body.0., head.`."""
    groups = (name.rpartition(".")[0] + "." * ("." in name) or name for name in names)
    return ", ".join(dict.fromkeys(groups))
