"""What a resolved run is made of. It is JSON: a job gets it as such, and stores it in its summary.

`study/protocol.py` has the fields' defaults, and `schemas/study.schema.yaml` says what they mean.
"""

from typing import Any, Literal, NotRequired, TypedDict

Axis = Literal["protocol", "dataset", "partition", "method", "seed"]
Named = Literal["protocol", "dataset", "partition", "method"]  # the axes whose values are names
Fields = dict[str, Any]  # some fields of a protocol, or hyper-parameters of a method, by name
MethodParts = dict[str, Fields]  # the files of a method, each with all its hyper-parameters


class Names(TypedDict):
    """The names of a run."""

    protocol: str
    dataset: str
    partition: str
    method: str
    seed: int


class Protocol(TypedDict):
    """The fields of a protocol."""

    model: str
    weights: str
    clients: int | str  # "writers": a client for each writer of the dataset
    merge: bool
    participation: float
    sampler: str
    recipe: str
    rounds: int
    local: int
    local_unit: str
    batches: str
    dropout: float
    stragglers: float
    late: str
    attackers: float
    attack: str
    attack_strength: float
    availability: str
    available: float
    available_rounds: float
    least_steps: int
    most_steps: int
    batch: int
    smallest_batch: int
    lr: float
    lr_decay: float
    momentum: float
    weight_decay: float
    clip: float
    optimiser: str
    optimiser_state: str
    beta1: float
    beta2: float
    epsilon: float
    by_method: dict[str, Fields]
    augment: list[str]
    normalization: str
    precision: str
    evaluate_every: int
    evaluate_last: int
    average_last: int
    metrics: list[str]
    client_test: float
    client_test_from: str
    evaluate_clients: str
    clients_every: int
    server_data: float
    validation: float
    validation_from: str
    metric: str
    tail: int
    pretrain_epochs: int
    autoencoder_fit: float


class Run(TypedDict):
    """A run in which every name is replaced by what it stands for.

    The run of a stage has only those fields of the protocol that the stage depends on.
    """

    name: Names
    protocol: Protocol
    cells: NotRequired[dict[str, str]]  # folders of what all methods of the protocol share
    dataset: str
    data: NotRequired[str]  # of data of one's own: a hash of their options and their content
    partition: str
    method: MethodParts
    own: NotRequired[Fields]  # fields of the protocol that the method changes
    seed: int
