"""List the runs of the grids in studies, as the configuration narrows or widens them.

A run is a (protocol, dataset, partition, method, seed) tuple of names. `resolve` (`resolving.py`)
replaces each name by its values. Every name is checked.
"""

from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from fedgrid.claim import (
    MARK,
    find_claim,
    needs_experiments,
    needs_kind,
    part_for_claim,
    split_grid,
)
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, known, listed, registered, shown, within
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
    check_protocol,
    check_whole_writers,
)
from fedgrid.study.options import Checker
from fedgrid.study.paths import COLLECTED
from fedgrid.study.products import check_product, list_needed_sources, product_module
from fedgrid.study.protocol import AXES, runs_of_block
from fedgrid.study.reading import merge_configs, read_config, read_studies
from fedgrid.study.resolving import Resolver, remember_answers
from fedgrid.study.selection import part_folder, read_axis
from fedgrid.study.stated import (
    Names,
    check_claims,
    check_front,
    check_kept_rows,
    check_labels,
    check_published,
    collect_names,
)
from fedgrid.study.sweeps import ALL_PROTOCOLS, check_sweep, check_used, expand_block

ASKED = "config.yaml or --config"  # where a user asks for names
OWN_AXES = ("protocol", "method")  # whose names a sweep can replace
OWN = ("protocols", "variants")  # what a configuration may add to the studies


