"""The record of a federated method: what it changes about FedAvg.

A method is a record of small pure functions. Client functions are written for ONE client; in the
local step, a backend calls them client by client or maps them over the cohort. Server functions
receive the whole cohort, and every tensor of it has a leading client axis.

Axes: N population, C cohort, S local steps, B batch, K classes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgrid.runtime.code.contract import FIELD, OPTIMISERS
from fedgrid.runtime.names import UsageError, shown

Model = dict[str, Tensor]  # parameters and BatchNorm's running statistics, by name
Memory = dict[str, Any]  # nested dicts of tensors
Forward = Callable[[Model, Tensor], tuple[Tensor, Tensor]]  # (B, ...) -> features, logits
Total = Callable[[Callable[[Tensor, Tensor], Any]], Any]  # f -> sum of f(x, y) over data
# Prefixes of names of a network's entries, and functions from the network to such names.
Entries = tuple[str | Callable[[nn.Module], Iterable[str]], ...]
Batches = Iterable[tuple[Tensor, Tensor]]  # x (B, ...), y (B,)


@dataclass(frozen=True)
class Step:
    """One client in one local step."""

    params: Model  # the parameters in training
    server: Model  # the model that the server sent this round
    memory: Memory  # what this client kept from its last round
    shared: Memory  # what the server sent with the model
    x: Tensor  # (B, channels, height, width), or tokens (B, length)
    y: Tensor  # (B,)
    valid: Tensor  # (B,) 1 for a sample, 0 for padding
    counts: Tensor  # (K,) this client's training samples per class
    features: Tensor  # (B, D) input of the classifier
    logits: Tensor  # (B, K), or of an architecture with several outputs (B, outputs, K)
    round: Tensor  # () whole number: 0 in the first round
    step: Tensor  # () whole number: 0 in a client's first step of the round
    steps: Tensor  # () whole number of this client's steps in the round
    lr: Tensor  # () the learning rate of this round
    forward: Forward  # calls any other model on x: evaluation mode, no gradient
    differentiate: "Callable[[Step, Model, Tensor], Model]"  # what `gradient` calls

    @property
    def size(self) -> Tensor:
        """Return the number of samples in the batch."""
        return self.valid.sum()

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of (B,) or (B, D) over the samples of the batch."""
        return self.valid @ values / self.size

    def cross_entropy(self) -> Tensor:
        """Return FedAvg's loss."""
        return -self.mean(log_likelihood(self.logits, self.y))

    def gradient(self, params: Model, valid: Tensor | None = None) -> Model:
        """Return the gradient of the client's loss at other parameters, by trained parameter.

        The loss is the method's, with its penalty, on this batch, or on the samples of it that
        `valid` (B,) marks. The network is in training mode; no running statistic changes.
        """
        return self.differentiate(self, params, self.valid if valid is None else valid)


@dataclass(frozen=True)
class Trained:
    """One client after its local training."""

    model: Model  # the local model
    server: Model
    memory: Memory
    shared: Memory
    counts: Tensor  # (K,)
    steps: int  # number of its local steps
    round: int  # 0 in the first round
    lr: float
    momentum: float


@dataclass(frozen=True)
class Client(Trained):
    """One trained client with access to its data."""

    architecture: nn.Module  # in evaluation mode, to call with any model
    total: Total  # over its training data, in chunks
    epoch: Callable[[], Batches]  # one more epoch of training batches
    test: Total  # over its own test data, in chunks; gives None if it has none
    # model, x, y -> the gradient of the mean cross-entropy, by parameter, in training mode
    gradient: Callable[[Model, Tensor, Tensor], Model]


@dataclass(frozen=True)
class ServerData:
    """Samples of the server, without labels: the protocol's `server_data`."""

    size: int
    inputs: Callable[[Tensor], Tensor]  # positions (B,) from 0 to size - 1 -> x (B, ...)


