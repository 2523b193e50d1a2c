"""Find what the grids of all studies need in the folder of results: runs, and their inputs."""

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Names, Run
from fedgrid.study.grid import Grid
from fedgrid.study.paths import CELLS, RUN, input_paths
from fedgrid.study.protocol import runs_of_block
from fedgrid.study.reading import add_products, merge_configs, read_config, read_studies

SHARED = ("partition", *CELLS)  # inputs that the stages of a run leave in results/


class Wanted(NamedTuple):
    """What grids need: runs by their folder in results/runs/, and inputs by path without suffix."""

    runs: set[str]
    inputs: set[str]
    states: set[str]  # runs whose last state a product reads


def find_wanted(configs: list[Path]) -> Wanted:
    """Find what the grids of all studies need, and what the configurations ask for.

    UsageError for a configuration with a study and no scale.
    """
    everything = read_grids(configs)
    wanted = Wanted(set(), set(), set())
    for study, scale, grid in list_grids(everything):
        products = everything.studies[study]["products"].values()
        reads = any(f"interpolation/{grid}" in product["from"].values() for product in products)
        for names in list_runs(everything, study, scale, grid):
            for run in add_first(everything, names):
                name, paths = RUN.format(**run["name"]), input_paths(run)
                wanted.runs.add(name)
                found = (paths[stage].removesuffix(".npz") for stage in SHARED if stage in paths)
                wanted.inputs.update(found)
                wanted.states.update([name] if reads else ())
    return wanted


def read_grids(configs: list[Path]) -> Grid:
    """Read the grids of all studies, and add the configuration's products to its study."""
    config = own_data.give(reduce(merge_configs, map(read_config, configs), {}))
    studies = read_studies()
    for left_out in studies.left_out:
        studies.named(left_out)  # whose runs would seem to be needed by nobody
    if "study" in config:
        if "scale" not in config:
            files = ", ".join(map(str, configs))
            raise UsageError(
                f"{files}: there is a `study`, but no `scale`: name config.yaml first with --config"
            )
        add_products(studies, config)
    return Grid(studies, config)


def add_first(everything: Grid, names: Names) -> list[Run]:
    """Resolve a run; if it is a link to another run, return both, as no grid may have the other."""
    run = everything.resolve(names)
    first = everything.first_name(run)
    return [run] if first == run["name"] else [run, everything.resolve(first)]


def list_grids(everything: Grid) -> Iterator[tuple[str, str, str]]:
    """Yield study, scale and name of all grids."""
    for study, entry in everything.studies.items():
        for scale, facts in entry["scales"].items():
            yield from ((study, scale, grid) for grid in facts["grids"])


def list_runs(everything: Grid, study: str, scale: str, grid: str) -> Iterator[Names]:
    """Yield the runs of a grid: those of the study, and those that the configuration asks for."""
    for block in everything.all_blocks(study, scale, grid):
        yield from runs_of_block(block)
