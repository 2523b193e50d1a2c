"""What a federated method changes about FedAvg.

A method is a record of small pure functions. Those that run on a client are written for ONE client:
in the local step a backend runs them one after the other or maps them over the cohort. Those that
run on the server see the whole cohort, and every tensor of it leads with a client axis.

Axes: N population, C cohort, S local steps, B batch, K classes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgrid.names import UsageError

State = dict[str, Tensor]  # a model: its parameters and the running statistics of its BatchNorms
Memory = dict[str, Any]  # nested dicts of tensors
Forward = Callable[[State, Tensor], tuple[Tensor, Tensor]]  # (B, ...) -> features, logits


@dataclass(frozen=True)
class Step:
    """One client, in one local step."""

    params: State  # the parameters in training
    server: State  # the model that the server sent this round
    memory: Memory  # what this client kept from its last round
    shared: Memory  # what the server sent along with the model
    x: Tensor  # (B, channels, height, width)
    y: Tensor  # (B,)
    valid: Tensor  # (B,) 1 for a sample, 0 for padding
    counts: Tensor  # (K,) this client's training samples per class
    features: Tensor  # (B, D) what the classifier sees
    logits: Tensor  # (B, K)
    forward: Forward  # any other model on x: evaluation mode, no gradient

    @property
    def size(self) -> Tensor:
        """The number of samples in the batch."""
        return self.valid.sum()

    def mean(self, values: Tensor) -> Tensor:
        """The mean of (B,) or (B, D) over the samples of the batch."""
        return self.valid @ values / self.size

    def cross_entropy(self) -> Tensor:
        """What FedAvg minimises.

        F.cross_entropy gives the same numbers, but is taken apart in Python where clients are
        mapped: a tenth of a small model's round.
        """
        log_probability = F.log_softmax(self.logits, 1).gather(1, self.y[:, None])
        return -self.mean(log_probability[:, 0])


@dataclass(frozen=True)
class Trained:
    """One client, after its local training."""

    state: State  # the local model
    server: State
    memory: Memory
    shared: Memory
    counts: Tensor  # (K,)
    steps: Tensor  # () how many steps it took
    lr: float
    momentum: float


@dataclass(frozen=True)
class Client(Trained):
    """One trained client with its data at hand."""

    model: nn.Module  # the architecture, in evaluation mode, to call with any state
    total: Callable[[Callable[[Tensor, Tensor], Any]], Any]  # sum f(x, y) over its data, in chunks
    epoch: Callable[[], Iterable[tuple[Tensor, Tensor]]]  # one more of training batches: x, y


@dataclass(frozen=True)
class Cohort:
    """A round, as the server sees it; what comes of training is not known yet to `weigh`."""

    round: int
    population: int
    clients: Tensor  # (C,) ids
    sizes: Tensor  # (C,) training samples
    counts: Tensor  # (C, K)
    steps: Tensor  # (C,)
    lr: float
    momentum: float
    deltas: State  # (C, ...) pseudo-gradients, server - local, of the parameters
    before: list[Memory]  # the clients' memories before and ...
    memory: list[Memory]  # ... after the round
    measured: list[Memory]  # what `measure` returned
    shared: Memory
    artifacts: Memory = field(default_factory=dict)  # what NEEDS asked for, for all N clients


@dataclass(frozen=True)
class Start:
    """What is known before the first round."""

    server: State
    population: int
    random: Callable[[int], State]  # client -> a model with initial weights of its own
    parameters: list[str] = field(default_factory=list)  # those entries of it

    def zeros(self) -> State:
        """A zero for every parameter of the model."""
        return {n: self.server[n].new_zeros(self.server[n].shape) for n in self.parameters}


@dataclass(frozen=True)
class Method:
    """FedAvg, but for what is set. `a | b` does both."""

    model: Callable[[nn.Module], nn.Module] | None = None  # what it adds to the architecture
    # on a client
    loss: Callable[[Step], Tensor] | None = None  # replaces the cross-entropy
    penalty: Callable[[Step], Tensor] | None = None  # added to the loss
    correct: Callable[[Step, State], State] | None = None  # gradient -> descent direction
    remember: Callable[[Client], Memory] | None = None  # what the client keeps
    measure: Callable[[Client], Memory] | None = None  # a statistic of its data, sent along
    frozen: tuple[str, ...] = ()  # parameters (by prefix) that are not trained
    private: tuple[str, ...] = ()  # entries of the model (by prefix) that never leave the client
    # on the server
    send: Callable[[Cohort], list[Memory]] | None = None  # to each client: in its memory this round
    weigh: Callable[[Cohort], Tensor] | None = None  # (C,) factors of the deltas, else by samples
    aggregate: Callable[[Cohort, Tensor], State] | None = None  # else the weighted sum
    server: Callable[[State, Memory], State] | None = None  # update, shared -> step, else as it is
    share: Callable[[Cohort, State], Memory] | None = None  # cohort, update -> `shared` from now on
    # at the start
    memory: Callable[[Start, int], Memory] | None = None  # of a client by its id
    shared: Callable[[Start], Memory] | None = None

    def __or__(self, other: "Method") -> "Method":
        return replace(self, **{f.name: _both(f.name, self, other) for f in fields(Method)})


def relative(values: Tensor) -> Tensor:
    """Weights that sum to 1."""
    return values / values.sum()


def by_samples(cohort: Cohort) -> Tensor:
    """FedAvg's weights: n_k over the sum of the cohort's."""
    return relative(cohort.sizes)


def effective_steps(steps: Any, momentum: float) -> Any:
    """How many plain steps the same gradient would take as far (FedNova's a_k)."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def weighted_sum(cohort: Cohort, weights: Tensor) -> State:
    """sum_k a_k Delta_k for every entry of the model."""
    return {n: torch.tensordot(weights.to(d), d, dims=1) for n, d in cohort.deltas.items()}


def _both(name: str, a: Method, b: Method) -> Any:
    ours, theirs = getattr(a, name), getattr(b, name)
    if isinstance(ours, tuple):
        return ours + theirs
    if ours is None or theirs is None:
        return ours or theirs
    if name not in _JOINED:
        raise UsageError(f"two of the combined methods define `{name}`")
    return lambda *arguments: _JOINED[name](ours(*arguments), theirs(*arguments))


def _union(ours: Memory, theirs: Memory) -> Memory:
    if twice := ours.keys() & theirs.keys():
        raise UsageError(f"two of the combined methods keep `{'`, `'.join(sorted(twice))}`")
    return ours | theirs


def _unions(ours: list[Memory], theirs: list[Memory]) -> list[Memory]:
    return [_union(*of) for of in zip(ours, theirs, strict=True)]


# What two functions of the same field come to; any other field has room for one method only.
_JOINED: dict[str, Callable] = {"penalty": torch.add, "send": _unions} | dict.fromkeys(
    ("remember", "measure", "memory", "share", "shared"), _union
)