def read_grid(*configs: Path) -> "Grid":
    """Read all studies, with the protocols and variants of configurations; later ones win."""
    given = reduce(merge_configs, map(read_config, configs), {})
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
        for study, entry in studies.items():
            self._check_study(study, entry)
        if "study" in self.config:  # an unknown name must fail even if the table exists already
            with within(ASKED):
                self._check_asked(self.config["study"], self.config["scale"])

    def _check_asked(self, study: str, scale: str) -> None:
        """Refuse unknown names in the configuration."""
        names = self._names(study, scale)
        for name in read_axis(self.config, "dataset")[0]:
            self._check_dataset(study, scale, name, {*names["dataset"], *own_data.entries()})
        check_sweep(self, "the configuration", self.sweep)
        check_used(self, self.sweep, self._with_asked(names))
        for name in self._scale(study, scale)["grids"]:
            self.narrow_blocks(study, scale, name)

    def _check_dataset(self, study: str, scale: str, name: str, datasets: set[str]) -> None:
        """Refuse a dataset that a scale does not have; say which scales have it, and how to add."""
        if name in datasets or name not in registered("datasets"):
            known(f"dataset of {study} at the {scale} scale", name, datasets)
            return
        scales = self.studies[study]["scales"]
        others = [other for other in scales if name in self._names(study, other)["dataset"]]
        have = f", or choose the scale {' or '.join(others)}, which has it" * bool(others)
        raise UsageError(
            f"no grid of {study} at the {scale} scale has the dataset {name}: choose "
            f"{', '.join(sorted(datasets))}, or add it with `dataset: +{name}`{have}"
        )

    # -- runs ------------------------------------------------------------------------------------

    def runs(self, study: str, scale: str, grid: str) -> list[dict[str, Any]]:
        """Return the names of every run of a grid, as the configuration narrows or widens it."""
        return [
            run for block in self.narrow_blocks(study, scale, grid) for run in runs_of_block(block)
        ]

    def _scale(self, study: str, scale: str) -> dict:
        scales = self.studies[known("study", study, self.studies)]["scales"]
        return scales[known("scale", scale, scales)]

    @remember_answers
    def _blocks(self, study: str, scale: str, grid: str) -> list[dict]:
        """Return a grid's blocks with the study's sweeps; for `claims@3` what claim 3 needs."""
        grids, entry = self._scale(study, scale)["grids"], self.studies[study]
        name, number = (grid, 0) if grid in grids else split_grid(grid)
        blocks = grids[known("grid", name, grids)]
        above = entry.get("sweep", {})
        blocks = [expand_block(self, b, merge_configs(above, b.get("sweep", {}))) for b in blocks]
        if not number:
            return blocks
        claim = find_claim(study, entry, number)
        return [part_for_claim(block, claim) for block in blocks]

    @remember_answers
    def narrow_blocks(self, study: str, scale: str, grid: str) -> list[dict[str, list]]:
        """Return a grid's blocks, narrowed or widened by the configuration.

        Each block has a list of names per axis. It keeps those of its names that are asked for. A
        name that no grid has, such as a method of your own, is added to all blocks that keep a
        name, or to all blocks if none keeps any. A name written with a plus is added to all blocks
        that keep a name. On the axes in its `first`, a block has only the first of these names. At
        the end the configuration's sweeps replace names by variants.
        """
        narrowed, names = [], self._names(study, scale)
        for block in self._blocks(study, scale, grid):
            wanted = select_first(block, {a: self._wanted(a, block, names) for a in AXES})
            if all(wanted.values()):
                wanted = expand_block(self, wanted, self.sweep)
                self._check_block(wanted)
                narrowed.append(wanted)
        return narrowed

    def whole_blocks(self, study: str, scale: str, grid: str) -> list[dict[str, list]]:
        """Return a grid's blocks as the study has them, whatever the configuration asks for."""
        blocks = self._blocks(study, scale, grid)
        return [select_first(block, {a: listed(block[a]) for a in AXES}) for block in blocks]

    @remember_answers
    def _names(self, study: str, scale: str) -> dict[str, set]:
        """Return all names of every axis in the grids of a scale."""
        names = self._scale(study, scale)["grids"]
        blocks = [block for grid in names for block in self._blocks(study, scale, grid)]
        return {axis: {n for block in blocks for n in listed(block[axis])} for axis in AXES}

    def _with_asked(self, names: dict[str, set]) -> dict[str, set]:
        """Add to the names of each axis those that the configuration asks for or adds."""
        return {axis: names[axis].union(*read_axis(self.config, axis)) for axis in names}

    def part(self, *axes: str) -> str:
        """Return the folder of products under this configuration (`selection.py`)."""
        return part_folder(self.config, *axes)

    def _wanted(self, axis: str, block: dict, all_names: dict[str, set]) -> list:
        """Return the names of an axis that a block has under the configuration."""
        asked, added = read_axis(self.config, axis)
        kept = self._kept(axis, asked, listed(block[axis]), all_names[axis])
        names = {*kept}
        return [*kept, *(name for name in added if name not in names)] if kept else []

    @staticmethod
    def _kept(axis: str, asked: list, own: list, all_names: set) -> list:
        """Return the names asked for that a block has, and those that no grid has."""
        if not asked:
            return own
        names = {*own}
        kept = [name for name in asked if name in names]
        if not (kept or all_names.isdisjoint(asked)):
            return kept
        return [name for name in asked if name in names or name not in all_names]

    # -- what a grid's products need -------------------------------------------------------------

    def list_protocols(self, blocks: list[dict]) -> dict[str, dict]:
        """Return the protocols of blocks by name, each with all fields and its `cells`."""
        names = sorted({name for block in blocks for name in block["protocol"]})
        return {name: self.protocol(name) | {"cells": self.cells(name)} for name in names}

    def fidelity(self, study: str, scale: str) -> dict[str, Any]:
        """Return the setting of the fidelity experiment, for the datasets asked for only."""
        setting = self._scale(study, scale)["fidelity"]
        asked, _ = read_axis(self.config, "dataset")
        images = {n: count for n, count in setting["images"].items() if n in (asked or [n])}
        return setting | {"images": images}

    def products(self, study: str, scale: str) -> list[str]:
        """Return the study's products for which the configuration leaves runs to draw."""
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
        """Return those sources of a product that the scale has, by the names of its arguments."""
        given, facts = self.studies[study]["products"][product]["from"], self._scale(study, scale)
        return {name: text for name, text in given.items() if has_source(facts, text)}

    def has_sources(self, study: str, scale: str, product: str) -> bool:
        """Whether the scale has the sources that a product needs; a scale may lack a grid."""
        entry = self.studies[study]["products"][product]
        available = self.sources(study, scale, product)
        needed = list_needed_sources(study, product, entry)
        return bool(available or not entry["from"]) and needed <= available.keys()

    def _is_there(self, study: str, scale: str, text: str) -> bool:
        kind, _, grid = text.partition("/")
        if kind == "fidelity":
            return bool(self.fidelity(study, scale)["images"])
        return kind not in COLLECTED or bool(self.narrow_blocks(study, scale, grid))

    def sources_of_claim(self, study: str, scale: str, product: str, number: int) -> dict[str, str]:
        """Return the sources that a product needs for one claim; none if nothing can be run."""
        claim = find_claim(study, self.studies[study], number)
        sources = {}
        for name, text in self.sources(study, scale, product).items():
            kind = text.partition("/")[0]
            if kind in COLLECTED:
                text = f"{text}{MARK}{number}"
                wanted = needs_kind(claim, kind)
            else:
                wanted = needs_experiments(claim)
            if wanted and self._is_there(study, scale, text):
                sources[name] = text
        return sources

    def blocks_of_kind(self, kind: str, study: str, scale: str) -> list[dict[str, list]]:
        """Return the blocks of those grids from which products read this kind of table."""
        scales = self.studies.get(study, {"scales": ()})["scales"]
        products = self.products(study, scale) if scale in scales else ()
        texts = {t for name in products for t in self.sources(study, scale, name).values()}
        grids = sorted(text.partition("/")[2] for text in texts if text.startswith(f"{kind}/"))
        return [block for grid in grids for block in self.narrow_blocks(study, scale, grid)]

    def check_product(self, study: str, scale: str, name: str) -> None:
        """Refuse a product of another scale, or for which the configuration leaves nothing."""
        if not self.has_sources(study, scale, name):
            given, facts = self.studies[study]["products"][name]["from"], self._scale(study, scale)
            lacks = [text for text in given.values() if not has_source(facts, text)]
            raise UsageError(
                f"{name} of {study} is not drawn at the {scale} scale, which has no "
                f"`{lacks[0].rpartition('/')[2]}`: choose another scale, or add it to this one"
            )
        for text in self.sources(study, scale, name).values():
            if not self._is_there(study, scale, text):
                asked = {axis: read_axis(self.config, axis)[0] for axis in AXES}
                given = (f"{a} {', '.join(map(str, names))}" for a, names in asked.items() if names)
                raise UsageError(
                    f"{name} of {study} has no runs at the {scale} scale with {', '.join(given)}: "
                    f"its source `{text}` has none of these; choose names that the study has at "
                    "this scale"
                )

    # -- checks ----------------------------------------------------------------------------------

    def _check_study(self, study: str, entry: dict) -> None:
        own = (self.config.get("products") or {}) if study == self.config.get("study") else {}
        with within(f"{study}.yaml"):
            self._check_sweep(entry.get("sweep", {}), list_blocks(entry))
            for scale, facts_of_scale in entry["scales"].items():
                for grid, blocks in facts_of_scale["grids"].items():
                    with within(f"scales.{scale}.grids.{grid}"):
                        self._check_grid(study, scale, grid, blocks)
            self._check_stated(study, entry)
        for name, facts in entry["products"].items():
            file = "config.yaml" if name in own else f"{study}.yaml"
            with within(f"{file}: products.{name}"):
                self._check_product(study, name, facts, entry)

    def _check_grid(self, study: str, scale: str, grid: str, blocks: list[dict]) -> None:
        """Refuse a grid with runs that are impossible."""
        for block in blocks:
            self._check_sweep(block.get("sweep", {}), [block])
        for block in self._blocks(study, scale, grid):
            self._check_block(block)

    def _check_sweep(self, sweep: dict, blocks: list[dict]) -> None:
        """Refuse a sweep of a name or a field that does not exist, or that no block has."""
        check_sweep(self, "the study", sweep)
        names = {name for block in blocks for axis in OWN_AXES for name in listed(block[axis])}
        for name in sweep:
            known("method or protocol of the grids, in `sweep`,", name, {ALL_PROTOCOLS, *names})

    def _check_stated(self, study: str, entry: dict) -> None:
        """Refuse unknown names in claims, published tables, labels and the front page."""
        published, judged = entry.get("published", {}), self._judged_grids(study, entry)
        check_published(published, self._names_in(study))
        check_claims(entry.get("claims", []), self._names_in(study, judged), published)
        for name in listed(entry.get("main")):
            self._check_name("protocol", "protocol of `main`", name)
        check_labels(entry.get("labels", {}), self)
        check_front(entry.get("front", {}), entry["products"])
        check_kept_rows(entry, self)

    def _names_in(self, study: str, grids: set[str] | None = None) -> Names:
        """Return the names in grids of a study at all scales, by default in all of its grids."""
        scales = self.studies[study]["scales"].items()
        places = [(scale, grid) for scale, facts in scales for grid in facts["grids"]]
        kept = [place for place in places if not grids or place[1] in grids]
        return collect_names(block for place in kept for block in self._blocks(study, *place))

    @staticmethod
    def _judged_grids(study: str, entry: dict) -> set[str]:
        """Return the grids of the products about claims; none if the study has no such product."""
        return {
            grid
            for name, facts in entry["products"].items()
            if source.literal(product_module(study, name, facts), "BY_CLAIM", False)
            for grid in list_grids(facts)
        }

    def _check_name(self, axis: str, what: str, name: str) -> None:
        """Raise a UsageError unless a protocol or method of this name exists."""
        if not self.knows(axis, name):
            known(what, name, self.protocols if axis == "protocol" else self.methods())

    def _check_product(self, study: str, name: str, facts: dict, entry: dict) -> None:
        """Refuse a source that no scale has, and unknown names in options."""
        check_product(study, name, facts)
        scales = entry["scales"]
        for key, text in facts["from"].items():
            with within(f"from.{key}"):
                check_source(text, scales)
        names = self._names_in(study, list_grids(facts))
        module = product_module(study, name, facts)
        Checker(self, names, entry.get("published", {})).check(module, facts.get("with", {}))

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