@dataclass(frozen=True)
class Server:
    """The server between two rounds, with access to the test set."""

    model: Model
    shared: Memory
    round: int
    architecture: nn.Module  # in evaluation mode, to call with `model`
    entries: Model  # `model`, and the entries that only clients' models need
    test: Total  # over the test set, in chunks
    clients: Callable[[], Iterator[Client]]  # all clients, each with the model that it would use
    data: ServerData | None = None
    noise: int = 0  # seed of the method's own random numbers after this round


@dataclass(frozen=True)
class Candidates:
    """A round before it is known which clients take part."""

    round: int
    server: Model
    shared: Memory
    drawn: Tensor  # (C,) ids of the clients that the protocol's sampler draws
    sizes: Tensor  # (N,) training samples
    counts: Tensor  # (N, K)
    trains: Tensor  # (N,) whether a client is there and has enough samples for a batch
    client: Callable[[int], Client]  # with the model that it would begin with
    noise: int  # seed of the method's own random numbers for this choice


@dataclass(frozen=True)
class Cohort:
    """A round as the server sees it; results of local training are `Later` before it."""

    round: int
    server: Model  # the model that the server sent
    population: int
    clients: Tensor  # (C,) ids
    sizes: Tensor  # (C,) training samples
    counts: Tensor  # (C, K)
    steps: Tensor  # (C,)
    lr: float
    momentum: float
    deltas: "Model | Later"  # (C, ...) pseudo-gradients, server - local, of the parameters
    before: list[Memory]  # the clients' memories before the round
    memory: "list[Memory] | Later"  # the clients' memories after the round
    measured: "list[Memory] | Later"  # what `measure` returned
    shared: Memory
    artifacts: Memory = field(default_factory=dict)  # results of the stages in NEEDS, for N clients
    noise: int = 0  # seed of the method's own random numbers in this round


AFTER_TRAINING = "is there after local training only: if `weigh`, `reweigh` or `scale` reads it, "
AFTER_TRAINING += "set weigh_after_training=True"


class Later:
    """Stands for a result of local training where it is not there; reading it is an error."""

    def __init__(self, name: str, why: str = ""):
        self._name, self._why = name, why or AFTER_TRAINING

    def __getattr__(self, attribute: str) -> Any:
        raise AttributeError(f"`cohort.{self._name}` {self._why}")

    def _read(self, *arguments: Any) -> Any:
        return self.anything

    __getitem__ = __iter__ = __len__ = __bool__ = __contains__ = _read


@dataclass(frozen=True)
class Aggregated:
    """A round after its aggregation."""

    cohort: Cohort
    given: Tensor  # (C,) what `weigh` gave
    weights: Tensor  # (C,) after `reweigh`
    server: Model  # the model that the server sent
    model: Model  # the server's new model
    architecture: nn.Module  # in evaluation mode, to call with any model
    # position in the cohort -> that client's local model; needs uses_deltas
    local: Callable[[int], Model]
    data: ServerData | None = None


@dataclass(frozen=True)
class Start:
    """The state before the first round."""

    server: Model
    population: int
    sizes: Tensor  # (N,) training samples
    counts: Tensor  # (N, K)
    rounds: int  # of the run; a method that reads it has `ROUNDS = True` in its file
    cohort: int  # clients of a round, as the protocol draws them
    random: Callable[[int], Model]  # client -> a model with initial weights drawn for it
    parameters: list[str] = field(default_factory=list)  # names of those that are not private

    def zeros(self) -> Model:
        """Return a zero tensor for every parameter of the model that clients send."""
        return {n: self.server[n].new_zeros(self.server[n].shape) for n in self.parameters}


