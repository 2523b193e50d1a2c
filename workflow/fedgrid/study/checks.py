"""Check the values in studies and configurations; each error is one sentence.

To refuse something is to raise a UsageError.
"""

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgrid.federation import cohorts
from fedgrid.federation.protocols import changed_protocol, has_client_test
from fedgrid.partitions import (
    EACH_WRITER,
    check_merged,
    check_writers,
    count_clients,
    takes_writers,
)
from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import UsageError, known, registered, shown
from fedgrid.runtime.resolved import MethodParts, Protocol
from fedgrid.study.protocol import LOCAL

# Bytes of a name of which a file system makes a folder, and where more is put before and after it.
LONGEST_NAME, LONGEST_PART = 255, 220
IMAGES, VECTORS, TOKENS = "images", "vectors", "sequences of tokens"  # inputs of datasets
# Sources of products that no grid makes, by the part of a scale that describes them.
EXPERIMENTS = {"fidelity/scores": "fidelity", "fidelity/examples": "fidelity", "costs": "costs"}


def check_keywords(where: str, part: str, given: dict) -> None:
    contract.method(known(f"method of {where}", part, registered("methods")))
    defaults = source.keywords(f"methods.{part}", "method")
    for key, value in given.items():
        known(f"hyper-parameter of {part} in {where}", key, defaults)
        check_type(f"{where}: {part}'s {key}", value, defaults[key])
    contract.check_ranges(where, part, given)


def check_protocol(name: str, protocol: Protocol, dataset: str) -> None:
    where, asked = f"protocol `{name}`", protocol["normalization"]
    check_local(where, protocol)
    check_conditions(where, protocol)
    contract.model(known(f"model of {where}", protocol["model"], registered("models")))
    contract.dataset(dataset)
    offered = [*(source.literal(f"datasets.{dataset}", "STATISTICS") or ("standard",))]
    has_pixels = not source.literal(f"datasets.{dataset}", "FLOATS", False)
    offered += [contract.SCALED] if has_pixels and name_inputs(dataset) == IMAGES else []
    if asked not in offered:
        raise UsageError(
            f"{where}: the dataset {dataset} has no normalization `{asked}`, "
            f"only {' and '.join(offered)}: for it take the protocol "
            f"{name}-normalization{offered[0]}"
        )
    check_tokens(where, protocol, dataset)
    check_client_test(where, protocol, dataset)
    if {"crop", "crop-reflect"} <= {*protocol["augment"]}:
        raise UsageError(f"{where}: crop or crop-reflect augments an image, not both")
    if clients := count_clients(protocol["clients"], dataset):
        check_population(where, protocol, clients, dataset)
    weights = source.literal(f"models.{protocol['model']}", "WEIGHTS", ())
    if protocol["weights"] not in ("none", *weights) and not os.path.isfile(protocol["weights"]):
        raise UsageError(
            f"{where}: weights `{shown(protocol['weights'])}` are neither none"
            f"{''.join(f', {w}' for w in weights)} nor a file: set `weights` to one of these, or "
            "to the path of a .safetensors or .pth file that is there"
        )


def check_population(where: str, protocol: Protocol, clients: int, dataset: str) -> None:
    samples = source.literal(f"datasets.{dataset}", "TRAIN")
    if samples and clients > samples:
        raise UsageError(
            f"{where}: {clients} clients are more than the {samples} training samples of {dataset}:"
            " lower `clients`"
        )
    if cohorts.size(clients, protocol["participation"], protocol["sampler"]) < 1:
        raise UsageError(
            f"{where}: participation {protocol['participation']} of {clients} clients samples no "
            "client: raise one of the two"
        )
    share = protocol["attackers"]
    if share and not 0 < round(share * clients) < clients:
        raise UsageError(
            f"{where}: attackers {share:g} of {clients} clients are {round(share * clients)}: "
            "choose a share with which some clients attack, and some do not"
        )


