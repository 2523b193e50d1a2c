"""The fields of a protocol, and those that each stage depends on. No torch.

A run is resolved (`grid.py`) when every name in it is replaced by what it stands for: its protocol
with all fields, and the files of its method with all hyper-parameters. A job gets the resolved run
as JSON, and its results are valid for that run only.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from fedgrid.runtime.resolved import Axis, Fields, Names, Protocol

AXES: tuple[Axis, ...] = ("protocol", "dataset", "partition", "method", "seed")
ANY = "any"  # instead of a name that a stage does not depend on
ANY_METHOD = "fedavg"  # stands for the method where none is named


def runs_of_block(block: dict[str, list[Any]]) -> list[Names]:
    """Return every run of a grid's block, by its names: the product of the axes."""
    names = product(*(block[axis] for axis in AXES))
    found: list[Any] = [dict(zip(AXES, values, strict=True)) for values in names]
    return found


# The fields of a protocol and their defaults; `schemas/study.schema.yaml` gives their ranges.
DEFAULTS: Protocol = {
    "model": "cnn",
    "weights": "none",
    "clients": 100,
    "merge": False,
    "participation": 0.1,
    "sampler": "seeded",
    "recipe": "classwise",
    "rounds": 100,
    "local": 10,
    "local_unit": "steps",
    "batches": "fresh",
    "dropout": 0.0,
    "stragglers": 0.0,
    "late": "partial",
    "attackers": 0.0,
    "attack": "labels",
    "attack_strength": 1.0,
    "availability": "always",
    "available": 0.5,
    "available_rounds": 10.0,
    "least_steps": 0,
    "most_steps": 0,
    "batch": 64,
    "smallest_batch": 8,
    "lr": 0.01,
    "lr_decay": 1.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "clip": 0.0,
    "optimiser": "sgd",
    "optimiser_state": "reset",
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "by_method": {},
    "augment": [],
    "normalization": "standard",
    "precision": "fp32",
    "evaluate_every": 10,
    "evaluate_last": 0,
    "average_last": 0,
    "metrics": [],
    "client_test": 0.0,
    "client_test_from": "clients",
    "evaluate_clients": "all",
    "clients_every": 1,
    "server_data": 0.0,
    "validation": 0.0,
    "validation_from": "test",
    "metric": "tail",
    "tail": 100,
    "pretrain_epochs": 1,
    "autoencoder_fit": 0.0,
}
PROTOCOL: Fields = {**DEFAULTS}
KINDS = PROTOCOL | {"clients": None}  # values of the types of fields; None: a number or a text

# Which samples are tests of clients or validation data.
HELD = ("client_test", "client_test_from", "validation", "validation_from")
SHARED = ("recipe", "clients", *HELD)
DRAWN_BY = (*SHARED, "server_data", "merge")  # fields that a partition depends on
# Fields that came later. With their default, nothing is called or made otherwise than before.
ADDED = (
    *("merge", "server_data", "dropout", "stragglers", "attackers", "attack", "attack_strength"),
    *("availability", "available", "available_rounds", "evaluate_last", "average_last"),
    "late",
)
# Fields that do not change a run's training. `by_method` does, through the fields that it changes.
_AFTER = ("metric", "tail", "pretrain_epochs", "autoencoder_fit", "by_method")
_LOCAL = ("batch", "smallest_batch", "lr", "momentum", "normalization", "pretrain_epochs")
OPTIMISER = ("optimiser", "optimiser_state", "beta1", "beta2", "epsilon", "clip")
_MODEL = ("model", "weights", "weight_decay", "augment", "precision", *OPTIMISER)
# The fields that `by_method` may change.
LOCAL = (
    *("local", "local_unit", "least_steps", "most_steps", "batch", "lr", "lr_decay"),
    *("momentum", "weight_decay", *OPTIMISER, "late"),
)
# The fields of a protocol that a stage depends on. Pretrained models are temporary, so the fields
# they depend on are listed for the saliency too. `tail` only summarises runs.
STAGES: dict[str, tuple[str, ...]] = {
    "partition": DRAWN_BY,
    "pretrain": (*DRAWN_BY, *_LOCAL, *_MODEL),
    "saliency": (*DRAWN_BY, *_LOCAL, *_MODEL),
    "latents": (*DRAWN_BY, *_LOCAL, "autoencoder_fit"),
    "train": tuple(field for field in PROTOCOL if field not in _AFTER),
}
STAGES["interpolation"] = STAGES["train"]
OF_METHOD = ("train", "interpolation")  # stages of a run, which no methods share


def known_before(fields: Mapping[str, Any]) -> Fields:
    """Return fields of a protocol without those that came later and have their default."""
    return {k: v for k, v in fields.items() if k not in ADDED or v != PROTOCOL[k]}


def known_now(fields: Mapping[str, Any]) -> Fields:
    """Return fields of a protocol with those that came later, which have their default."""
    return {field: PROTOCOL[field] for field in ADDED} | dict(fields)