@dataclass(frozen=True)
class Method:
    """A method's changes to FedAvg; unset fields are FedAvg's. `a | b` combines two methods."""

    architecture: Callable[[nn.Module], nn.Module] | None = None  # adds the method's modules
    # which clients take part in a round, (C,) ids; default: those that the protocol draws
    choose: Callable[[Candidates], Tensor] | None = None
    # on a client
    # entries of the model with which local steps begin, in place of those that the server sent
    begin: Callable[[Client], Model] | None = None
    loss: Callable[[Step], Tensor] | None = None  # replaces the cross-entropy
    penalty: Callable[[Step], Tensor] | None = None  # added to the loss
    # gradient -> descent direction; frozen private parameters that it gives, too, have this value
    # after the step: they hold what a client knows from one step to the next
    correct: Callable[[Step, Model], Model] | None = None
    # factors () of the learning rate, by parameter, default 1: with 0 neither the parameter nor its
    # optimiser's state moves
    rate: Callable[[Step], dict[str, Tensor]] | None = None
    # whether these four leave out samples whose `valid` is 0; if not, no batch is padded
    padded: bool = False
    remember: Callable[[Client], Memory] | None = None  # what the client keeps for later rounds
    measure: Callable[[Client], Memory] | None = None  # a statistic of its data, sent to the server
    # entries of the model by which a client is evaluated, in place of those that it would begin
    # with; they are not kept
    personal: Callable[[Client], Model] | None = None
    optimisers: tuple[str, ...] = OPTIMISERS  # of local training, for which its equations hold
    frozen: Entries = ()  # parameters that are not trained
    private: Entries = ()  # entries of the model that never leave the client
    # placebos: with which private entries a client begins a round, instead of those that it kept
    forgets: bool = False  # drawn anew for it
    resets: bool = False  # those with which all clients began the run; `forgets` comes first
    # architecture -> the module of the server's model if it is complete without private entries; it
    # has the same parameters, under the same names
    served: Callable[[nn.Module], nn.Module] | None = None
    train_served: bool = False  # one more step on each batch: the cross-entropy of that module
    # on the server
    send: Callable[[Cohort], list[Memory]] | None = None  # per client, joins its memory this round
    weigh: Callable[[Cohort], Tensor] | None = None  # (C,) weights of clients; default: by samples
    reweigh: Callable[[Cohort, Tensor], Tensor] | None = None  # weights -> new weights, (C,)
    any_sum: bool = False  # whether weights may have another sum than 1
    scale: Callable[[Cohort, Tensor], Tensor] | None = None  # weights -> factors of deltas, (C,)
    weigh_after_training: bool = False  # whether these read deltas, memory or measured
    average_optimiser: bool = False  # whether optimisers' states are averaged as models are
    # whether a guarantee of the method needs that nothing is learnt of clients, who are drawn by
    # lot, but by `aggregate`
    discreet: bool = False
    aggregate: Callable[[Cohort, Tensor], Model] | None = None  # default: the weighted sum
    uses_weights: bool = False  # whether `aggregate` uses the weights that it is given
    server: Callable[[Model, Memory], Model] | None = None  # update, shared -> step, or else update
    share: Callable[[Cohort, Model], Memory] | None = None  # cohort, update -> new in `shared`
    # entries of the server's new model after a round, in place of those that were aggregated
    refine: Callable[[Aggregated], Model] | None = None
    # entries of the model by which the server is evaluated, in place of its own; they are not kept
    deploy: Callable[[Server], Model] | None = None
    # whether `share`, `observe` or `refine` reads local models; if not, no round holds all of them
    uses_deltas: bool = True
    # after a round: values () that become columns of metrics.csv, as means over rounds
    observe: Callable[[Aggregated], dict[str, Tensor]] | None = None
    # in evaluations: values that become columns of clients.csv and metrics.csv, by name
    evaluate: Callable[[Client], dict[str, Any]] | None = None  # of a client, with its own model
    evaluate_server: Callable[[Server], dict[str, Any]] | None = None
    # at the start
    memory: Callable[[Start, int], Memory] | None = None  # initial memory of a client, by its id
    shared: Callable[[Start], Memory] | None = None

    def __post_init__(self) -> None:
        for given in fields(Method):
            _check_type(given.name, getattr(self, given.name), given.default)
        if not (self.loss or self.penalty or self.correct or self.rate):
            object.__setattr__(self, "padded", True)  # FedAvg's loss does
        if not (self.share or self.observe or self.refine):
            object.__setattr__(self, "uses_deltas", False)

    @property
    def follows_weights(self) -> bool:
        """Whether the clients' weights change the server's new model."""
        return self.aggregate is None or self.uses_weights

    def __or__(self, other: "Method") -> "Method":
        return replace(self, **{f.name: _both(f.name, self, other) for f in fields(Method)})


