"""Check the values in studies and configurations; an error is one sentence."""

import math
from pathlib import Path
from typing import Any

from fedgrid.federation import cohorts
from fedgrid.partitions import check_writers, parse_name
from fedgrid.runtime import contract, source
from fedgrid.runtime.names import UsageError, known, registered, shown
from fedgrid.study.protocol import LOCAL, PROTOCOL

# Sources of products that no grid makes, by the part of a scale that describes them.
EXPERIMENTS = {"fidelity/scores": "fidelity", "fidelity/examples": "fidelity", "costs": "costs"}


def check_printed(where: str, table: dict, protocols: dict) -> None:
    """Refuse a published table with an unknown column, or with rows of another length."""
    columns = table.get("columns", [])
    for dataset, partition, *protocol in columns if "rows" in table else []:
        known(f"dataset of {where}", dataset, registered("datasets"))
        parse_name(partition)
        for name in protocol:
            known(f"protocol of {where}", name, protocols)
    for key in ("rows", "speedups"):
        for method, values in table.get(key, {}).items():
            known(f"method of {where}: {key}", method, table["rows"])
            if len(values) != len(columns):
                raise UsageError(
                    f"{where}: {key}.{method} has {len(values)} values for {len(columns)} columns"
                )
    images = table.get("test_images", {})
    for dataset in images if isinstance(images, dict) else ():
        known(f"dataset of {where}: test_images", dataset, {column[0] for column in columns})


def check_keywords(where: str, part: str, given: dict) -> None:
    """Refuse unknown hyper-parameters of a method, and values of another type."""
    contract.method(known(f"method of {where}", part, registered("methods")))
    defaults = source.keywords(f"methods.{part}", "method")
    for key, value in given.items():
        known(f"hyper-parameter of {part} in {where}", key, defaults)
        check_type(f"{where}: {part}'s {key}", value, defaults[key])


def check_protocol(name: str, protocol: dict, dataset: str) -> None:
    """Refuse a protocol that cannot be used with this dataset."""
    for key, value in protocol.items():  # JSON's schema takes 3.0 for a whole number
        check_type(f"protocol `{name}`: {key}", value, PROTOCOL[key])
    check_optimiser(f"protocol `{name}`", protocol)
    contract.model(known(f"model of protocol `{name}`", protocol["model"], registered("models")))
    contract.dataset(dataset)
    statistics = source.literal(f"datasets.{dataset}", "STATISTICS")
    known(f"normalization of {dataset}", protocol["normalization"], statistics or ("standard",))
    for key in protocol["augment"]:
        there = source.literal("federation.augment", "DRAWS")
        known(f"augmentation of protocol `{name}`", key, there)
    if {"crop", "crop-reflect"} <= {*protocol["augment"]}:
        raise UsageError(f"protocol `{name}`: crop or crop-reflect augments an image, not both")
    samples = source.literal(f"datasets.{dataset}", "TRAIN")
    if samples and protocol["clients"] > samples:
        raise UsageError(
            f"protocol `{name}`: {protocol['clients']} clients are more than the {samples} "
            f"training samples of {dataset}"
        )
    if cohorts.size(protocol["clients"], protocol["participation"], protocol["sampler"]) < 1:
        raise UsageError(
            f"protocol `{name}`: participation {protocol['participation']} of "
            f"{protocol['clients']} clients samples no client"
        )
    weights = source.literal(f"models.{protocol['model']}", "WEIGHTS", ())
    if protocol["weights"] not in ("none", *weights) and not is_file(protocol["weights"]):
        raise UsageError(
            f"protocol `{name}`: weights `{shown(protocol['weights'])}` are neither none"
            f"{''.join(f', {w}' for w in weights)} nor a file"
        )


def check_optimiser(where: str, protocol: dict) -> None:
    """Refuse momentum without SGD, and fields by method that are none of local training."""
    if protocol["momentum"] and protocol["optimiser"] != "sgd":
        raise UsageError(
            f"{where}: momentum {protocol['momentum']} belongs to SGD, and the optimiser is "
            f"{protocol['optimiser']}: set `momentum: 0`, or `optimiser: sgd`"
        )
    for part, fields in protocol["by_method"].items():
        known(f"method in `by_method` of {where}", part, registered("methods"))
        for field, value in fields.items():
            known(f"field of local training in `by_method` of {where}", field, LOCAL)
            check_type(f"{where}: by_method: {part}: {field}", value, PROTOCOL[field])
        check_optimiser(f"{where}: by_method: {part}", protocol | fields | {"by_method": {}})


def check_cohort(name: str, method: dict, protocol: dict) -> None:
    """Refuse a method in cohorts of fewer clients than one of its files can use."""
    needed = (source.literal(f"methods.{part}", "LEAST_COHORT", 1) for part in method)
    least = max(needed, default=1)
    size = cohorts.size(protocol["clients"], protocol["participation"], protocol["sampler"])
    if size < least:
        raise UsageError(
            f"method `{name}` compares the clients of a round with one another, and participation "
            f"{protocol['participation']} of {protocol['clients']} clients samples {size}: sample "
            f"at least {least}"
        )


def check_partition(partition: str, dataset: str) -> None:
    """Refuse a partition whose name is unknown, or that needs more than the dataset has."""
    check_writers(partition, dataset, source.literal(f"datasets.{dataset}", "WRITERS", False))


def needs_client_test(method: str) -> str:
    """Return the error for a method whose clients are evaluated, without test data for them."""
    return (
        f"method `{method}` is evaluated on every client's own test data, and the protocol gives "
        "clients none: set its `client_test`, for example to 0.2"
    )


def check_evaluation(name: str, method: dict, protocol: dict) -> None:
    """Refuse a method with private parameters where its clients cannot be evaluated."""
    if not any(source.literal(f"methods.{part}", "PRIVATE", ()) for part in method):
        return
    if not protocol["client_test"]:
        raise UsageError(needs_client_test(name))
    if protocol["validation"] and protocol["validation_from"] == "test":
        raise UsageError(
            f"method `{name}` has no complete model at the server to validate on a part of the "
            "test set: set `validation_from: clients`"
        )


def check_model(name: str, method: dict, model: str) -> None:
    """Refuse a method that encodes single images together with a model that mixes images."""
    alone = any(source.literal(f"methods.{part}", "INDEPENDENT", False) for part in method)
    if alone and not source.literal(f"models.{model}", "INDEPENDENT", True):
        raise UsageError(
            f"method `{name}` encodes every image by itself, but the BatchNorm of the model "
            f"{model} mixes the images of a batch: choose a model with running statistics, such "
            "as resnet18"
        )


def is_file(text: str) -> bool:
    """Whether there is such a file; False for a text that cannot be a path."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def check_type(what: str, value: Any, default: Any) -> None:
    """Refuse a value whose type is not the default's; an int may stand for a float."""
    kinds, word = _KINDS[type(default)]
    if type(value) not in kinds:
        raise UsageError(f"{what} is {shown(repr(value))}, not {word} such as {default!r}")
    if isinstance(default, float) and not is_finite(value):
        raise UsageError(f"{what} is {shown(repr(value))}, which is not finite")


def is_finite(value: float) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(float(value))
    except OverflowError:  # a whole number that is too large
        return False


# The types allowed for each type of default, and their name. A default None allows most types.
_KINDS = {
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    list: ((list,), "a list"),
    dict: ((dict,), "`key: value` pairs"),
    type(None): ((type(None), bool, int, float, str, list), "a number, text or list"),
}