def check_tokens(where: str, protocol: Protocol, dataset: str) -> None:
    inputs, model = name_inputs(dataset), protocol["model"]
    reads_tokens = source.literal(f"models.{model}", "TOKENS", False)
    if inputs == TOKENS and not reads_tokens:
        raise UsageError(
            f"{where}: the model {model} reads images, and the inputs of the dataset {dataset} are "
            "sequences of tokens: choose a model with `TOKENS = True` in its file"
        )
    if reads_tokens and inputs != TOKENS:
        raise UsageError(
            f"{where}: the model {model} reads sequences of tokens, and the inputs of the dataset "
            f"{dataset} are images: choose a model of images, or a dataset with `TOKENS` in its "
            "file"
        )
    if inputs == VECTORS and source.literal(f"models.{model}", "CONVOLUTIONS", True):
        raise UsageError(
            f"{where}: the model {model} reads images, and the inputs of the dataset {dataset} are "
            "vectors: choose the model mlp, or one with `CONVOLUTIONS = False` in its file"
        )
    if protocol["augment"] and inputs != IMAGES:
        raise UsageError(
            f"{where}: `augment` changes images, and the inputs of the dataset {dataset} are "
            f"{inputs}: set `augment: []`"
        )


def check_client_test(where: str, protocol: Protocol, dataset: str) -> None:
    if protocol["client_test_from"] != "writers":
        return
    if protocol["client_test"]:
        raise UsageError(
            f"{where}: with `client_test_from: writers` the test samples of clients come from the "
            f"test set, and client_test {protocol['client_test']} takes training samples: set "
            "`client_test: 0`"
        )
    if protocol["validation"] and protocol["validation_from"] == "test":
        raise UsageError(
            f"{where}: `client_test_from: writers` gives every sample of the test set to a client, "
            "so that none is left for `validation_from: test`: set `validation_from: clients`"
        )
    if not source.literal(f"datasets.{dataset}", "TEST_WRITERS", False):
        raise UsageError(
            f"{where}: `client_test_from: writers` needs the writer of each test sample, and the "
            f"dataset {dataset} has none: add `clients_test` to the .npz of your own data, or "
            "choose a dataset with `TEST_WRITERS = True` in its file"
        )


def check_local(where: str, protocol: Protocol) -> None:
    """Refuse fields of local training that contradict each other, also in `by_method`."""
    if protocol["momentum"] and protocol["optimiser"] != "sgd":
        raise UsageError(
            f"{where}: momentum {protocol['momentum']} belongs to SGD, and the optimiser is "
            f"{protocol['optimiser']}: set `momentum: 0`, or `optimiser: sgd`"
        )
    least, most = protocol["least_steps"], protocol["most_steps"]
    if (least or most) and protocol["local_unit"] == "steps":
        raise UsageError(
            f"{where}: least_steps and most_steps limit local epochs, and local work is counted in "
            "steps: set both to 0, or `local_unit: epochs`"
        )
    if most and least > most:
        raise UsageError(
            f"{where}: least_steps {least} is more than most_steps {most}: lower it, or set "
            "`most_steps: 0` for no limit"
        )
    for part, fields in protocol["by_method"].items():
        known(f"method in `by_method` of {where}", part, registered("methods"))
        for field in fields:
            known(f"field of local training in `by_method` of {where}", field, LOCAL)
        check_local(
            f"{where}: by_method: {part}", changed_protocol(protocol, {**fields, "by_method": {}})
        )


def check_conditions(where: str, protocol: Protocol) -> None:
    """Refuse conditions of a federation that contradict each other, or that change nothing."""
    is_continued, availability = protocol["batches"] == "continued", protocol["availability"]
    for field in ("dropout", "stragglers"):
        if protocol[field] and is_continued:
            raise UsageError(
                f"{where}: `batches: continued` counts the steps of a client beforehand, and with "
                f"{field} some are lost: set `{field}: 0`, or `batches: fresh`"
            )
    late = {protocol["late"], *(fields.get("late") for fields in protocol["by_method"].values())}
    if protocol["stragglers"] and protocol["local"] == 1 and "dropped" not in late:
        raise UsageError(
            f"{where}: `stragglers` changes nothing with `local: 1`, because a client does at "
            f"least one of its {protocol['local_unit']}: raise `local`, or set `late: dropped`"
        )
    if availability != "always" and is_continued:
        raise UsageError(
            f"{where}: `batches: continued` counts a client's rounds as if it were always there: "
            "set `availability: always`, or `batches: fresh`"
        )
    share, rounds = protocol["available"], protocol["available_rounds"]
    if availability == "sticky" and share > rounds * (1 - share):
        raise UsageError(
            f"{where}: with available {share:g} and available_rounds {rounds:g} clients would have "
            "to come back faster than at once: raise `available_rounds` to "
            f"{share / (1 - share):g} or more, or lower `available`"
        )