@dataclass(frozen=True)
class Joined:
    """Functions of two methods for the same field: what they return is joined."""

    join: Callable[[Any, Any], Any]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return what both give, joined."""
        return self.join(self.ours(*arguments), self.theirs(*arguments))


def log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
    """Return the logarithm of each label's probability, (B,), of logits (B, K) and labels (B,).

    F.cross_entropy gives the same numbers, but vmap decomposes it in Python, which took a tenth of
    a small model's round.
    """
    return F.log_softmax(logits, 1).gather(1, y[:, None])[:, 0]


def batch_norms(network: nn.Module) -> list[str]:
    """Return the names of all entries of the network's BatchNorms, for `private` or `frozen`."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    norms = [(name, part) for name, part in network.named_modules() if isinstance(part, kinds)]
    return [f"{name}.{entry}" for name, part in norms for entry in part.state_dict()]


def relative(values: Tensor) -> Tensor:
    """Return the values divided by their sum."""
    return values / values.sum()


def by_samples(cohort: Cohort) -> Tensor:
    """Return FedAvg's weights: n_k divided by the sum over the cohort."""
    return relative(cohort.sizes)


def effective_steps(steps: Any, momentum: float) -> Any:
    """Return the number of steps without momentum that move as far (FedNova's a_k)."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def weighted_sum(cohort: Cohort, weights: Tensor) -> Model:
    """Return sum_k a_k Delta_k for every entry of the model."""
    return {n: torch.tensordot(weights.to(d), d, dims=1) for n, d in cohort.deltas.items()}


def _check_type(name: str, value: Any, default: Any) -> None:
    """Refuse a value that a field of a method cannot have."""
    said = ""
    if isinstance(default, tuple):
        if not isinstance(value, tuple):
            said = f'not a tuple of texts: write it with a comma, as in {name}=("head.",)'
        elif not all(map(_names_entries, value)):
            said = 'and each part of it must be a text such as "head.", or a function'
    elif isinstance(default, bool):
        said = "not True or False" * (not isinstance(value, bool))
    elif not (value is None or callable(value)):
        said = "not a function"
    if said:
        raise UsageError(f"`{name}` is {shown(repr(value))}, {said}", key=FIELD)


def _names_entries(value: Any) -> bool:
    return callable(value) or (isinstance(value, str) and bool(value.strip()))


def _both(name: str, a: Method, b: Method) -> Any:
    ours, theirs = getattr(a, name), getattr(b, name)
    if name == "optimisers":
        return tuple(one for one in ours if one in theirs)
    if isinstance(ours, tuple):
        return ours + theirs
    if name == "padded":
        return ours and theirs
    if isinstance(ours, bool):
        return ours or theirs
    if ours is None or theirs is None:
        return ours or theirs
    if name not in _JOINED:
        raise UsageError(
            f"two of the combined methods define `{name}`, which only one of them can do: leave "
            "one of the two out"
        )
    return Joined(_JOINED[name], ours, theirs)


def _union(ours: Memory, theirs: Memory) -> Memory:
    if twice := ours.keys() & theirs.keys():
        raise UsageError(
            f"two of the combined methods keep `{'`, `'.join(sorted(twice))}`: give it another "
            "name in one of them"
        )
    return ours | theirs


def _unions(ours: list[Memory], theirs: list[Memory]) -> list[Memory]:
    return [_union(*of) for of in zip(ours, theirs, strict=True)]


_UNITED = (
    *("remember", "measure", "memory", "share", "shared"),
    *("observe", "evaluate", "evaluate_server"),
)
# How to combine two functions of the same field; for other fields, only one method may set it.
_JOINED: dict[str, Callable[..., Any]] = {
    "penalty": torch.add,
    "send": _unions,
    **dict.fromkeys(_UNITED, _union),
}
