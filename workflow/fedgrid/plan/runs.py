"""What the jobs of a run need: inputs, settings, code, memory and GPUs.

Called without their `wildcards`, the methods with `@per_job` return a function of them, as
Snakemake's directives take it.
"""

import json
import os
from contextlib import suppress
from logging import WARNING
from math import ceil
from pathlib import Path
from typing import Any

from snakemake.io import ancient, local

from fedgrid.federation.protocols import list_needed_stages
from fedgrid.partitions import (
    EACH_WRITER,
    check_merged,
    count_clients,
    describe_clients,
    takes_writers,
)
from fedgrid.plan.asked import Asked, asked, per_job
from fedgrid.plan.configuration import Plan, path_from_here
from fedgrid.runtime import forced, machine
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Names, Run
from fedgrid.runtime.watch.failures import say_last
from fedgrid.store.identity import is_finished
from fedgrid.store.kept import Entry, describe_others, find_kept, find_other
from fedgrid.study.jobs import (
    dataset_modules,
    fingerprint_stages,
    is_state_read,
    memory_mb,
    run_of_stage,
    state_gb,
)
from fedgrid.study.paths import OF_RUN, PARTITION, RUN, held_fields, input_paths
from fedgrid.study.protocol import ANY, ANY_METHOD, AXES, known_before
from fedgrid.study.resolving import remember_answers
from fedgrid.study.selection import read_seed

# The files of a run, by the name of the output.
FILES = {
    "metrics": f"results/runs/{RUN}/metrics.csv",
    "predictions": f"results/runs/{RUN}/predictions.csv",
    "clients": f"results/runs/{RUN}/clients.csv",
    "summary": f"results/runs/{RUN}/summary.json",
    "model": f"results/runs/{RUN}/model.safetensors",
}
COPY = f"results/checkpoints/runs/{RUN}.safetensors.finished/summary.json"  # of a finished run
LINKED_MB = 2000  # the memory of a job that links a run


