"""The fields of a protocol, and those that each stage depends on. No torch.

A run is resolved (`grid.py`) when every name in it is replaced by what it stands for: its protocol
with all fields, and the files of its method with all hyper-parameters. A job gets the resolved run
as JSON, and its results are valid for that run only.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from fedgrid.runtime.places import SCHEMAS
from fedgrid.runtime.plain_yaml import load_yaml
from fedgrid.runtime.resolved import Axis, Fields, Names, Protocol

AXES: tuple[Axis, ...] = ("protocol", "dataset", "partition", "method", "seed")
ANY = "any"  # instead of a name that a stage does not depend on
ANY_METHOD = "fedavg"  # stands for the method where none is named


def runs_of_block(block: dict[str, list[Any]]) -> list[Names]:
    names = product(*(block[axis] for axis in AXES))
    found: list[Any] = [dict(zip(AXES, values, strict=True)) for values in names]
    return found


RULES = load_yaml((SCHEMAS / "protocol.schema.yaml").read_bytes())["properties"]
FIELDS: dict[str, Fields] = {name: rule for name, rule in RULES.items() if "default" in rule}
PROTOCOL: Protocol = {name: rule["default"] for name, rule in FIELDS.items()}  # the defaults
KINDS = PROTOCOL | {"clients": None}  # values of the types of fields; None: a number or a text
# The fields that each stage depends on.
STAGES = {
    stage: tuple(f for f, rule in FIELDS.items() if stage in rule.get("stages", ["train"]))
    for stage in ("partition", "pretrain", "saliency", "latents", "train")
}
STAGES["interpolation"] = STAGES["train"]
OF_METHOD = ("train", "interpolation")  # stages of a run, which no methods share

# Which samples are tests of clients or validation data.
HELD = ("client_test", "client_test_from", "validation", "validation_from")
SHARED = ("recipe", "clients", *HELD)  # what tables have of a partition's protocol


def list_marked(mark: str) -> tuple[str, ...]:
    """Return the fields that have a mark: `by_method` or `later` (protocol.schema.yaml)."""
    return tuple(name for name, rule in FIELDS.items() if rule.get(mark))


LOCAL, LATER = list_marked("by_method"), list_marked("later")


def known_before(fields: Mapping[str, Any]) -> Fields:
    """Return fields of a protocol without those that came later and have their default."""
    return {k: v for k, v in fields.items() if k not in LATER or v != PROTOCOL[k]}


def known_now(fields: Mapping[str, Any]) -> Fields:
    """Return fields of a protocol with those that came later, which have their default."""
    return {field: PROTOCOL[field] for field in LATER} | dict(fields)
