"""What the grids of all studies need of the folder of results: their runs, and what these read."""

from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from fedgrid.runtime import own_data
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid
from fedgrid.study.paths import CELLS, RUN, input_paths
from fedgrid.study.protocol import runs_of_block
from fedgrid.study.reading import laid_over, read_config, read_studies

SHARED = ("partition", *CELLS)  # inputs that the stages of a run leave in results/


class Wanted(NamedTuple):
    """Runs by their folders in results/runs/, paths of inputs without ending, and last states."""

    runs: set[str]
    inputs: set[str]
    states: set[str]  # of runs that a product reads the last state of


def find_wanted(configs: list[Path]) -> Wanted:
    """Return what the grids of all studies need, with those that configurations ask for."""
    config = own_data.give(reduce(laid_over, map(read_config, configs), {}))
    everything = Grid(read_studies(), config)
    wanted = Wanted(set(), set(), set())
    for study, scale, grid in places(everything):
        reads = has_interpolation(everything.studies[study], grid)
        for names in runs_of(everything, study, scale, grid):
            run = everything.resolve(names)
            wanted.runs.add(RUN.format(**run["name"]))
            paths = input_paths(run)
            wanted.inputs.update(without_end(paths[one]) for one in SHARED if one in paths)
            if reads:
                first = everything.first_name(run)
                wanted.states.update({RUN.format(**run["name"]), RUN.format(**first)})
    return wanted


def places(everything: Grid) -> Iterator[tuple[str, str, str]]:
    """Yield study, scale and name of all grids."""
    for study, about in everything.studies.items():
        for scale, of in about["scales"].items():
            yield from ((study, scale, grid) for grid in of["grids"])


def runs_of(everything: Grid, study: str, scale: str, grid: str) -> Iterator[dict]:
    """Yield the runs of a grid as the study has them, and as the configuration asks for them."""
    blocks = everything.whole(study, scale, grid)
    with suppress(UsageError):  # the configuration may be of another study
        blocks = [*blocks, *everything.narrowed(study, scale, grid)]
    for block in blocks:
        yield from runs_of_block(block)


def has_interpolation(about: dict, grid: str) -> bool:
    """Whether a product of a study reads the interpolations of a grid, and these read states."""
    sources = (text for product in about["products"].values() for text in product["from"].values())
    return f"interpolation/{grid}" in sources


def without_end(path: str) -> str:
    """Return the path of an input without the ending of its file."""
    return path.removesuffix(".npz")