class Runs:
    def __init__(self, plan: Plan):
        self.plan = plan

    def resolve(self, wildcards) -> Run:
        """Return the run of a path's names.

        The path of a stage that methods share has no method, and a `cell` instead of a protocol.
        """
        self.plan.snakemake.prepare()
        names: dict[str, Any] = {"method": ANY_METHOD, **wildcards}
        if "cell" in names:
            names["protocol"] = self.plan.grid.protocol_of_cell(names["cell"])
        names["seed"] = read_seed(names["seed"])
        return self.resolve_names(tuple((axis, names[axis]) for axis in AXES))

    @remember_answers  # a job needs this for its input, its spec and its code
    def resolve_names(self, names: tuple[tuple[str, Any], ...]) -> Run:
        """Return the run of ((axis, name), ...), in the order of AXES."""
        return self.plan.grid.resolve(dict(names))

    # -- inputs ----------------------------------------------------------------------------------

    @per_job
    def inputs(self, *names: str, wildcards) -> dict[str, str | list[str]]:
        """Return a stage's inputs by name; `needs` stands for those of the method."""
        run = self.resolve(wildcards)
        if "metrics" in names:
            self.check_state(run)
        paths, wanted = input_paths(run), [name for name in names if name != "needs"]
        wanted += list_needed_stages(run) if "needs" in names else []
        found = {name: self.input_of(name, paths[name]) for name in wanted if name in paths}
        first = self.first_name(run) if "needs" in names and not self.has_storage else None
        return found | ({"first": FILES["metrics"].format(**first)} if first else {})

    def input_of(self, name: str, path: str) -> str | list[str]:
        """Return the files that a job waits for, by a path relative to results/.

        Published weights never expire. Weights of your own have a path below this folder if
        possible. In a storage pretrained models are an archive: some have no folders.
        """
        if name == "data":
            return self.plan.data_files(Path(path).name)
        if Path(path).is_absolute():
            return local(str(path_from_here(Path(path))))
        if name == "weights":
            return ancient(f"results/{path}")
        return f"results/{path}{'.tar' * (name == 'pretrain' and self.has_storage)}"

    def check_state(self, run: Run) -> None:
        """Refuse work on a run whose last state would be too large to be kept."""
        if self.has_storage and not self.plan.config.get("checkpoints"):
            raise UsageError(
                f"the interpolation of {RUN.format(**run['name'])} reads the run's last state, "
                "which lies on the node that trained it: set `checkpoints`"
            )
        limit, need = self.plan.config.get("keep_state_gb", 1), state_gb(run)
        if need > limit and not is_state_read(self.plan.grid.first_name(run)):
            raise UsageError(
                f"the interpolation of {RUN.format(**run['name'])} reads the run's last state, "
                f"of up to {need:.1f} GB, and such a state is not kept: set `keep_state_gb: "
                f"{ceil(need)}`"
            )

    def inputs_of_partition(self, wildcards) -> dict[str, list[str]]:
        """Return the decoded dataset of a partition that does not exist; say who its clients are.

        UsageError if writers would be merged without the protocol's `merge`.
        """
        names = dict(wildcards.items())
        partition, dataset = names["partition"], names["dataset"]
        path = f"results/partition/{PARTITION.format(**names)}.npz"
        if takes_writers(partition) and not self.plan.snakemake.is_here(path):
            clients, writers = read_clients(names["clients"]), count_writers(dataset)
            if writers is not None:
                is_merged = held_fields(names["held"]).get("merge")
                check_merged(partition, dataset, clients, writers, is_merged)
            self.say_once(describe_clients(partition, dataset, clients, writers))
        return {"data": self.plan.data_files(dataset)}

    @property
    def has_storage(self) -> bool:
        return self.plan.snakemake.has_storage

    @remember_answers
    def say_once(self, sentence: str, *level: int) -> None:
        self.plan.snakemake.say(sentence, *level)

    def check_data(self, wildcards) -> list[str]:
        """Return no inputs of the decoded data; refuse files that are missing and not downloaded.

        A dry run warns: the files may be on another machine. In a storage the job itself refuses
        them, since the decoded data may be there.
        """
        is_made = Path(f"results/data/{wildcards.dataset}/meta.json").exists()
        sentence = "" if is_made or self.has_storage else self.find_missing(wildcards.dataset)
        if sentence and self.plan.snakemake.will_run:
            raise UsageError(sentence)
        if sentence:
            say_last(f"warning: {sentence}")
        return []

    def find_missing(self, dataset: str) -> str:
        """Return a sentence if files of a dataset are missing that nothing downloads, or ""."""
        module = f"datasets.{dataset}"
        if source.is_own(module):
            return own_data.find_missing(dataset)
        root = os.path.expanduser(self.plan.config["data_root"])
        patterns = source.literal(module, "GIVEN", ())
        if not patterns or any(one for p in patterns for one in Path(root).glob(p)):
            return ""
        return source.literal(module, "MISSING", "{}").format(root)

    def first_name(self, run: Run) -> Names | None:
        """Return the names under which a resolved run is trained, if these are not its own."""
        first = self.find_first(tuple(run["name"].items()))
        return None if first == run["name"] else first

    @remember_answers  # a job asks for its inputs, its memory and its GPU
    def find_first(self, names: tuple[tuple[str, Any], ...]) -> Names:
        return self.plan.grid.first_name(self.resolve_names(names))

    def is_linked(self, wildcards) -> bool:
        """Return whether a path's run is trained under another name, and linked from there.

        It is trained anew if other versions of the packages made that run, if its copy is gone, or
        if this command forces it.
        """
        names = dict(wildcards.items())
        first = None if self.has_storage else self.first_name(self.resolve(wildcards))
        if not first:
            return False
        if forced.is_forced("train", [path.format(**names) for path in FILES.values()]):
            return False
        if not Path(FILES["metrics"].format(**first)).exists():
            return True
        try:
            summary = json.loads(Path(COPY.format(**first)).read_text())
            return summary["versions"] == machine.versions()
        except (OSError, ValueError, KeyError):
            return False

    @remember_answers  # a run is in several grids, and a table asks for it three times
    def kept_entry(self, kind: str, study: str, scale: str, names: tuple) -> Entry | None:
        """Return the entry of a run that is kept with its study and is not in results/, or None."""
        if not (index := self.plan.kept.get((study, scale))):
            return None
        run = self.resolve_names(names)
        entry = find_kept(index, kind, run)
        return None if entry and self.is_here(kind, run) else entry

    def is_here(self, kind: str, run: Run) -> bool:
        """Whether results/ has a run's output of a kind; what a storage has is not looked at."""
        return not self.has_storage and is_finished(kind, run, Path("results"))

    def tell_others(self, kind: str, study: str, scale: str, runs: list[Names]) -> None:
        """Say which of these runs are kept with other data or settings, and are trained."""
        index, others = self.plan.kept.get((study, scale), {}), {}
        for names in runs if index and kind in OF_RUN else ():
            if self.kept_entry(kind, study, scale, key := tuple(names.items())):
                continue
            run = self.resolve_names(key)
            reason = find_other(index, kind, run)
            if reason and not self.is_here(kind, run):
                others[RUN.format(**names)] = reason
        for sentence in describe_others(study, scale, others):
            self.say_once(sentence, WARNING)

    # -- settings and code -----------------------------------------------------------------------

    @per_job
    def specification(self, stage: str, wildcards) -> str:
        run: Any = run_of_stage(stage, self.resolve(wildcards))
        run["protocol"] = known_before(run["protocol"])
        return json.dumps(run, sort_keys=True)

    @per_job
    def code(self, stage: str, wildcards) -> str:
        return fingerprint_stages(stage, self.resolve(wildcards))

    # -- resources -------------------------------------------------------------------------------

    @per_job
    def memory(self, stage: str, wildcards) -> int:
        """Return the megabytes that a job may use: few for a run that is only linked."""
        is_linked = stage == "train" and self.is_linked(wildcards)
        return LINKED_MB if is_linked else memory_mb(self.resolve(wildcards))

    @per_job
    def own_gpu(self, stage: str, wildcards) -> int:
        """Return how many GPUs a job asks for: none in a group, where `shared_gpu` asks for one."""
        is_alone = self.has_gpu and not self.plan.snakemake.is_grouped(stage)
        return int(is_alone and not (stage == "train" and self.is_linked(wildcards)))

    @per_job
    def shared_gpu(self, stage: str, wildcards) -> str | None:
        """Return the resource `gres` of a job in a group, which the jobs of the group share.

        Snakemake adds up the numbers that the jobs of a group ask for, such as their memory. A
        resource that is a text must be the same for all of them, and the group asks for it once.
        """
        is_shared = self.has_gpu and self.plan.snakemake.is_grouped(stage)
        return "gpu:1" if is_shared else None

    @property
    def has_gpu(self) -> bool:
        return self.plan.config["device"] != "cpu"


