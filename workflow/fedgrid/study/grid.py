"""The runs of the grids in studies, as the configuration narrows or widens them. No torch in here.

A run is a (protocol, dataset, partition, method, seed) tuple of names. `resolve` (`resolving.py`)
replaces each name by its values. Every name is checked.
"""

from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from fedgrid.runtime import own_data
from fedgrid.runtime.names import UsageError, known, listed, registered, shown
from fedgrid.study.checks import (
    EXPERIMENTS,
    check_blocks,
    check_case,
    check_cohort,
    check_equations,
    check_evaluation,
    check_local,
    check_model,
    check_needs,
    check_partition,
    check_printed,
    check_protocol,
    check_type,
    check_whole_writers,
)
from fedgrid.study.claims import (
    MARK,
    check_others,
    find_claim,
    needs_experiments,
    needs_kind,
    part_for_claim,
    split_grid,
)
from fedgrid.study.paths import COLLECTED
from fedgrid.study.products import check_product, needed_sources
from fedgrid.study.protocol import AXES, runs_of_block
from fedgrid.study.reading import laid_over, read_config, read_studies
from fedgrid.study.resolving import Resolver
from fedgrid.study.selection import axis_values, part_folder
from fedgrid.study.sweeps import check_sweep, check_used, expand_block

OWN = ("protocols", "variants")  # what a configuration may add to the studies


def configured(*configs: Path) -> "Grid":
    """Return the studies with the protocols and variants of configurations; a later one wins."""
    given = reduce(laid_over, map(read_config, configs), {})
    if "datasets" in given:
        own_data.give(given)
    return Grid(read_studies(), {key: given.get(key) or {} for key in OWN})


