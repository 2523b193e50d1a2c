"""The paths of a run's files, relative to results/."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.hashes import hash_facts
from fedgrid.runtime.resolved import Fields, Run
from fedgrid.study.protocol import HELD, PROTOCOL, SHARED, STAGES, known_before

RUN = "{protocol}/{dataset}/{partition}/{method}/seed{seed}"
# What all methods of a seed share. `cell` stands for the fields of a protocol that the stage
# depends on (`Resolver.cells`), so protocols that agree in these share the files.
CELL = "{dataset}/{partition}/{cell}/seed{seed}"
PARTITION = "{dataset}/{partition}/{recipe}-{clients}{held}/seed{seed}"  # what all protocols share
# The part `held` of a partition's path: what is kept for tests, validation and the server, and
# whether clients may share writers.
HELD_OUT = (
    r"(?:-test(writers|[0-9.e-]+))?(?:-validation([0-9.e-]+)-(test|clients))?"
    r"(?:-server([0-9.e-]+))?(-merged)?"
)
# Files of runs that are collected into one table each (`collect.py`).
COLLECTED = {
    "runs": f"runs/{RUN}/metrics.csv",
    "predictions": f"runs/{RUN}/predictions.csv",
    "clients": f"runs/{RUN}/clients.csv",
    "seconds": f"runs/{RUN}/summary.json",
    "settings": f"runs/{RUN}/summary.json",
    "partition": f"partition/{PARTITION}.npz",
    "sizes": f"partition/{PARTITION}.npz",
    "saliency": f"saliency/{CELL}.csv",
    "encoding": f"saliency/{CELL}.json",
    "interpolation": f"interpolation/{RUN}.csv",
}
OF_RUN = tuple(kind for kind, path in COLLECTED.items() if RUN in path)  # others share theirs
# Columns of names in all tables, which are texts whatever they look like: a class may be called NA,
# a client 7, and a dataset 007.
TEXTS = (
    *("client_name", "class_name", "class_label", "taken_for_label"),
    *("protocol", "dataset", "partition", "method", "over", "plain", "placebo", "of_method"),
    *("as_protocol", "family", "setting", "series", "code"),
)
COUNTED = "clients"  # how many, in the summary of a run with `clients: writers`
UNTESTED = "clients_without_tests"  # in a run's summary and its collected metrics, if there are any
# Fields of a protocol that become columns of these tables.
SUMMED = ("rounds", "metric", "tail", "local", "participation", "sampler", *SHARED)
INPUTS = ("data", "weights", "partition", "pretrain", "saliency", "latents", "metrics")  # of stages
CELLS = ("pretrain", "saliency", "latents")  # stages whose files all methods share


def collecting_stage(kind: str) -> str:
    folder, _, _ = COLLECTED[kind].partition("/")
    return "train" if folder == "runs" else folder


def collected_path(kind: str, run: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    cell = protocol.get("cells", {}).get(collecting_stage(kind), "")
    return COLLECTED[kind].format(**run, **partition_names(protocol), cell=cell)


def collected_fields(kind: str, protocol: Mapping[str, Any]) -> dict:
    """Return the parts of a protocol that collecting a kind reads: fields, and the stage's cell."""
    stage, cells = collecting_stage(kind), protocol.get("cells", {})
    read = {field: protocol[field] for field in SUMMED}
    drawn_by = {field: protocol.get(field, PROTOCOL[field]) for field in STAGES["partition"]}
    read |= known_before(drawn_by)
    return read | {"cells": {stage: cells[stage]}} if stage in cells else read


def cell_hash(stage: str, protocol: Mapping[str, Any]) -> str:
    read = known_before({field: protocol[field] for field in STAGES[stage]})
    return hash_facts(read, 10)


def partition_names(protocol: Mapping[str, Any]) -> dict[str, str]:
    test, origin, share, validation_from = (protocol.get(field, PROTOCOL[field]) for field in HELD)
    held = f"-test{test:g}" if test else ""
    held = "-testwriters" if origin == "writers" else held
    held += f"-validation{share:g}-{validation_from}" if share else ""
    server = protocol.get("server_data", 0)
    held += f"-server{server:g}" if server else ""
    held += "-merged" if protocol.get("merge") else ""
    return {"recipe": protocol["recipe"], "clients": protocol["clients"], "held": held}


def held_fields(held: str) -> Fields:
    """Return the protocol's fields that the part `held` of a partition's path encodes."""
    found = re.fullmatch(HELD_OUT, held)
    assert found, "the rules match only such paths"
    test, share, validation_from, server, merged = found.groups()
    origin = "writers" if test == "writers" else PROTOCOL["client_test_from"]
    own = 0.0 if test == "writers" else float(test or 0)
    given = own, origin, float(share or 0), validation_from or PROTOCOL["validation_from"]
    others: Fields = {"server_data": float(server)} if server else {}
    return dict(zip(HELD, given, strict=True)) | others | ({"merge": True} if merged else {})


def input_paths(run: Run) -> dict[str, str]:
    """Return the paths of a resolved run's inputs, relative to results/, by stage.

    A file of weights of your own has its absolute path. A run in JSON, as a job receives it, has no
    paths of other stages' files.
    """
    protocol, names = run["protocol"], run["name"]
    partition = PARTITION.format(**names, **partition_names(protocol))
    paths = {"data": f"data/{run['dataset']}", "partition": f"partition/{partition}.npz"}
    paths["metrics"] = f"runs/{RUN.format(**names)}/metrics.csv"
    ends = {"pretrain": "", "saliency": ".npz", "latents": ".npz"}
    for stage, cell in run.get("cells", {}).items():
        paths[stage] = f"{stage}/{CELL.format(**names, cell=cell)}{ends[stage]}"
    model, weights = protocol.get("model", "cnn"), protocol.get("weights", "none")
    if weights in source.literal(f"models.{model}", "WEIGHTS", ()):
        paths["weights"] = f"weights/{model}-{weights}.safetensors"
    elif weights != "none":
        paths["weights"] = str(Path(weights).absolute())
    return paths
