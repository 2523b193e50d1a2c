"""The runs of the grids in studies, as the configuration narrows or widens them. No torch in here.

A run is a (protocol, dataset, partition, method, seed) tuple of names. `resolve` (`resolving.py`)
replaces each name by its values. Every name is checked.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import fedgrid.claim as claims
from fedgrid.federation.protocols import changed_protocol
from fedgrid.runtime.code import own_data, source
from fedgrid.runtime.names import UsageError, known, listed, shown, within
from fedgrid.runtime.resolved import Fields, Named, Names
from fedgrid.study import checks, products, stated
from fedgrid.study.chosen import CHOOSING, check_seeds
from fedgrid.study.options import Checker
from fedgrid.study.paths import COLLECTED
from fedgrid.study.protocol import AXES, runs_of_block
from fedgrid.study.reading import GIVEN, merge_configs, read_config, read_studies, use_studies
from fedgrid.study.records import Block, Product, Scale, Study, Sweep, Wanted
from fedgrid.study.resolving import (
    ALL_PROTOCOLS,
    SWEPT,
    Resolver,
    check_entries,
    list_blocks,
    remember_answers,
)
from fedgrid.study.selection import part_folder, read_axis

OWN = ("protocols", "variants")  # what a configuration may add to the studies


def read_grid(*configs: Path) -> "Grid":
    """Return the studies with the protocols and variants of configurations; a later one wins."""
    given: dict[str, Any] = reduce(merge_configs, map(read_config, configs), {})
    if "datasets" in given:
        own_data.give(given)
    own = {key: given.get(key) or {} for key in OWN}
    return use_studies(read_studies(), lambda studies: Grid(studies, own))


def read_names(config: Path) -> Resolver:
    """Return what the names of methods and protocols stand for; grids are not checked."""
    own = read_config(config)
    return use_studies(read_studies(), lambda studies: Resolver(studies, own))


class Grid(Resolver):
    """The runs of all grids of the studies, as the configuration narrows or widens them.

    Raises a UsageError with the key and the nearest names for an unknown name. Otherwise Snakemake
    would say "Nothing to be done" and leave stale tables.
    """

    def __init__(self, studies: Mapping[str, Study], config: dict | None = None):
        self.config = config or {}
        self.sweep: Sweep = self.config.get("sweep") or {}
        super().__init__(studies, self.config)
        facts = [studies, [self.config.get(key) for key in OWN], own_data.entries()]
        source.check_once(facts, self._check_files)
        if "study" in self.config:  # an unknown name must fail even if the table exists already
            with within(GIVEN):
                self._check_asked(self.config["study"], self.config["scale"])

    def _check_asked(self, study: str, scale: str) -> None:
        """Refuse unknown names in the configuration."""
        there = self._names(study, scale)
        for name in read_axis(self.config, "dataset")[0]:
            self._check_dataset(study, scale, name, {*there["dataset"], *own_data.entries()})
        self.check_sweep("the configuration", self.sweep)
        asked = {axis: there[axis].union(*read_axis(self.config, axis)) for axis in there}
        for name, axes in self.sweep.items():
            of_method = self.knows("method", name) and {*axes} <= {*self.hyper_parameters(name)}
            axis = "method" if of_method else "protocol"
            if name not in (ALL_PROTOCOLS, *asked[axis]):
                raise UsageError(
                    f"`sweep` names the {axis} {name}, which no grid of this scale has: add it "
                    f"with `{axis}: +{name}`, or remove it from `sweep`"
                )
        for name in self._scale(study, scale)["grids"]:
            self.narrow_blocks(study, scale, name)

    def _check_dataset(self, study: str, scale: str, name: str, there: set[str]) -> None:
        """Refuse a dataset that a scale does not have; say which scales have it."""
        if name in there or name not in own_data.list_datasets():
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

    def runs(self, study: str, scale: str, grid: str) -> list[Names]:
        """Return every run of a grid by name, as the configuration narrows or widens it."""
        blocks = self.narrow_blocks(study, scale, grid)
        return [run for block in blocks for run in runs_of_block(block)]

    def _scale(self, study: str, scale: str) -> Scale:
        scales = self.studies.named(study)["scales"]
        return scales[known("scale", scale, scales)]

    @remember_answers
    def _blocks(self, study: str, scale: str, grid: str) -> list[Block]:
        """Return a grid's blocks after the study's sweeps; of `claims@3` those for claim 3."""
        grids, about = self._scale(study, scale)["grids"], self.studies[study]
        name, number = (grid, 0) if grid in grids else claims.split_grid(grid)
        blocks = []
        for block in grids[known("grid", name, grids)]:
            sweep = merge_configs(about.get("sweep", {}), block.get("sweep", {}))
            blocks.append(self.expand_block(block, sweep) | {"sweep": sweep})
        if not number:
            return blocks
        claim = claims.find_claim(study, about.get("claims", []), number)
        return [claims.part_for_claim(block, claim, self.tuned_names(study)) for block in blocks]

    @remember_answers
    def narrow_blocks(self, study: str, scale: str, grid: str) -> list[Wanted]:
        """Return a grid's blocks, each with a list of names per axis, as the configuration wants.

        A block keeps what it has of the names asked for; a name that the study sweeps stands for
        its variants. A name that no grid has, such as a method of your own, joins the blocks that
        keep something, or all blocks if none keeps anything. A name that was asked for with a plus
        joins all blocks that keep something. A choice (`chosen.py`) is joined by seeds only. Of the
        axes in its `first` a block takes one name, the first that is left. At last the sweeps of
        the configuration replace names by their variants.
        """
        narrowed, there = [], self._known_names(study, scale)
        for block in self._blocks(study, scale, grid):
            wanted = select_first(block, {a: self._wanted(a, block, there) for a in AXES})
            if all(wanted.values()):
                check_seeds(block.get("chosen", ""), block.get(CHOOSING, ()), wanted["seed"])
                wanted = self.expand_block(wanted, self.sweep)
                self._check_block(wanted)
                narrowed.append(wanted)
        return narrowed

    def whole_blocks(self, study: str, scale: str, grid: str) -> list[Wanted]:
        """Return a grid's blocks as the study has them, whatever the configuration asks for."""
        blocks = self._blocks(study, scale, grid)
        return [select_first(block, {a: listed(block[a]) for a in AXES}) for block in blocks]

    def judged_blocks(self, study: str, scale: str, grid: str) -> list[Wanted]:
        """Return a grid's whole blocks with the names that the study's claims have."""
        blocks = self.whole_blocks(study, scale, grid)
        for axis, known_as in self.tuned_names(study).items():
            for block in blocks:
                block[axis] = [*dict.fromkeys(known_as.get(n, n) for n in block[axis])]
        return blocks

    @remember_answers
    def tuned_names(self, study: str) -> dict[Named, dict[str, str]]:
        """Return, by axis, what the study's claims call tuned methods and protocols.

        That is a method's family, and a protocol without its tuned fields: `p` for `p-lr0.1`.
        """
        judging, scales = self.judging(study).values(), self.studies[study]["scales"]
        methods, protocols = (
            {name for scale in scales for name in self._names(study, scale)[axis]}
            for axis in ("method", "protocol")
        )
        over = {field for entry in judging for field in products.list_tuned(entry)}
        are_tuned = any(map(products.chooses_methods, judging))
        return {
            "method": {name: self.family(name) for name in methods} if are_tuned else {},
            "protocol": {name: self.without_fields(name, over) for name in protocols},
        }

    @remember_answers
    def _names(self, study: str, scale: str) -> dict[str, set]:
        """Return all names of every axis in the grids of a scale, after the study's sweeps."""
        names = self._scale(study, scale)["grids"]
        blocks = [block for grid in names for block in self._blocks(study, scale, grid)]
        return {axis: {n for block in blocks for n in listed(block[axis])} for axis in AXES}

    @remember_answers
    def _known_names(self, study: str, scale: str) -> dict[str, set]:
        """Return all names of every axis before and after the study's sweeps.

        A name that the configuration sweeps is new to the grids.
        """
        blocks = [block for of in self._scale(study, scale)["grids"].values() for block in of]
        written = {axis: {n for block in blocks for n in listed(block[axis])} for axis in AXES}
        swept = self._names(study, scale)
        return {
            axis: swept[axis] | {n for n in written[axis] if not self._is_swept(axis, n)}
            for axis in AXES
        }

    def _is_swept(self, axis: str, name: str) -> bool:
        return self.find_variants(axis, name, self.sweep) != [name]

    def part(self, *axes: str) -> str:
        """Return the folder of products under this configuration (`selection.py`)."""
        return part_folder(self.config, *axes)

    def _wanted(self, axis: str, block: Block, there: dict[str, set]) -> list:
        """Return the names of an axis that a block has under the configuration."""
        names, added = read_axis(self.config, axis)
        own = listed(block[axis])
        of_block, asked = {*own}, list[Any]()
        for name in names:  # it may stand for variants that the block has
            variants = [v for v in self.find_variants(axis, name, block["sweep"]) if v in of_block]
            asked += [name] if self._is_swept(axis, name) or not variants else variants
        if "chosen" in block and axis != "seed":
            return [name for name in asked or own if name in of_block]
        kept = self._kept(asked, own, there[axis])
        of_block = {*kept}
        return [*kept, *(name for name in added if name not in of_block)] if kept else []

    @staticmethod
    def _kept(asked: list, own: list, there: set) -> list:
        """Return what a block keeps of its own names, and those asked for that no grid has."""
        if not asked:
            return own
        names = {*own}
        kept = [name for name in asked if name in names]
        if not (kept or there.isdisjoint(asked)):
            return kept
        return [name for name in asked if name in names or name not in there]

    # -- what a grid's products need -------------------------------------------------------------

    def list_protocols(self, blocks: list[Wanted]) -> dict[str, Fields]:
        """Return the protocols of blocks by name, each with all fields and its `cells`."""
        names = sorted({name for block in blocks for name in block["protocol"]})
        return {name: {**self.protocol(name), "cells": self.cells(name)} for name in names}

    def experiment(self, study: str, scale: str, kind: str) -> dict[str, Any]:
        """Return the setting of an experiment, with images of the requested datasets only."""
        setting = self._scale(study, scale)[kind]
        if kind != "fidelity":
            return setting
        asked, _ = read_axis(self.config, "dataset")
        images = {n: count for n, count in setting["images"].items() if n in (asked or [n])}
        return setting | {"images": images}

    def products(self, study: str, scale: str) -> list[str]:
        """Return the study's products that the configuration leaves something to draw."""
        return [
            name
            for name in self.studies[study]["products"]
            if self.has_sources(study, scale, name) and not self._find_emptied(study, scale, name)
        ]

    def sources(self, study: str, scale: str, name: str) -> dict[str, str]:
        """Return the sources from which a product is drawn, by their names in its file.

        They are those that the scale has. One that the product can be drawn without is left out if
        the configuration leaves nothing of it.
        """
        needed, given = self._needed(study, name), self._given(study, scale, name)
        return {
            key: text
            for key, text in given.items()
            if key in needed or self._is_there(study, scale, text)
        }

    def _needed(self, study: str, name: str) -> set[str]:
        entry = self.studies[study]["products"][name]
        module = products.product_module(study, name, entry)
        needed, possible = products.list_parameters(module, entry.get("with", {}))
        return {key for key in entry["from"] if possible is None or key in needed}

    def _given(self, study: str, scale: str, name: str) -> dict[str, str]:
        given, there = self.studies[study]["products"][name]["from"], self._scale(study, scale)
        return {key: text for key, text in given.items() if has_source(there, text)}

    def _find_emptied(self, study: str, scale: str, name: str) -> str:
        """Return a source that a product lacks because of the configuration; "" if there is none.

        It is one without which the product is not drawn, or the first if all are empty.
        """
        given, there = self._given(study, scale, name), self.sources(study, scale, name)
        lacks = [text for text in there.values() if not self._is_there(study, scale, text)]
        return next(iter(lacks or ([] if there else given.values())), "")

    def has_sources(self, study: str, scale: str, name: str) -> bool:
        """Whether the scale has what a product is drawn from; not every scale has every grid."""
        there = self._given(study, scale, name)
        is_drawn_of_none = not self.studies[study]["products"][name]["from"]
        return bool(there or is_drawn_of_none) and self._needed(study, name) <= there.keys()

    def _is_there(self, study: str, scale: str, text: str) -> bool:
        kind, _, grid = text.partition("/")
        if kind == "fidelity":
            return bool(self.experiment(study, scale, kind)["images"])
        return kind not in COLLECTED or bool(self.narrow_blocks(study, scale, grid))

    def sources_of_claim(self, study: str, scale: str, name: str, number: int) -> dict[str, str]:
        """Return the sources that a product needs for one claim; none if nothing can be run."""
        claim = claims.find_claim(study, self.studies[study].get("claims", []), number)
        found = {}
        for key, text in self.sources(study, scale, name).items():
            kind = text.partition("/")[0]
            wanted = claims.needs_experiments(claim)
            if kind in COLLECTED:
                text = f"{text}{claims.MARK}{number}"
                wanted = claims.needs_kind(claim, kind)
            if wanted and self._is_there(study, scale, text):
                found[key] = text
        return found

    def blocks_of_kind(self, kind: str) -> list[Wanted]:
        """Return the blocks of all grids of which a product of a study reads this kind of table.

        A block also has the names under which its runs are trained (`first_name`).
        """
        places = [
            (study, scale, text.partition("/")[2])
            for study, about in self.studies.items()
            for text in list_sources(about)
            for scale, of in about["scales"].items()
            if text.startswith(f"{kind}/") and has_source(of, text)
        ]
        return [self._with_first(b) for place in places for b in self.all_blocks(*place)]

    def all_blocks(self, study: str, scale: str, grid: str) -> list[Wanted]:
        """Return a grid's blocks as the study has them, and those that the configuration wants."""
        blocks = self.whole_blocks(study, scale, grid)
        with suppress(UsageError):  # the configuration may be of another study
            asked = self.narrow_blocks(study, scale, grid)
            blocks = [*blocks, *(block for block in asked if block not in blocks)]
        return blocks

    def _with_first(self, block: Wanted) -> Wanted:
        one = block | {"partition": block["partition"][:1], "seed": block["seed"][:1]}
        firsts = [self.first_name(self.resolve(run)) for run in runs_of_block(one)]
        return block | {a: [*dict.fromkeys([*block[a], *(f[a] for f in firsts)])] for a in SWEPT}

    def check_product(self, study: str, scale: str, name: str) -> None:
        """Refuse a product of another scale, or for which the configuration leaves nothing."""
        there = self._scale(study, scale)
        if not self.has_sources(study, scale, name):
            given = self.studies[study]["products"][name]["from"]
            lacks = [text for text in given.values() if not has_source(there, text)]
            raise UsageError(
                f"{name} of {study} is not drawn at the {scale} scale, which has no "
                f"`{lacks[0].rpartition('/')[2]}`: choose another scale, or add it to this one"
            )
        if not (text := self._find_emptied(study, scale, name)):
            return
        grid = text.partition("/")[2]
        if chooses := there.get("awaits", {}).get(grid):
            raise UsageError(
                f"the grid {grid} of {study} has the runs that `{chooses}` chooses, and none are "
                f"chosen at the {scale} scale: make results/{chooses}.csv, and then run `python "
                f"-m fedgrid choose {study} {scale} {chooses}`"
            )
        asked = {axis: read_axis(self.config, axis)[0] for axis in AXES}
        chosen = (f"{a} {', '.join(map(str, names))}" for a, names in asked.items() if names)
        raise UsageError(
            f"{name} of {study} has no runs at the {scale} scale with {', '.join(chosen)}: "
            f"its source `{text}` has none of these; choose names that the study has at "
            "this scale"
        )

    # -- checks ----------------------------------------------------------------------------------

    def _check_files(self) -> None:
        """Refuse what is wrong in the files of studies, and in the configuration's entries."""
        for file, about in self.files.items():
            with within(file):
                check_entries(about, self)
        for study, about in self.studies.items():
            self._check_study(study, about)

    def _check_study(self, study: str, about: Study) -> None:
        own = (self.config.get("products") or {}) if study == self.config.get("study") else {}
        with within(f"{study}.yaml"):
            self._check_sweep(about.get("sweep", {}), list_blocks(about))
            for scale, of in about["scales"].items():
                for grid, blocks in of["grids"].items():
                    with within(f"scales.{scale}.grids.{grid}"):
                        for block in blocks:
                            self._check_sweep(block.get("sweep", {}), [block])
                        for block in self._blocks(study, scale, grid):
                            self._check_block(block)
            self._check_stated(study, about)
        for name, entry in about["products"].items():
            file = GIVEN if name in own else f"{study}.yaml"
            with within(f"{file}: products.{name}"):
                self._check_product(study, name, entry)

    def _check_sweep(self, sweep: Sweep, blocks: list[Block]) -> None:
        self.check_sweep("the study", sweep)
        there = {name for block in blocks for axis in SWEPT for name in listed(block[axis])}
        for name in sweep:
            known("method or protocol of the grids, in `sweep`,", name, {ALL_PROTOCOLS, *there})

    def _check_stated(self, study: str, about: Study) -> None:
        """Refuse unknown names in what the study states about its runs."""
        published = about.get("published", {})
        judged = {grid for entry in self.judging(study).values() for grid in list_grids(entry)}
        stated.check_published(published, self._names_in(study))
        names = self._names_in(study, judged)
        for axis, known_as in self.tuned_names(study).items():
            names[axis].update(known_as.values())
        stated.check_claims(about.get("claims", []), names, published)
        stated.check_claim_numbers(about)
        for name in listed(about.get("main")):
            self.check_name("protocol", name, "protocol of `main`")
        stated.check_labels(about, self)
        stated.check_kept_rows(about, self)

    def _names_in(self, study: str, grids: set[str] | None = None) -> stated.GridNames:
        """Return the names in grids of a study at all scales, by default in all of its grids."""
        scales = self.studies[study]["scales"].items()
        places = [(scale, grid) for scale, of in scales for grid in of["grids"]]
        kept = [place for place in places if not grids or place[1] in grids]
        return stated.collect_names(
            block for place in kept for block in self._blocks(study, *place)
        )

    def judging(self, study: str) -> dict[str, Product]:
        """Return the products about claims, which can be drawn for one claim."""
        return {
            name: entry
            for name, entry in self.studies[study]["products"].items()
            if source.literal(products.product_module(study, name, entry), "BY_CLAIM", False)
        }

    def _check_product(self, study: str, name: str, entry: Product) -> None:
        """Refuse a source that no scale has, and unknown names in options."""
        about = self.studies[study]
        checks.check_length("product", name)
        products.check_product(study, name, entry)
        for key, text in entry["from"].items():
            with within(f"from.{key}"):
                check_source(text, about["scales"])
        there = self._names_in(study, list_grids(entry))
        if products.chooses_methods(entry):
            there["method"] |= {*map(self.family, there["method"])}
        module = products.product_module(study, name, entry)
        Checker(self, there, about.get("published", {})).check(module, entry.get("with", {}))

    def check_conditions(self, block: Mapping[str, Any]) -> None:
        """Refuse protocols, datasets and partitions that are unknown, or do not go together."""
        for axis in AXES:
            for name in listed(block[axis]):
                checks.check_length(axis, str(name))
        protocols, datasets, partitions, *_ = (listed(block[axis]) for axis in AXES)
        for name, dataset in product(protocols, datasets):
            self._check_protocol(name, dataset)
        for partition, dataset in product(partitions, datasets):
            checks.check_partition(str(partition), dataset)
        for name, partition, dataset in product(protocols, partitions, datasets):
            checks.check_whole_writers(name, self.protocol(name), str(partition), dataset)

    def _check_block(self, block: Mapping[str, Any]) -> None:
        for axis in AXES:
            if not listed(block.get(axis)):
                raise UsageError(f"a grid needs a {axis}")
        self.check_conditions(block)
        protocols, datasets, _, methods, seeds = (listed(block[axis]) for axis in AXES)
        for name, dataset, protocol in product(methods, datasets, protocols):
            self._check_method(name, dataset, protocol)
        for axis in AXES:
            names = [*map(str, listed(block[axis]))]
            checks.check_twice(axis, names, [self.meaning(axis, name) for name in names])
            checks.check_case(axis, names)
        for seed in seeds:
            if type(seed) is not int or seed < 0:  # True is an int too
                raise UsageError(f"seed: {shown(repr(seed))} is not a whole number of at least 0")

    @remember_answers  # the blocks of a study share most of their names
    def _check_protocol(self, name: str, dataset: str) -> None:
        self.check_name("dataset", dataset)
        checks.check_protocol(name, self.protocol(name), dataset)

    @remember_answers
    def _check_method(self, name: str, dataset: str, of: str) -> None:
        method, protocol = self.method(name, dataset), self.protocol(of)
        own = self.own_fields(protocol, method)
        checks.check_method(name, method, changed_protocol(protocol, own), dataset)