def growing(amount: int | Asked) -> Asked:

    @asked
    def find_amount(wildcards, attempt: int) -> int:
        first = amount(wildcards) if callable(amount) else amount
        return first * min(attempt, 3)

    return find_amount


def count_writers(dataset: str) -> int | None:
    """Return the number of writers of a dataset that is decoded, or always the same; else None."""
    import numpy as np  # which a plan without whole writers need not import

    with suppress(OSError, ValueError):
        return len(np.unique(np.load(f"results/data/{dataset}/train_writers.npy", mmap_mode="r")))
    is_fixed = source.literal(f"datasets.{dataset}", "TRAIN")
    return count_clients(EACH_WRITER, dataset) if is_fixed else None


# -- what runs share -----------------------------------------------------------------------------


@asked
def dataset_code(wildcards) -> str:
    return source.fingerprint(*dataset_modules(wildcards.dataset))


@asked
def published_weights(wildcards) -> Any:
    return source.literal(f"models.{wildcards.model}", "WEIGHTS")[wildcards.weights]


def read_clients(text: str) -> int | str:
    return text if text == EACH_WRITER else int(text)


@asked
def partition_specification(wildcards) -> str:
    """Return the run of a partition's path as JSON; protocols with equal fields share it."""
    names = dict(wildcards.items())
    protocol = {"recipe": names["recipe"], "clients": read_clients(names["clients"])}
    return json.dumps(
        {
            "name": {axis: names.get(axis, ANY) for axis in AXES},
            "protocol": protocol | held_fields(names["held"]),
            "dataset": names["dataset"],
            "partition": names["partition"],
            "method": {},
            "seed": read_seed(names["seed"]),
        },
        sort_keys=True,
    )


@asked
def partition_code(wildcards) -> str:
    names = dict(wildcards.items())
    run: Any = {axis: names[axis] for axis in ("dataset", "partition")}
    return fingerprint_stages("partition", run)