class Grid(Resolver):
    """The runs of all grids of the studies, as the configuration narrows or widens them.

    Raises a UsageError with the key and the nearest names for an unknown name. Otherwise Snakemake
    would say "Nothing to be done" and leave stale tables.
    """

    def __init__(self, studies: dict[str, dict], config: dict | None = None):
        self.studies, self.config = studies, config or {}
        self.sweep: dict[str, dict[str, list]] = self.config.get("sweep") or {}
        super().__init__(studies, self.config)
        for study, about in studies.items():
            self._check_study(study, about)
        if "study" in self.config:  # an unknown name must fail even if the table exists already
            study, scale = self.config["study"], self.config["scale"]
            there = self._names(study, scale)
            for name in axis_values(self.config, "dataset")[0]:
                self._check_dataset(study, scale, name, {*there["dataset"], *own_data.entries()})
            check_sweep(self, "config.yaml", self.sweep)
            check_used(self, self.sweep, self._with_asked(there))
            for name in self._scale(study, scale)["grids"]:
                self.narrowed(study, scale, name)

    def _check_dataset(self, study: str, scale: str, name: str, there: set[str]) -> None:
        """Refuse a dataset that a scale does not have; say which scales have it, and how to add."""
        if name in there or name not in registered("datasets"):
            known(f"dataset of {study} at the {scale} scale", name, there)
            return
        scales = self.studies[study]["scales"]
        others = [other for other in scales if name in self._names(study, other)["dataset"]]
        have = f", or choose the scale {' or '.join(others)}, which has it" * bool(others)
        raise UsageError(
            f"no grid of {study} at the {scale} scale has the dataset {name}: choose "
            f"{', '.join(sorted(there))}, or add it with `dataset: +{name}`{have}"
        )

    # -- runs ------------------------------------------------------------------------------------

    def runs(self, study: str, scale: str, grid: str) -> list[dict[str, Any]]:
        """Return every run of a study's grid by name, as the configuration narrows or widens it."""
        return [run for block in self.narrowed(study, scale, grid) for run in runs_of_block(block)]

    def _scale(self, study: str, scale: str) -> dict:
        scales = self.studies[known("study", study, self.studies)]["scales"]
        return scales[known("scale", scale, scales)]

    def _blocks(self, study: str, scale: str, grid: str) -> list[dict]:
        """Return a grid's blocks, with the study's own sweeps; of `claims@3` those for claim 3."""
        grids, about = self._scale(study, scale)["grids"], self.studies[study]
        name, number = (grid, 0) if grid in grids else split_grid(grid)
        blocks = grids[known("grid", name, grids)]
        above = about.get("sweep", {})
        blocks = [expand_block(self, b, laid_over(above, b.get("sweep", {}))) for b in blocks]
        if not number:
            return blocks
        claim = find_claim(study, about, number)
        return [part_for_claim(block, claim) for block in blocks]

    def narrowed(self, study: str, scale: str, grid: str) -> list[dict[str, list]]:
        """Return a grid's blocks, each with a list of names per axis, as the configuration wants.

        A block keeps what it has of the names asked for. A name that no grid has, such as a method
        of your own, joins the blocks that keep something, or all blocks if none keeps anything. A
        name that was asked for with a plus joins all blocks that keep something. Of the axes in its
        `first` a block takes one name, the first that is left. At last the sweeps of the
        configuration replace names by their variants.
        """
        narrowed, there = [], self._names(study, scale)
        for block in self._blocks(study, scale, grid):
            wanted = first_names(block, {a: self._wanted(a, block, there) for a in AXES})
            if all(wanted.values()):
                wanted = expand_block(self, wanted, self.sweep)
                self._check_block(wanted)
                narrowed.append(wanted)
        return narrowed

    def whole(self, study: str, scale: str, grid: str) -> list[dict[str, list]]:
        """Return a grid's blocks as the study has them, whatever the configuration asks for."""
        blocks = self._blocks(study, scale, grid)
        return [first_names(block, {a: listed(block[a]) for a in AXES}) for block in blocks]

    def _names(self, study: str, scale: str) -> dict[str, set]:
        """Return all names of every axis in the grids of a scale."""
        names = self._scale(study, scale)["grids"]
        blocks = [block for grid in names for block in self._blocks(study, scale, grid)]
        return {axis: {n for block in blocks for n in listed(block[axis])} for axis in AXES}

    def _with_asked(self, there: dict[str, set]) -> dict[str, set]:
        """Return names of axes with those that the configuration asks for or adds."""
        return {axis: there[axis].union(*axis_values(self.config, axis)) for axis in there}

    def part(self, *axes: str) -> str:
        """Return the folder of products under this configuration (`selection.py`)."""
        return part_folder(self.config, *axes)

    def _wanted(self, axis: str, block: dict, there: dict[str, set]) -> list:
        """Return the names of an axis that a block has under the configuration."""
        asked, added = axis_values(self.config, axis)
        kept = self._kept(axis, asked, listed(block[axis]), there[axis])
        return [*kept, *(name for name in added if name not in kept)] if kept else []

    @staticmethod
    def _kept(axis: str, asked: list, own: list, there: set) -> list:
        """Return what a block keeps of its own names, and those asked for that no grid has."""
        if not asked:
            return own
        kept = [name for name in asked if name in own]
        if not (kept or there.isdisjoint(asked)):
            return kept
        return [name for name in asked if name in own or name not in there]

    # -- what a grid's products need -------------------------------------------------------------

    def protocols_of(self, blocks: list[dict]) -> dict[str, dict]:
        """Return the protocols of blocks by name, each with all fields and its `cells`."""
        names = sorted({name for block in blocks for name in block["protocol"]})
        return {name: self.protocol(name) | {"cells": self.cells(name)} for name in names}

    def fidelity(self, study: str, scale: str) -> dict[str, Any]:
        """Return the setting of the fidelity study, with images of the requested datasets only."""
        setting = self._scale(study, scale)["fidelity"]
        asked, _ = axis_values(self.config, "dataset")
        images = {n: count for n, count in setting["images"].items() if n in (asked or [n])}
        return setting | {"images": images}

    def products(self, study: str, scale: str) -> list[str]:
        """Return the study's products that the configuration leaves something to draw."""
        return [
            name
            for name in self.studies[study]["products"]
            if self.has_sources(study, scale, name)
            and all(
                self._is_there(study, scale, text)
                for text in self.sources(study, scale, name).values()
            )
        ]

    def sources(self, study: str, scale: str, product: str) -> dict[str, str]:
        """Return those sources of a product that the scale has, by their names in its file."""
        given, there = self.studies[study]["products"][product]["from"], self._scale(study, scale)
        return {name: text for name, text in given.items() if has_source(there, text)}

    def has_sources(self, study: str, scale: str, product: str) -> bool:
        """Whether the scale has what a product is drawn from; not every scale has every grid."""
        about = self.studies[study]["products"][product]
        there = self.sources(study, scale, product)
        needed = needed_sources(study, product, about)
        return bool(there or not about["from"]) and needed <= there.keys()

    def _is_there(self, study: str, scale: str, text: str) -> bool:
        kind, _, grid = text.partition("/")
        if kind == "fidelity":
            return bool(self.fidelity(study, scale)["images"])
        return kind not in COLLECTED or bool(self.narrowed(study, scale, grid))

    def sources_of_claim(self, study: str, scale: str, product: str, number: int) -> dict[str, str]:
        """Return the sources that a product needs for one claim; none if nothing can be run."""
        claim = find_claim(study, self.studies[study], number)
        found = {}
        for name, text in self.sources(study, scale, product).items():
            kind = text.partition("/")[0]
            if kind in COLLECTED:
                text = f"{text}{MARK}{number}"
                wanted = needs_kind(claim, kind)
            else:
                wanted = needs_experiments(claim)
            if wanted and self._is_there(study, scale, text):
                found[name] = text
        return found

    def check_product(self, study: str, scale: str, name: str) -> None:
        """Refuse a product of another scale, or for which the configuration leaves nothing."""
        if not self.has_sources(study, scale, name):
            given, there = self.studies[study]["products"][name]["from"], self._scale(study, scale)
            lacks = [text for text in given.values() if not has_source(there, text)]
            raise UsageError(
                f"{name} of {study} is not drawn at the {scale} scale, which has no "
                f"`{lacks[0].rpartition('/')[2]}`: choose another scale, or add it to this one"
            )
        for text in self.sources(study, scale, name).values():
            if not self._is_there(study, scale, text):
                asked = {axis: axis_values(self.config, axis)[0] for axis in AXES}
                given = (f"{a} {', '.join(map(str, names))}" for a, names in asked.items() if names)
                raise UsageError(
                    f"{name} of {study} has no runs at the {scale} scale with {', '.join(given)}: "
                    f"its source `{text}` has none of these; choose names that the study has at "
                    "this scale"
                )

    # -- checks ----------------------------------------------------------------------------------

    def _check_study(self, study: str, about: dict) -> None:
        check_sweep(self, f"{study}.yaml", about.get("sweep", {}))
        for name, facts in about["products"].items():
            self._check_product(f"{study}: {name}", study, name, facts, about["scales"])
        for scale, grids in about["scales"].items():
            for name, blocks in grids["grids"].items():
                for block in blocks:
                    check_sweep(self, f"{study}.yaml: {name}", block.get("sweep", {}))
                for block in self._blocks(study, scale, name):
                    self._check_block(block)
        for number, claim in enumerate(about.get("claims", []), start=1):
            if not {"least", "most"} & claim.keys():
                needs = "`least`, `most` or both"
                raise UsageError(f"{study}.yaml: claims: number {number} needs {needs}")
            check_others(f"{study}.yaml: claims: number {number}", claim)
            for bound in {"least", "most"} & claim.keys():
                check_type(f"{study}.yaml: claims: number {number}: {bound}", claim[bound], 1.0)
        for name, table in about.get("published", {}).items():
            for method in table.get("rows", {}):
                self._check_name("method", f"method published in {study}", method)
            check_printed(f"{study}.yaml: published.{name}", table, self.protocols)
        for name in listed(about.get("main")):
            known(f"protocol of `main` in {study}.yaml", name, self.protocols)

    def _check_name(self, axis: str, what: str, name: str) -> None:
        """Raise a UsageError unless a protocol or method of this name exists."""
        if not self.knows(axis, name):
            known(what, name, self.protocols if axis == "protocol" else self.methods())

    @staticmethod
    def _check_product(where: str, study: str, name: str, facts: dict, scales: dict) -> None:
        """Refuse a source that no scale has."""
        check_product(where, study, name, facts)
        for text in facts["from"].values():
            kind, _, rest = text.partition("/")
            if any(has_source(scale, text) for scale in scales.values()):
                continue
            if kind in COLLECTED:
                grids = dict.fromkeys(name for scale in scales.values() for name in scale["grids"])
                known(f"grid of {where}", rest, grids)
            there = [
                t for t, key in EXPERIMENTS.items() if any(key in of for of in scales.values())
            ]
            known(f"source of {where}", text, [*(f"{k}/<grid>" for k in COLLECTED), *there])

    def _check_block(self, block: dict) -> None:
        for axis in AXES:
            if not listed(block.get(axis)):
                raise UsageError(f"a grid needs a {axis}")
        for name, dataset in product(listed(block["protocol"]), listed(block["dataset"])):
            known("dataset", dataset, registered("datasets"))
            check_protocol(name, self.protocol(name), dataset)
        for name, dataset in product(listed(block["partition"]), listed(block["dataset"])):
            check_partition(str(name), dataset)
        for name, partition in product(listed(block["protocol"]), listed(block["partition"])):
            check_whole_writers(name, self.protocol(name), str(partition))
        for name, dataset in product(listed(block["method"]), listed(block["dataset"])):
            method = self.method(name, dataset)
            check_needs(name, method, dataset)
            for protocol in map(self.protocol, listed(block["protocol"])):
                check_model(name, method, protocol["model"])
                check_evaluation(name, method, protocol)
                check_cohort(name, method, protocol)
                check_blocks(name, method, protocol["model"])
                own = self.own_fields(protocol, method)
                check_local(f"method `{name}`", protocol | own | {"by_method": {}})
                check_equations(name, method, protocol | own)
        check_case(listed(block["method"]))
        for seed in listed(block["seed"]):
            if type(seed) is not int or seed < 0:  # True is an int too
                raise UsageError(f"seed: {shown(repr(seed))} is not a whole number of at least 0")


def first_names(block: dict, wanted: dict[str, list]) -> dict[str, list]:
    """Return the names by axis, with only the first one of each axis in the block's `first`."""
    return wanted | {axis: wanted[axis][:1] for axis in listed(block.get("first"))}


def has_source(scale: dict, text: str) -> bool:
    """Whether a scale has the grid of a source kind/grid, or its experiment."""
    kind, _, grid = text.partition("/")
    return grid in scale["grids"] if kind in COLLECTED else EXPERIMENTS.get(text) in scale
