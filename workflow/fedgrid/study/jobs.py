"""The memory of a job, the stages before it, and the modules of its code."""

import json
import os
from typing import Any

from fedgrid.federation import cohorts
from fedgrid.federation.protocols import (
    effective_protocol,
    list_method_modules,
    list_needed_stages,
)
from fedgrid.partitions import count_clients, parse_name
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.runtime.resolved import Names, Run
from fedgrid.study import sizes
from fedgrid.study.protocol import ANY, AXES, OF_METHOD, STAGES, known_now

KEPT_MB = 1000  # of what clients keep between rounds that stays in memory; the rest is on disk
MANY = 1000  # clients, where one for each writer is asked for, and their number is not known
STATES_READ = "FEDGRID_STATES_READ"  # the variable of the environment of `is_state_read`


def memory_mb(run: Run) -> int:
    """Return the memory in MB that a run's process may use.

    It holds PyTorch, the activations of a batch in training or in evaluation, several models, the
    cohort's deltas and statistics, and what clients keep: that of the cohort before and after its
    round, and that of the clients used last (`training/memories.py`). The dataset is a memory map.
    """
    protocol, each, size = effective_protocol(run), count_kept_models(run), measure_model(run)
    clients = count_clients(protocol["clients"], run["dataset"]) or MANY
    cohort = clients * protocol.get("participation", 1.0)
    used_last = min(size["weights"] * each * clients, 1.5 * KEPT_MB)  # and while it is saved
    several = size["weights"] * (12 + 2 * cohort * (1 + each))
    evaluated = source.literal("engine.evaluation", "EVALUATION_BATCH")
    tests = source.literal(f"datasets.{run['dataset']}", "TEST") or evaluated
    trained, tested = run["protocol"]["batch"], min(tests, evaluated)
    activations = max(size["training"] * trained, size["evaluation"] * tested)
    return round(4000 + several + used_last + activations)


def state_gb(run: Run) -> float:
    """Return the size of a run's last state in GB: the server's model, and what clients keep."""
    protocol = effective_protocol(run)
    clients = count_clients(protocol["clients"], run["dataset"]) or MANY
    cohort = cohorts.size(clients, protocol["participation"], protocol["sampler"])
    keepers = min(clients, cohort * protocol["rounds"])
    return measure_model(run)["weights"] * (2 + count_kept_models(run) * keepers) / 1000


def is_state_read(name: Names) -> bool:
    """Whether products of studies read the last state of the run that is trained under this name.

    The Snakefile writes the blocks of their grids into the environment. Such a state is kept
    whatever its size.
    """
    blocks = json.loads(os.environ.get(STATES_READ) or "[]")
    return any(all(name[axis] in block[axis] for axis in AXES) for block in blocks)


def measure_model(run: Run) -> dict[str, float]:
    """Return the MB of the run's model, and of a sample in training and in evaluation."""
    return sizes.measure_sizes(run["protocol"]["model"], write_inputs(run["dataset"]))


def write_inputs(dataset: str) -> str:
    """Return the shape, classes and tokens of a dataset as JSON."""
    keys, data = ("SHAPE", "CLASSES", "TOKENS"), f"datasets.{dataset}"
    return json.dumps({key.lower(): source.literal(data, key, 0) for key in keys})


def count_kept_models(run: Run) -> float:
    """Return the number of models that each client keeps, counting those of its optimiser.

    The method's literal MODELS_KEPT says how many it keeps.
    """
    protocol = effective_protocol(run)
    kept = sum(source.literal(part, "MODELS_KEPT", 0) for part in list_method_modules(run))
    if protocol.get("optimiser_state") == "kept":
        kept += 1 if protocol["optimiser"] == "sgd" else 2
    return kept


def stage_modules(stage: str, run: Run) -> list[str]:
    root = f"stages.{stage}"
    if stage == "partition":
        return [root, f"partitions.{parse_name(run['partition'])[0]}"]
    if "model" not in STAGES[stage]:
        return [root]
    backends = (f"engine.backends.{name}" for name in registered("engine/backends"))
    method = list_method_modules(run) if stage in OF_METHOD else ()
    return [root, f"models.{run['protocol']['model']}", *backends, *method]


def dataset_modules(dataset: str) -> list[str]:
    return ["stages.data", f"datasets.{dataset}"]


def list_stages_until(last: str, run: Run) -> set[str]:
    """Return the stages that a run goes through until the last one, as its method asks for."""
    of_method = ("train", *list_needed_stages(run)) if last in OF_METHOD else ()
    wanted = {"partition", last, *of_method}
    return wanted | ({"pretrain"} if "saliency" in wanted else set())


def list_stage_fields(stage: str, run: Run) -> list[str]:
    """Return the protocol's fields that a stage depends on, with those of the stages it needs."""
    needed = list_needed_stages(run) if stage in OF_METHOD else ()
    return [*dict.fromkeys(field for one in (stage, *needed) for field in STAGES[one])]


def run_of_stage(stage: str, run: Run) -> Run:
    """Return the parts of a resolved run that a stage depends on.

    What all methods share depends neither on the name of the protocol nor on the method, and so not
    on the fields that are the method's own.
    """
    fields = known_now(effective_protocol(run) if stage in OF_METHOD else run["protocol"])
    kept: Any = {key: value for key, value in run.items() if key not in ("cells", "own")}
    kept["protocol"] = {field: fields[field] for field in list_stage_fields(stage, run)}
    if stage not in OF_METHOD:
        kept |= {"name": {**run["name"], "protocol": ANY, "method": ANY}, "method": {}}
    return kept


def run_content(run: Run) -> dict[str, Any]:
    """Return what a training depends on, without the names of protocol and method.

    Runs with equal contents are the same work.
    """
    return {key: value for key, value in run_of_stage("train", run).items() if key != "name"}


def fingerprint_stages(stage: str, run: Run) -> str:
    """Return the fingerprint of the code of a stage and of all stages before it.

    The stages before it count, because Snakemake does not make a missing file again if a later file
    looks finished: a stage that fails would leave old results of later stages in place.
    """
    modules = {*dataset_modules(run["dataset"])}
    for one in list_stages_until(stage, run):
        modules.update(stage_modules(one, run))
    return source.fingerprint(*sorted(modules))