def select_first(block: dict, wanted: dict[str, list]) -> dict[str, list]:
    """Keep only the first name on each axis that is in the block's `first`."""
    return wanted | {axis: wanted[axis][:1] for axis in listed(block.get("first"))}


def list_blocks(study: dict) -> list[dict]:
    """Return the blocks of all grids of a study, as they are written."""
    grids = [grid for scale in study["scales"].values() for grid in scale["grids"].values()]
    return [block for grid in grids for block in grid]


def list_grids(product: dict) -> set[str]:
    """Return the grids that a product is drawn from."""
    texts = (text.partition("/") for text in product["from"].values())
    return {grid for kind, _, grid in texts if kind in COLLECTED}


def check_source(text: str, scales: dict[str, dict]) -> None:
    """Refuse a source of a product that no scale has."""
    if any(has_source(scale, text) for scale in scales.values()):
        return
    kind, _, rest = text.partition("/")
    if kind in COLLECTED:
        known(
            "grid",
            rest,
            dict.fromkeys(grid for scale in scales.values() for grid in scale["grids"]),
        )
    sources = [
        t for t, key in EXPERIMENTS.items() if any(key in facts for facts in scales.values())
    ]
    known("source", text, [*(f"{k}/<grid>" for k in COLLECTED), *sources])


def has_source(scale: dict, text: str) -> bool:
    """Whether a scale has the grid of a source kind/grid, or its experiment."""
    kind, _, grid = text.partition("/")
    return grid in scale["grids"] if kind in COLLECTED else EXPERIMENTS.get(text) in scale