def check_method(name: str, method: MethodParts, protocol: Protocol, dataset: str) -> None:
    """Refuse a method that cannot be trained by a protocol, which has the method's own fields."""
    check_needs(name, method, dataset)
    check_model(name, method, protocol["model"])
    check_evaluation(name, method, protocol)
    check_cohort(name, method, protocol, dataset)
    check_server_data(name, method, protocol)
    check_blocks(name, method, protocol["model"])
    check_local(f"method `{name}`", changed_protocol(protocol, {"by_method": {}}))
    for allowed in list_stated(method, "OPTIMISERS", contract.OPTIMISERS):
        check_allowed(name, allowed, protocol)


def check_cohort(name: str, method: MethodParts, protocol: Protocol, dataset: str) -> None:
    least = max(list_stated(method, "LEAST_COHORT", 1), default=1)
    if least > 1 and protocol["dropout"]:
        raise UsageError(
            f"method `{name}` compares the clients of a round with one another, and with dropout "
            f"{protocol['dropout']:g} a round may have one client: set `dropout: 0`"
        )
    if least > 1 and protocol["availability"] != "always":
        raise UsageError(
            f"method `{name}` compares the clients of a round with one another, and with "
            f"availability {protocol['availability']} a round may have one client: set "
            "`availability: always`"
        )
    share, sampler = protocol["participation"], protocol["sampler"]
    clients = count_clients(protocol["clients"], dataset)
    if clients and (size := cohorts.size(clients, share, sampler)) < least:
        raise UsageError(
            f"method `{name}` compares the clients of a round with one another, and participation "
            f"{share} of {clients} clients samples {size}: sample at least {least}"
        )


def check_server_data(name: str, method: MethodParts, protocol: Protocol) -> None:
    if any(list_stated(method, "SERVER_DATA", False)) and not protocol["server_data"]:
        raise UsageError(
            f"method `{name}` trains on samples of the server, and the protocol gives it none: set "
            "`server_data`, the share of the training samples that it gets, for example to 0.1"
        )


def check_allowed(name: str, allowed: Sequence[str], protocol: Protocol) -> None:
    """Refuse a protocol whose optimiser is not among those for which a method's equations hold."""
    optimiser = protocol.get("optimiser", "sgd")
    if not allowed:
        raise UsageError(
            f"method `{name}` has files whose equations hold for no common optimiser: leave one out"
        )
    if optimiser not in allowed:
        raise UsageError(
            f"the equations of method `{name}` do not hold for the optimiser {optimiser}: set "
            f"`optimiser: {allowed[0]}` in the protocol, or in its `by_method` for this method "
            "alone"
        )


def check_partition(partition: str, dataset: str) -> None:
    check_writers(partition, dataset, source.literal(f"datasets.{dataset}", "WRITERS", False))


def check_whole_writers(name: str, protocol: Protocol, partition: str, dataset: str) -> None:
    clients, whole = protocol["clients"], takes_writers(partition)
    if clients == EACH_WRITER and not whole:
        raise UsageError(
            f"protocol `{name}`: with `clients: writers` a client is a writer, and the partition "
            f"{shown(partition)} deals out single samples: choose the partition writers, or a "
            "number of clients"
        )
    writers = source.literal(f"datasets.{dataset}", "WRITERS", True)
    if whole and source.literal(f"datasets.{dataset}", "TRAIN") and writers is not True:
        check_merged(partition, dataset, clients, writers, protocol["merge"])
    if protocol["client_test_from"] == "writers" and clients != 1 and not whole:
        raise UsageError(
            f"protocol `{name}`: `client_test_from: writers` needs clients that share no writer, "
            f"and the partition {shown(partition)} deals out single samples: choose the partition "
            "writers"
        )


def check_images(what: str, dataset: str) -> None:
    if (inputs := name_inputs(dataset)) != IMAGES:
        raise UsageError(
            f"{what} needs images, and the inputs of the dataset {dataset} are {inputs}: choose a "
            "dataset of images"
        )


def name_inputs(dataset: str) -> str:
    """Return what the inputs of a dataset are; data of one's own may be vectors (D, 1, 1)."""
    if source.literal(f"datasets.{dataset}", "TOKENS", 0):
        return TOKENS
    return VECTORS if source.literal(f"datasets.{dataset}", "SHAPE")[1:] == (1, 1) else IMAGES


def list_stated(method: MethodParts, constant: str, default: Any) -> list[Any]:
    return [source.literal(f"methods.{part}", constant, default) for part in method]


def check_needs(name: str, method: MethodParts, dataset: str) -> None:
    if any(list_stated(method, "NEEDS", ())):
        check_images(f"method `{name}`", dataset)


