"""The runs that the names in studies stand for; every name is checked. No torch in here.

A run is a (protocol, dataset, partition, method, seed) tuple of names. `resolve` replaces each name
by its values: the protocol's fields, the method's files and all hyper-parameters.
"""

import re
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from fedgrid.partitions import parse_name
from fedgrid.runtime import contract, source
from fedgrid.runtime.names import UsageError, known, listed, registered, shown
from fedgrid.study.checks import (
    EXPERIMENTS,
    check_keywords,
    check_model,
    check_printed,
    check_protocol,
    check_type,
)
from fedgrid.study.paths import COLLECTED, SUMMED
from fedgrid.study.products import check_product
from fedgrid.study.protocol import AXES, PROTOCOL, runs_of_block
from fedgrid.study.reading import laid_over, read_config, read_studies

OWN = ("protocols", "variants")  # what a configuration may add to the studies


def configured(*configs: Path) -> "Grid":
    """Return the studies with the protocols and variants of configurations; a later one wins."""
    given = reduce(laid_over, map(read_config, configs), {})
    return Grid(read_studies(), {key: given.get(key) or {} for key in OWN})


class Grid:
    """All names of the studies and the configuration.

    Raises a UsageError with the key and the nearest names for an unknown name. Otherwise Snakemake
    would say "Nothing to be done" and leave stale tables.
    """

    def __init__(self, studies: dict[str, dict], config: dict | None = None):
        self.studies, self.config = studies, config or {}
        sources = {**studies, "config.yaml": self.config}
        self.protocols = self._merged("protocols", sources)
        self.variants = self._merged("variants", sources)
        self.tuned = self._merged("tuned", studies)
        self._check_hyper_parameters()
        for study, about in studies.items():
            self._check_study(study, about)
        if "study" in self.config:  # an unknown name must fail even if the table exists already
            study, scale = self.config["study"], self.config["scale"]
            for name in axis_values(self.config, "dataset"):
                there = self._names(study, scale)["dataset"]
                known(f"dataset of {study} at the {scale} scale", name, there)
            for name in self._scale(study, scale)["grids"]:
                self.narrowed(study, scale, name)

    @staticmethod
    def _merged(key: str, sources: dict[str, dict]) -> dict[str, dict]:
        merged: dict[str, dict] = {}
        for name, entries in ((n, s.get(key) or {}) for n, s in sources.items()):
            for entry, value in entries.items():
                if merged.setdefault(entry, value) != value:
                    raise UsageError(f"{name}: {key}.{entry} already means something else")
        return merged

    # -- runs ------------------------------------------------------------------------------------

    def runs(self, study: str, scale: str, grid: str) -> list[dict[str, Any]]:
        """Return every run of a study's grid by name, as the configuration narrows or widens it."""
        return [run for block in self.narrowed(study, scale, grid) for run in runs_of_block(block)]

    def _scale(self, study: str, scale: str) -> dict:
        scales = self.studies[known("study", study, self.studies)]["scales"]
        return scales[known("scale", scale, scales)]

    def _blocks(self, study: str, scale: str, grid: str) -> list[dict]:
        grids = self._scale(study, scale)["grids"]
        return grids[known("grid", grid, grids)]

    def narrowed(self, study: str, scale: str, grid: str) -> list[dict[str, list]]:
        """Return a grid's blocks, each with a list of names per axis, as the configuration wants.

        A block keeps what it has of the names asked for. A name that no grid has, such as a method
        of your own, joins the blocks that keep something, or all blocks if none keeps anything. Of
        the axes in its `first` it takes one name, the first that is left.
        """
        narrowed = []
        for block in self._blocks(study, scale, grid):
            wanted = {axis: self._wanted(axis, block, self._names(study, scale)) for axis in AXES}
            for axis in listed(block.get("first")):
                wanted[axis] = wanted[axis][:1]
            if all(wanted.values()):
                self._check_block(wanted)
                narrowed.append(wanted)
        return narrowed

    def _names(self, study: str, scale: str) -> dict[str, set]:
        """Return all names of every axis in the grids of a scale."""
        grids = self._scale(study, scale)["grids"].values()
        blocks = [block for grid in grids for block in grid]
        return {axis: {n for block in blocks for n in listed(block[axis])} for axis in AXES}

    def _wanted(self, axis: str, block: dict, there: dict[str, set]) -> list:
        asked, own = axis_values(self.config, axis), listed(block[axis])
        if not asked:
            return own
        kept = [name for name in asked if name in own]
        if axis == "dataset" or not (kept or there[axis].isdisjoint(asked)):
            return kept
        return [name for name in asked if name in own or name not in there[axis]]

    def summed(self, blocks: list[dict]) -> dict[str, dict]:
        """Return the fields of the blocks' protocols that are collected with the runs."""
        names = sorted({name for block in blocks for name in block["protocol"]})
        protocols = {name: self.protocol(name) for name in names}
        return {name: {key: p[key] for key in SUMMED} for name, p in protocols.items()}

    def fidelity(self, study: str, scale: str) -> dict[str, Any]:
        """Return the setting of the fidelity study, with images of the requested datasets only."""
        setting, asked = self._scale(study, scale)["fidelity"], axis_values(self.config, "dataset")
        images = {n: count for n, count in setting["images"].items() if n in (asked or [n])}
        return setting | {"images": images}

    def products(self, study: str, scale: str) -> list[str]:
        """Return the study's products that the configuration leaves something to draw."""
        return [
            name
            for name, about in self.studies[study]["products"].items()
            if all(self._is_there(study, scale, text) for text in about["from"].values())
        ]

    def _is_there(self, study: str, scale: str, text: str) -> bool:
        kind, _, grid = text.partition("/")
        if kind == "fidelity":
            return bool(self.fidelity(study, scale)["images"])
        return kind not in COLLECTED or bool(self.narrowed(study, scale, grid))

    def check_product(self, study: str, scale: str, name: str) -> None:
        """Refuse a product for which the configuration leaves nothing to draw."""
        for text in self.studies[study]["products"][name]["from"].values():
            if not self._is_there(study, scale, text):
                asked = {axis: axis_values(self.config, axis) for axis in AXES}
                given = (f"{a} {', '.join(map(str, names))}" for a, names in asked.items() if names)
                raise UsageError(
                    f"{name} of {study} has no runs at the {scale} scale with {', '.join(given)}: "
                    f"its source `{text}` has none of these; choose names that the study has at "
                    "this scale"
                )

    # -- resolving names -------------------------------------------------------------------------

    def protocol(self, name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return a protocol with all fields: the defaults, those of its `base`, its own."""
        own = dict(self.protocols[known("protocol", name, self.protocols)])
        if name in above:
            raise UsageError(f"protocol `{name}` is its own base, through {', '.join(above)}")
        base = self.protocol(own.pop("base"), (*above, name)) if "base" in own else PROTOCOL
        for key in own:
            known(f"field of protocol `{name}`", key, PROTOCOL)
        return base | own

    def method(self, name: str, dataset: str) -> dict[str, dict[str, Any]]:
        """Return the method files of a name, each with all its hyper-parameters.

        The variant's values override the study's `tuned` values for the dataset, and these override
        the file's defaults.
        """
        parts = self.variants.get(name)
        if parts is None:
            known("method", name, self.methods())
            parts = {name: {}}
        return {part: self._keywords(part, dataset, given or {}) for part, given in parts.items()}

    def _keywords(self, part: str, dataset: str, given: dict) -> dict[str, Any]:
        contract.method(part)
        defaults = source.keywords(f"methods.{part}", "method")
        return defaults | self.tuned.get(part, {}).get(dataset, {}) | given

    def resolve(self, run) -> dict[str, Any]:
        """Return a run with every name replaced by its values."""
        protocol = self.protocol(run["protocol"])
        return {
            "name": {axis: run[axis] for axis in AXES} | {"seed": int(run["seed"])},
            "protocol": protocol,
            "dataset": run["dataset"],
            "partition": run["partition"],
            "method": self.method(run["method"], run["dataset"]),
            "seed": int(run["seed"]),
        }

    # -- checks ----------------------------------------------------------------------------------

    def _check_study(self, study: str, about: dict) -> None:
        for scale, grids in about["scales"].items():
            for name, facts in about["products"].items():
                self._check_product(f"{study}, {scale} scale: {name}", study, name, facts, grids)
            for blocks in grids["grids"].values():
                for block in blocks:
                    self._check_block(block)
        for number, claim in enumerate(about.get("claims", []), start=1):
            if not {"least", "most"} & claim.keys():
                needs = "`least`, `most` or both"
                raise UsageError(f"{study}.yaml: claims: number {number} needs {needs}")
            for bound in {"least", "most"} & claim.keys():
                check_type(f"{study}.yaml: claims: number {number}: {bound}", claim[bound], 1.0)
        for name, table in about.get("published", {}).items():
            for method in table.get("rows", {}):
                known(f"method published in {study}", method, self.methods())
            check_printed(f"{study}.yaml: published.{name}", table, self.protocols)
        for name in listed(about.get("main")):
            known(f"protocol of `main` in {study}.yaml", name, self.protocols)

    @staticmethod
    def _check_product(where: str, study: str, name: str, facts: dict, scale: dict) -> None:
        check_product(where, study, name, facts)
        for text in facts["from"].values():
            kind, _, rest = text.partition("/")
            if kind in COLLECTED:
                known(f"grid of {where}", rest, scale["grids"])
            elif text not in EXPERIMENTS or EXPERIMENTS[text] not in scale:
                there = [t for t, key in EXPERIMENTS.items() if key in scale]
                known(f"source of {where}", text, [*(f"{k}/<grid>" for k in COLLECTED), *there])

    def _check_hyper_parameters(self) -> None:
        for variant, parts in self.variants.items():
            for part, given in parts.items():
                check_keywords(f"variant `{variant}`", part, given)
        for part, datasets in self.tuned.items():
            for dataset, given in datasets.items():
                known("tuned dataset", dataset, registered("datasets"))
                check_keywords("tuned", part, given)

    def methods(self) -> list[str]:
        """Return all names of methods and variants."""
        return [*registered("methods"), *self.variants]

    def _check_block(self, block: dict) -> None:
        for axis in AXES:
            if not listed(block.get(axis)):
                raise UsageError(f"a grid needs a {axis}")
        for name in map(str, listed(block["partition"])):
            parse_name(name)
        for name, dataset in product(listed(block["protocol"]), listed(block["dataset"])):
            known("dataset", dataset, registered("datasets"))
            check_protocol(name, self.protocol(name), dataset)
        for name, dataset in product(listed(block["method"]), listed(block["dataset"])):
            method = self.method(name, dataset)
            for protocol in listed(block["protocol"]):
                check_model(name, method, self.protocol(protocol)["model"])
        for seed in listed(block["seed"]):
            if type(seed) is not int or seed < 0:  # True is an int too
                raise UsageError(f"seed: {shown(repr(seed))} is not a whole number of at least 0")


DIGITS = re.compile("[0-9]{1,18}")


def axis_values(config: dict, axis: str) -> list:
    """Return the configuration's names of an axis: a list, or `a,b` from the command line."""
    value = config.get(axis)
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]").split(",") if part.strip()]
    if axis == "seed":
        return [int(v) if isinstance(v, str) and DIGITS.fullmatch(v) else v for v in listed(value)]
    return [str(v) for v in listed(value)]
