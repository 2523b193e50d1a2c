"""A resolved run: what a protocol says, what each stage depends on, and where things are. No torch.

The resolved run is what a job is given, as JSON, and what its results are keyed by: its names, its
protocol with all fields, and its method's files with all hyper-parameters (`grid.py` makes it).
"""

import re
from itertools import product
from typing import Any

from fedgrid import source
from fedgrid.names import UsageError, registered, shown

AXES = ("protocol", "dataset", "partition", "method", "seed")
RUN = "{protocol}/{dataset}/{partition}/{method}/seed{seed}"
CELL = "{protocol}/{dataset}/{partition}/seed{seed}"  # what all methods of a seed share
PARTITION = "{dataset}/{partition}/{recipe}-{clients}/seed{seed}"  # what all protocols share
ANY_METHOD = "fedavg"  # stands in the name of a stage that all methods share


def runs_of(block: dict[str, list]) -> list[dict[str, Any]]:
    """Every run of a grid's block, by its names: the product of the axes."""
    names = product(*(block[axis] for axis in AXES))
    return [dict(zip(AXES, values, strict=True)) for values in names]


# The partitions that there are, each followed by a number above 0.
PARTITIONS = {"dir": r"[0-9]{1,18}\.?[0-9]{0,18}", "shards": "[0-9]{1,9}"}


def skew(partition: str) -> tuple[str, float]:
    """What a name says: ("dir", 0.05) is Dirichlet's alpha, ("shards", 2) a client's shards."""
    for kind, number in PARTITIONS.items():
        match = re.fullmatch(f"{kind}({number})", partition)
        if match and float(match[1]) > 0:
            return kind, float(match[1])
    raise UsageError(
        f"no partition is called `{shown(partition)}`: it is `dir` or `shards` and a number "
        "above 0, such as dir0.1 or shards2"
    )


# A protocol's fields and their neutral values; `schemas/study.schema.yaml` gives their ranges.
PROTOCOL: dict[str, Any] = {
    "model": "cnn",
    "weights": "none",
    "clients": 100,
    "participation": 0.1,
    "sampler": "seeded",
    "recipe": "classwise",
    "rounds": 100,
    "local": 10,
    "local_unit": "steps",
    "batches": "fresh",
    "batch": 64,
    "smallest_batch": 8,
    "lr": 0.01,
    "lr_decay": 1.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "augment": [],
    "normalization": "standard",
    "precision": "fp32",
    "evaluate_every": 10,
    "metric": "tail",
    "tail": 100,
    "pretrain_epochs": 1,
    "autoencoder_fit": 0.0,
}

_SHARED = ("recipe", "clients")
_AFTER = ("metric", "tail", "pretrain_epochs", "autoencoder_fit")  # none changes a run's training
_LOCAL = ("batch", "smallest_batch", "lr", "momentum", "normalization", "pretrain_epochs")
_MODEL = ("model", "weights", "weight_decay", "augment", "precision")
# The fields of a protocol that a stage depends on. The pretrained models are temporary, so what
# they depend on counts for the saliency too; `tail` says how runs are summed up, and changes none.
STAGES = {
    "partition": _SHARED,
    "pretrain": (*_SHARED, *_LOCAL, *_MODEL),
    "saliency": (*_SHARED, *_LOCAL, *_MODEL),
    "latents": (*_SHARED, *_LOCAL, "autoencoder_fit"),
    "train": tuple(field for field in PROTOCOL if field not in _AFTER),
}


def part(stage: str, run: dict) -> dict:
    """What of a resolved run a stage depends on."""
    protocol = {field: run["protocol"][field] for field in STAGES[stage]}
    if stage != "train":
        run = run | {"name": run["name"] | {"method": "any"}, "method": {}}
    return run | {"protocol": protocol}


# What a grid's runs leave that is collected into one table, relative to results/ (`collect.py`).
COLLECTED = {
    "runs": f"runs/{RUN}/metrics.csv",
    "predictions": f"runs/{RUN}/predictions.csv",
    "seconds": f"runs/{RUN}/summary.json",
    "settings": f"runs/{RUN}/summary.json",
    "partition": f"partition/{PARTITION}.npz",
    "saliency": f"saliency/{CELL}.csv",
    "encoding": f"saliency/{CELL}.json",
}
# Fields of a protocol that go along.
SUMMED = ("rounds", "metric", "tail", "participation", "sampler", *_SHARED)


def leaves(kind: str, run: dict, protocol: dict) -> str:
    """Where a run, or what it shares with others, leaves what is collected as `kind`."""
    return COLLECTED[kind].format(**run, **{field: protocol[field] for field in _SHARED})


INPUTS = ("data", "weights", "partition", "pretrain", "saliency", "latents")


def inputs(run: dict) -> dict[str, str]:
    """Where the stages of a resolved run leave what it needs, relative to results/."""
    protocol, names = run["protocol"], run["name"]
    cell = CELL.format(**names)
    partition = PARTITION.format(**names, **{field: protocol[field] for field in _SHARED})
    paths = {
        "data": f"data/{run['dataset']}",
        "partition": f"partition/{partition}.npz",
        "pretrain": f"pretrain/{cell}",
        "saliency": f"saliency/{cell}.npz",
        "latents": f"latents/{cell}.npz",
    }
    model, weights = protocol.get("model", "cnn"), protocol.get("weights", "none")
    if weights in source.literal(f"models.{model}", "WEIGHTS", ()):
        paths["weights"] = f"weights/{model}-{weights}.safetensors"
    return paths


def memory_mb(run: dict) -> int:
    """What a run's process may take of a machine's memory, with all that its method may keep.

    PyTorch, a dataset's pages and the activations of a batch; the models at work, the cohort's
    deltas and statistics, and two models for every client of a method that remembers.
    """
    protocol = run["protocol"]
    model = source.literal(f"models.{protocol['model']}", "MEGABYTES", 100)
    cohort = protocol["clients"] * protocol.get("participation", 1.0)
    remembered = any(source.mentions(part, "remember") for part in parts(run))
    return round(4000 + model * (12 + 2 * cohort + 2 * remembered * protocol["clients"]))


def parts(run: dict) -> list[str]:
    """The modules of the run's method."""
    return [f"methods.{part}" for part in run["method"]]


def needs(run: dict) -> list[str]:
    """The stages whose results the run's method asks for with `NEEDS`."""
    return sorted({need for part in parts(run) for need in source.literal(part, "NEEDS", ())})


def modules(stage: str, run: dict) -> list[str]:
    """Where the code of a stage begins; what is imported by name at run time is named here."""
    if "model" not in STAGES[stage]:
        return [stage]
    backends = (f"backends.{name}" for name in registered("backends"))
    method = parts(run) if stage == "train" else ()
    return [stage, f"models.{run['protocol']['model']}", *backends, *method]
