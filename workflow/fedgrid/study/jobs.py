"""The memory of a job, the stages before it, and the modules of its code."""

import json
import os

from fedgrid.federation import cohorts
from fedgrid.partitions import parse_name
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.study import sizes
from fedgrid.study.protocol import ANY, AXES, OF_METHOD, STAGES

KEPT_MB = 1000  # of what clients keep between rounds that stays in memory; the rest is on disk
STATES_READ = "FEDGRID_STATES_READ"  # the variable of the environment of `is_state_read`


def memory_mb(run: dict) -> int:
    """Estimate the memory in MB that the process of a run needs.

    It holds PyTorch, the activations of a batch, several models, the cohort's deltas and
    statistics, and what clients keep: for the cohort before and after its round, and for the
    clients used last (`training/memories.py`). The dataset is a memory map and needs none.
    """
    protocol, each = run["protocol"] | run.get("own", {}), count_kept_models(run)
    cohort = protocol["clients"] * protocol.get("participation", 1.0)
    megabytes = model_mb(run)
    used_last = min(megabytes * each * protocol["clients"], 1.5 * KEPT_MB)  # and while it is saved
    several = megabytes * (12 + 2 * cohort * (1 + each))
    return round(4000 + several + used_last + batch_mb(run))


def state_gb(run: dict) -> float:
    """Estimate the size of a run's last state in GB: the server's model, and what clients keep."""
    protocol = run["protocol"] | run.get("own", {})
    cohort = cohorts.size(protocol["clients"], protocol["participation"], protocol["sampler"])
    keepers = min(protocol["clients"], cohort * protocol["rounds"])
    return model_mb(run) * (2 + count_kept_models(run) * keepers) / 1000


def is_state_read(name: dict) -> bool:
    """Whether a product of the configuration's study reads the last state of this run.

    The Snakefile writes the blocks of their grids into the environment. Such a state is kept even
    if it is large.
    """
    blocks = json.loads(os.environ.get(STATES_READ) or "[]")
    return any(all(name[axis] in block[axis] for axis in AXES) for block in blocks)


def model_mb(run: dict) -> float:
    """Return the size of the run's model in MB."""
    return measure_model(run)["weights"]


def batch_mb(run: dict) -> float:
    """Return the MB of the activations of a batch, in training or in evaluation."""
    size, batch = measure_model(run), source.literal("engine.evaluation", "EVALUATION_BATCH")
    tests = source.literal(f"datasets.{run['dataset']}", "TEST") or batch
    return max(size["training"] * run["protocol"]["batch"], size["evaluation"] * min(tests, batch))


def measure_model(run: dict) -> dict[str, float]:
    """Return the MB of the run's model, and of a sample in training and in evaluation."""
    data = f"datasets.{run['dataset']}"
    inputs = {key.lower(): source.literal(data, key, 0) for key in ("SHAPE", "CLASSES", "TOKENS")}
    return sizes.measure_sizes(run["protocol"]["model"], json.dumps(inputs))


def count_kept_models(run: dict) -> float:
    """Count the models that each client keeps between rounds, with those of its optimiser.

    The method's literal MODELS_KEPT says how many it keeps.
    """
    protocol = run["protocol"] | run.get("own", {})
    kept = sum(source.literal(part, "MODELS_KEPT", 0) for part in list_method_modules(run))
    if protocol.get("optimiser_state") == "kept":
        kept += 1 if protocol["optimiser"] == "sgd" else 2
    return kept


def list_method_modules(run: dict) -> list[str]:
    """Return the modules of the run's method."""
    return [f"methods.{part}" for part in run["method"]]


def list_needed_stages(run: dict) -> list[str]:
    """Return the stages that the run's method names in `NEEDS`."""
    return sorted(
        {need for part in list_method_modules(run) for need in source.literal(part, "NEEDS", ())}
    )


def stage_modules(stage: str, run: dict) -> list[str]:
    """Return the modules of a stage: its command, and modules that are imported by name."""
    root = f"stages.{stage}"
    if stage == "partition":
        return [root, f"partitions.{parse_name(run['partition'])[0]}"]
    if "model" not in STAGES[stage]:
        return [root]
    backends = (f"engine.backends.{name}" for name in registered("engine/backends"))
    method = list_method_modules(run) if stage in OF_METHOD else ()
    return [root, f"models.{run['protocol']['model']}", *backends, *method]


def list_stages_until(last: str, run: dict) -> set[str]:
    """Return the stages of a run up to `last`, with those that its method needs."""
    wanted = {
        "partition",
        last,
        *(("train", *list_needed_stages(run)) if last in OF_METHOD else ()),
    }
    return wanted | ({"pretrain"} if "saliency" in wanted else set())


def list_stage_fields(stage: str, run: dict) -> list[str]:
    """Return the protocol's fields on which a stage and the stages before it depend."""
    needed = list_needed_stages(run) if stage in OF_METHOD else ()
    return [*dict.fromkeys(field for name in (stage, *needed) for field in STAGES[name])]


def run_of_stage(stage: str, run: dict) -> dict:
    """Return the parts of a resolved run that a stage depends on.

    Stages that all methods share depend neither on the protocol's name nor on the method, and so
    not on the fields that `by_method` changes.
    """
    own = run.get("own", {}) if stage in OF_METHOD else {}
    run = {key: value for key, value in run.items() if key not in ("cells", "own")}
    fields = run["protocol"] | own
    protocol = {field: fields[field] for field in list_stage_fields(stage, run)}
    if stage not in OF_METHOD:
        nobody = {"protocol": ANY, "method": ANY}
        run = run | {"name": run["name"] | nobody, "method": {}}
    return run | {"protocol": protocol}


def run_content(run: dict) -> dict:
    """Return what a training depends on, without the names of protocol and method.

    Runs with equal contents are the same work.
    """
    return {key: value for key, value in run_of_stage("train", run).items() if key != "name"}


def fingerprint_stages(stage: str, run: dict) -> str:
    """Return the fingerprint of the code of a stage and of all stages before it.

    The stages before it count, because Snakemake does not notice that an earlier stage has new code
    if its file is missing and the later file looks finished.
    """
    modules = {"stages.data", f"datasets.{run['dataset']}"}
    modules |= {
        module
        for each_stage in list_stages_until(stage, run)
        for module in stage_modules(each_stage, run)
    }
    return source.fingerprint(*sorted(modules))
