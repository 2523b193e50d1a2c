"""The plan that all rules share: the configuration, the studies and their runs, and kept runs."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from logging import WARNING
from pathlib import Path

from fedgrid.plan.invocation import Invocation
from fedgrid.runtime import synced
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError, within
from fedgrid.runtime.places import PACKAGE
from fedgrid.runtime.watch import trackers
from fedgrid.store.kept import Entry, read_index, store_folder
from fedgrid.study.given import read_given
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import STATES_READ
from fedgrid.study.paths import COLLECTED
from fedgrid.study.reading import (
    GIVEN,
    Studies,
    add_products,
    check_config,
    read_studies,
    use_studies,
)
from fedgrid.study.records import Study

WHOLE = "results/studies/{study}/{scale}"  # the products of a study, and its experiments

# What a decoded dataset consists of. In a storage all of it is declared, with an empty file for
# what a dataset does not have; elsewhere meta.json stands for all, and the others lie beside it.
ARRAYS = ("train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy")
WRITERS = ("train_writers.npy", "test_writers.npy")

# The rules of Snakemake that belong to no study.
RULES = (
    *("all", "data", "weights", "partition", "pretrain", "saliency", "latents", "train"),
    *("interpolation", "originals", "maps", "scores", "costs"),
)

Checks = dict[str, Callable[[dict], None]]  # of the settings of experiments, by name


@dataclass(frozen=True)
class Plan:
    """What is asked for, and what there is: it does not change once it is made."""

    config: dict
    studies: Studies
    grid: Grid
    kept: dict[tuple[str, str], dict[str, Entry]]  # indices of kept runs by study and scale
    snakemake: Invocation

    @property
    def folder(self) -> str:
        """The folder of products and collected tables, with the wildcards {study} and {scale}.

        A part of a study, or more than it, has a folder of its own, so that it never overwrites the
        study's.
        """
        return WHOLE + self.grid.part()

    @property
    def experiments_folder(self) -> str:
        """The folder of experiments, which depend on no axis but the datasets."""
        return WHOLE + self.grid.part("dataset")

    def data_files(self, dataset: str) -> list[str]:
        """Return the files of a decoded dataset on which others depend."""
        others = (*ARRAYS, *WRITERS) if self.snakemake.has_storage else ()
        return [f"results/data/{dataset}/{name}" for name in ("meta.json", *others)]

    @property
    def current_folder(self) -> str:
        return self.folder.format(study=self.config["study"], scale=self.config["scale"])


def make_plan(config: dict, files: dict[Path, dict], snakemake: Invocation, checks: Checks) -> Plan:
    """Return the plan of a configuration; `files` has what Snakemake read of each of its files.

    UsageError for a mistake in the configuration, in a study or in an index of kept runs.
    """
    config = own_data.give(read_given(config, files))
    check_config(GIVEN, config)
    asked_trackers = trackers.chosen(config.get("log"))
    if snakemake.python == sys.executable:
        trackers.check_installed(asked_trackers)
    studies = read_studies()
    add_products(studies, config)

    def plan(studies: Studies) -> Plan:
        grid = Grid(studies, config)
        kept = read_indices(studies) if config.get("kept", True) else {}
        check_experiments(studies, checks)
        check_rules(studies)
        return Plan(config, grid.studies, grid, kept, snakemake)

    return use_studies(studies, plan, config["study"], partial(snakemake.say, level=WARNING))


def read_indices(studies: Mapping[str, Study]) -> dict[tuple[str, str], dict[str, Entry]]:
    found = {}
    for study, about in studies.items():
        try:
            for scale in about["scales"]:
                found[study, scale] = read_index(store_folder(study, scale))
        except UsageError as problem:
            raise problem.restated(str(problem), f"{study}.yaml") from None
    return found


def check_experiments(studies: Mapping[str, Study], checks: Checks) -> None:
    for study, about in studies.items():
        for scale, of in about["scales"].items():
            for name in checks.keys() & of.keys():
                with within(f"{study}.yaml: scales.{scale}.{name}"):
                    checks[name](of[name])


def check_rules(studies: Mapping[str, Study]) -> None:
    """Refuse a study that would have a rule of Snakemake with the name of another rule."""
    products = {name for about in studies.values() for name in about["products"]}
    seen = {*RULES, *(f"{kind}_table" for kind in COLLECTED), *name_rules("results", products)}
    for study, about in studies.items():
        own = name_rules(study, about["products"])
        if taken := sorted(seen.intersection(own)):
            raise UsageError(
                f"{study}.yaml: Snakemake has another rule called {taken[0]}: give the study, or "
                "its product, another name",
                where=f"{study}.yaml",
            )
        seen.update(own)


def name_rules(study: str, products: Iterable[str]) -> list[str]:
    """Return the names of the rules of a study and its products (`rules/report.smk`)."""
    return [study, *(f"{study}_{name}{one}" for name in products for one in ("", "_one"))]


def beside(folder: str, path: str) -> str:
    """Return a path of results/ in the same place below results/<folder>/, such as its log."""
    return path.replace("results/", f"results/{folder}/", 1)


def path_from_here(path: Path) -> Path:
    """Return a path relative to this folder, or as it is if it is not below this folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def find_place(plan: Plan) -> str:
    """Return the place of copies of checkpoints, or "": of each prefix of a storage its own."""
    place, prefix = plan.config.get("checkpoints") or "", plan.snakemake.place_of("")
    inside = prefix.partition("://")[2].strip("/")
    return f"{place.rstrip('/')}/{inside}" if place and inside else place


def variables(plan: Plan) -> dict[str, str]:
    """Return the variables of the environment with which the commands of all rules begin.

    A command is thus the same text on every machine: Snakemake reruns a job whose command has
    changed. Snakemake's own `shell.prefix` would change the rules of a workflow that has this one
    as a module, too.
    """
    config = plan.config
    is_warm = config["warm"] and not plan.snakemake.runs_one_job
    return {
        "FEDGRID_CODE": str(PACKAGE.parent),
        "FEDGRID_PYTHON": plan.snakemake.python,
        "FEDGRID_DEVICE": config["device"],
        "FEDGRID_BACKEND": config["backend"],
        "FEDGRID_COMPILE": config.get("compile", "auto"),
        "FEDGRID_TRACK": ",".join(trackers.chosen(config.get("log"))),
        "FEDGRID_DATA": config["data_root"],
        synced.VARIABLE: find_place(plan),
        "FEDGRID_KEEP_STATE_GB": str(config.get("keep_state_gb", 1)),
        STATES_READ: json.dumps(plan.grid.blocks_of_kind("interpolation")),
        "FEDGRID_WARM": str(os.getpid() if is_warm else ""),
    }