def select_first(block: Mapping[str, Any], wanted: Wanted) -> Wanted:
    """Return the names by axis, with only the first one of each axis in the block's `first`."""
    return wanted | {axis: wanted[axis][:1] for axis in listed(block.get("first"))}


def list_grids(entry: Product) -> set[str]:
    """Return the grids that a product is drawn from."""
    texts = (text.partition("/") for text in entry["from"].values())
    return {grid for kind, _, grid in texts if kind in COLLECTED}


def list_sources(about: Study) -> list[str]:
    """Return the sources of a study's products, each once."""
    texts = (text for entry in about["products"].values() for text in entry["from"].values())
    return [*dict.fromkeys(texts)]


def check_source(text: str, scales: dict[str, Scale]) -> None:
    """Refuse a source of a product that no scale has."""
    if any(has_source(scale, text) for scale in scales.values()):
        return
    kind, _, grid = text.partition("/")
    if kind in COLLECTED:
        known("grid", grid, dict.fromkeys(name for of in scales.values() for name in of["grids"]))
    there = [t for t, key in checks.EXPERIMENTS.items() if any(key in s for s in scales.values())]
    known("source", text, [*(f"{k}/<grid>" for k in COLLECTED), *there])


def has_source(scale: Scale, text: str) -> bool:
    """Whether a scale has the grid of a source kind/grid, or its experiment."""
    kind, _, grid = text.partition("/")
    return grid in scale["grids"] if kind in COLLECTED else checks.EXPERIMENTS.get(text) in scale
