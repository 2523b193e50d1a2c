"""The state of a run between two rounds, and small functions on models and weights."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from fedgrid.method import Memory, Model, relative


@dataclass
class RunState:
    """The state of a run between two rounds; a checkpoint holds all of it.

    A round changes `memory` in place, so that its time does not depend on the population.
    """

    server: Model
    shared: Memory
    # of clients that have taken part
    memory: MutableMapping[int, Memory] = field(default_factory=dict)
    logged: dict[str, Tensor] = field(default_factory=dict)  # (n,) by round, since the last log
    round: int = 0
    compiled: bool = False  # whether a local step of the run was compiled
    # (n, ...): the server's models after the last n rounds, of a protocol that averages them
    recent: Model = field(default_factory=dict)


def add_to_recent(recent: Model, server: Model, most: int) -> Model:
    """Return the last models, at most so many of them (n, ...), with one more."""
    new = {name: torch.stack([tensor]) for name, tensor in server.items()} if most else {}
    return {n: torch.cat([recent[n], w])[-most:] if recent else w for n, w in new.items()}


def add_to_log(logged: dict[str, Tensor], values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the log with the values (), by name, of one more round."""
    found = {name: value.double()[None] for name, value in values.items()}
    return {n: torch.cat([logged[n], v]) if n in logged else v for n, v in found.items()}


def reseed(device: torch.device, seed: int) -> None:
    """Seed the device's random numbers, such as those of dropout.

    torch.manual_seed seeds all devices, and formats a stack trace for those that are not in use,
    which took 7 % of a small model's round.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def moved(array: np.ndarray, device: torch.device) -> Tensor:
    """Return an array as a tensor on the device, without waiting for work that is queued there."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def own_model(server: Model, memory: Memory) -> Model:
    """Return the server's model with the private entries that a client keeps in its memory."""
    return server | memory.get("private", {})


def state_of(module: nn.Module) -> Model:
    """Return a copy of a module's parameters and running statistics."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def fill(module: nn.Module, model: Model) -> nn.Module:
    """Give a module the entries of a model, in place; return the module.

    KeyError if the model lacks an entry. The new values take the places in the module's own state,
    because torch expects counters, which no model here has, of BatchNorms in any other dict.
    """
    state = module.state_dict()
    state.update({name: model[name] for name in state})
    module.load_state_dict(state)
    return module


def effective(weights: Tensor) -> Tensor:
    """Return the effective number of clients, 1 / sum_k a_k^2, of weights scaled to sum to 1."""
    return 1 / relative(weights.double()).square().sum()