def needs_client_test(method: str) -> str:
    """Return the error for a method that evaluates clients, if clients have no test data."""
    return (
        f"method `{method}` is evaluated on every client's own test data, and the protocol gives "
        "clients none: set its `client_test`, for example to 0.2, or `client_test_from: writers`"
    )


def check_evaluation(name: str, method: MethodParts, protocol: Protocol) -> None:
    if not any(list_stated(method, "PRIVATE", ())):
        return
    if not has_client_test(protocol):
        raise UsageError(needs_client_test(name))
    if protocol["validation"] and protocol["validation_from"] == "test":
        raise UsageError(
            f"method `{name}` is validated with every client's own model, which needs validation "
            "data of clients, not a part of the test set: set `validation_from: clients`"
        )


def check_model(name: str, method: MethodParts, model: str) -> None:
    alone = any(list_stated(method, "INDEPENDENT", False))
    encodes = alone or any("saliency" in needs for needs in list_stated(method, "NEEDS", ()))
    if encodes and not has_maps(model):
        raise UsageError(
            f"method `{name}` encodes the maps of convolutions, and the model {model} has none: "
            "choose a model with convolutions, such as cnn"
        )
    if alone and not source.literal(f"models.{model}", "INDEPENDENT", True):
        raise UsageError(
            f"method `{name}` encodes every image by itself, but the BatchNorm of the model "
            f"{model} mixes the images of a batch: choose a model with running statistics, such "
            "as resnet18"
        )


def has_maps(model: str) -> bool:
    """Whether a model has maps of convolutions; one for tokens has none."""
    reads_tokens = source.literal(f"models.{model}", "TOKENS", False)
    return source.literal(f"models.{model}", "CONVOLUTIONS", True) and not reads_tokens


def check_blocks(name: str, method: MethodParts, model: str) -> None:
    blocks = source.literal(f"models.{model}", "BLOCKS", ())
    for part in (part for part in method if source.literal(f"methods.{part}", "SPLITS", False)):
        if not blocks:
            raise UsageError(
                f"method `{name}` keeps blocks of the network private, and the model {model} names "
                "none: choose a model with `BLOCKS` in its file, or add them"
            )
        split = method[part].get("split")
        if split is not None and not (type(split) is int and 0 <= split < len(blocks)):
            raise UsageError(
                f"method `{name}`: split {shown(repr(split))} is not a number of blocks below the "
                f"split, from 0 to {len(blocks) - 1}, because the model {model} has {len(blocks)}"
            )


def check_length(kind: str, name: str) -> None:
    most = LONGEST_PART if kind in ("dataset", "product") else LONGEST_NAME
    if (length := len(name.encode("utf-8", "surrogateescape"))) > most:
        raise UsageError(
            f"the {kind} {shown(name)} has a name of {length} bytes, from which no file can be "
            f"made (File name too long): give it another name of at most {most} bytes, "
            "such as that of an entry in config.yaml"
        )


def check_twice(axis: str, names: list[str], meant: list[str]) -> None:
    """Refuse names of an axis of which two are `meant` to be the same: each would count twice."""
    seen: dict[str, str] = {}
    for name, meaning in zip(names, meant, strict=True):
        if meaning in seen:
            also = "twice" if name == seen[meaning] else f"a second time as {shown(name)}"
            raise UsageError(f"the {axis} {shown(seen[meaning])} is named {also}: name it once")
        seen[meaning] = name


def check_case(axis: str, names: list[str]) -> None:
    """Refuse names that differ in case only where the file system takes them for the same."""
    plain = Counter(name.casefold() for name in names)
    same = [name for name in names if plain[name.casefold()] > 1]
    if same and ignores_case(Path.cwd()):
        raise UsageError(
            f"the {axis}s {', '.join(same)} differ in case only, and the file system of "
            f"{Path.cwd()} takes their folders for the same: work on one that distinguishes case, "
            "or choose other names"
        )


def ignores_case(folder: Path) -> bool:
    other = str(folder).swapcase()
    return other != str(folder) and Path(other).exists()


def check_type(what: str, value: Any, default: Any) -> None:
    """Refuse a value whose type is not the default's; an int may stand for a float."""
    kinds, word = _KINDS[type(default)]
    if type(value) not in kinds:
        raise UsageError(f"{what} is {shown(repr(value))}, not {word} such as {default!r}")
    try:
        is_finite = not isinstance(default, float) or math.isfinite(float(value))
    except OverflowError:  # a whole number that is too large
        is_finite = False
    if not is_finite:
        raise UsageError(f"{what} is {shown(repr(value))}, which is not finite")


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
