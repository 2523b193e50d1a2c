"""From the names in a study to runs, with every name checked. No torch: the Snakefile imports this.

A run is a (protocol, dataset, partition, method, seed) tuple of names. `resolve` gives what each
name stands for: the study's protocol, the method's files and all of their hyper-parameters.
"""

import csv
import json
import math
import re
from functools import reduce
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from fedgrid import cohorts, contract, report, source
from fedgrid.names import PACKAGE, UsageError, known, listed, registered, shown
from fedgrid.spec import AXES, COLLECTED, PROTOCOL, SUMMED, runs_of, skew

CHANGES_RESULTS = False  # what it resolves is what a job is given
# Sources of products that come from no grid, and the part of a scale that describes them.
EXPERIMENTS = {"fidelity/scores": "fidelity", "fidelity/examples": "fidelity", "costs": "costs"}


STUDIES, SCHEMAS = PACKAGE.parent / "studies", PACKAGE.parent / "schemas"
CONFIG = Path("config.yaml")
OWN = ("protocols", "variants")  # what a configuration may add to the studies' names


def configured(*configs: Path) -> "Grid":
    """The studies, with the protocols and variants of configurations; a later one wins."""
    given = reduce(laid_over, map(read_config, configs), {})
    return Grid(read_studies(), {key: given.get(key) or {} for key in OWN})


def read_config(path: Path) -> dict:
    """A configuration's file, checked; config.yaml need not be there."""
    if path == CONFIG and not path.exists():
        return {}
    own = read_yaml(path) or {}
    check_config(path.name, own, required=False)
    return own


def check_config(name: str, config: dict, required: bool = True) -> None:
    """UsageError for a configuration, or a protocol of its own, that breaks its schema."""
    obey(name, config, "config", required=required)
    for protocol, fields in config.get("protocols", {}).items():
        obey(f"{name}: protocols.{protocol}", fields, "study", "protocol")


def laid_over(below: Any, above: Any) -> Any:
    """`above`; pairs are merged with those below, as Snakemake merges configuration files."""
    if not isinstance(above, dict):
        return above
    below = below if isinstance(below, dict) else {}
    return below | {key: laid_over(below.get(key), value) for key, value in above.items()}


def obey(name: str, value: Any, rules: str, part: str | None = None, required: bool = True) -> None:
    """UsageError for what breaks a schema, where Snakemake's jsonschema is there to tell."""
    if find_spec("jsonschema"):
        from fedgrid import schema

        schema.check(name, value, SCHEMAS / f"{rules}.schema.yaml", part, required)


def read_studies(folder: Path = STUDIES) -> dict[str, dict]:
    """Every study of a folder, by its file's name."""
    return {path.stem: read_study(path) for path in sorted(folder.glob("*.yaml"))}


def find_study(text: str) -> Path:
    """The file of a study by its name, or the .yaml that is named."""
    if text.endswith(".yaml"):
        return Path(text)
    return STUDIES / f"{known('study', text, (path.stem for path in STUDIES.glob('*.yaml')))}.yaml"


def read_study(path: Path) -> dict:
    """A study's file, checked; in place of the name of its `reference` stand that table's rows."""
    study = read_yaml(path)
    if isinstance(study, dict) and isinstance(study.get("reference"), str):
        study["reference"] = read_reference(path, study["reference"])
    obey(path.name, study, "study")
    return study


def read_yaml(path: Path) -> Any:
    """What a YAML file says, which JSON can say too; UsageError in one sentence if it does not."""
    try:
        found = yaml.load(path.read_bytes(), Loader)
        json.dumps(found)  # products depend on it as JSON
        check_keys(path.name, found)
        return found
    except UsageError:
        raise
    except yaml.YAMLError as problem:
        what = " ".join(str(problem).replace('in "<byte string>", ', "").split())
        raise UsageError(f"{path.name} is not YAML: {what}") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read ({problem})") from None
    except (TypeError, ValueError, RecursionError) as problem:
        what = "that is neither text, number, list nor pairs"
        raise UsageError(f"{path.name} holds something {what} ({problem})") from None


class Loader(yaml.SafeLoader):
    """YAML's safe loader, but a key that is given twice is an error: one of them would be lost."""

    def compose_mapping_node(self, anchor):
        """A mapping of distinct keys."""
        node = super().compose_mapping_node(anchor)
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (_, name) in enumerate(keys):
            if keys[at] in keys[:at] and name != "<<":
                said = f"found the key `{shown(name)}` twice"
                raise yaml.composer.ComposerError(None, None, said, node.value[at][0].start_mark)
        return node


def check_keys(name: str, value: Any) -> None:
    """UsageError for a key that is a number, a date or nothing: names are text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                said = f"the key {shown(repr(key))} is not text: put it in quotes"
                raise UsageError(f"{name}: {said}")
            check_keys(f"{name}: {shown(key)}", inner)
    for inner in value if isinstance(value, list) else ():
        check_keys(name, inner)


def read_reference(study: Path, name: str) -> list[dict[str, str]]:
    """The rows of the table of finished runs that a study names."""
    where = f"{study.name}: the reference {shown(name)}"
    try:
        table = csv.DictReader((study.parent / name).read_text("utf-8-sig").splitlines())
        rows = [(table.line_num, row) for row in table]
    except (OSError, ValueError, csv.Error) as problem:
        raise UsageError(f"{where} cannot be read ({problem})") from None
    for line, row in rows:
        if None in row or None in row.values():
            wanted = f"{len(table.fieldnames)} values, as its first line names"
            raise UsageError(f"{where}, line {line}, has not {wanted}")
    return [row for _, row in rows]


class Grid:
    """The studies and the configuration, as one set of names.

    Raises UsageError, with the key and the nearest names, for a name that stands for nothing:
    Snakemake would otherwise say "Nothing to be done" over stale tables.
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
        if "study" in self.config:  # an unknown name must fail here, not over a finished table
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

    # -- what there is to run --------------------------------------------------------------------

    def runs(self, study: str, scale: str, grid: str) -> list[dict[str, Any]]:
        """Every run of a study's grid by name, narrowed or widened by the configuration."""
        return [run for block in self.narrowed(study, scale, grid) for run in runs_of(block)]

    def _scale(self, study: str, scale: str) -> dict:
        scales = self.studies[known("study", study, self.studies)]["scales"]
        return scales[known("scale", scale, scales)]

    def _blocks(self, study: str, scale: str, grid: str) -> list[dict]:
        grids = self._scale(study, scale)["grids"]
        return grids[known("grid", grid, grids)]

    def narrowed(self, study: str, scale: str, grid: str) -> list[dict[str, list]]:
        """A grid's blocks, each a list of names per axis, as the configuration wants them.

        A block keeps what it has of the names asked for. A name that no grid has, such as a method
        of one's own, joins the blocks that keep something, or all where nobody keeps anything. Of
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
        """All names of every axis in the grids of a scale."""
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
        """What of the blocks' protocols goes along with what is collected."""
        names = sorted({name for block in blocks for name in block["protocol"]})
        protocols = {name: self.protocol(name) for name in names}
        return {name: {key: p[key] for key in SUMMED} for name, p in protocols.items()}

    def fidelity(self, study: str, scale: str) -> dict[str, Any]:
        """The setting of the fidelity study, with images of the wanted datasets only."""
        setting, asked = self._scale(study, scale)["fidelity"], axis_values(self.config, "dataset")
        images = {n: count for n, count in setting["images"].items() if n in (asked or [n])}
        return setting | {"images": images}

    def products(self, study: str, scale: str) -> list[str]:
        """The study's products but for those that the configuration leaves nothing to draw of."""
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
        """Refuse a product of which the configuration leaves nothing to draw."""
        for text in self.studies[study]["products"][name]["from"].values():
            if not self._is_there(study, scale, text):
                asked = {axis: axis_values(self.config, axis) for axis in AXES}
                given = (f"{a} {', '.join(map(str, names))}" for a, names in asked.items() if names)
                raise UsageError(
                    f"{name} of {study} has no runs at the {scale} scale with {', '.join(given)}: "
                    f"`{text}`, which it is drawn from, has none of these; ask for names that "
                    "the study has there"
                )

    # -- what a name stands for ------------------------------------------------------------------

    def protocol(self, name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """A protocol with all its fields: the defaults, its `base`'s, its own."""
        own = dict(self.protocols[known("protocol", name, self.protocols)])
        if name in above:
            raise UsageError(f"protocol `{name}` is its own base, by way of {', '.join(above)}")
        base = self.protocol(own.pop("base"), (*above, name)) if "base" in own else PROTOCOL
        for key in own:
            known(f"field of protocol `{name}`", key, PROTOCOL)
        return base | own

    def method(self, name: str, dataset: str) -> dict[str, dict[str, Any]]:
        """The method files a name stands for, each with all its hyper-parameters.

        A file's own defaults, then the study's `tuned` values for the dataset, then the variant's.
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
        """A run with every name replaced by what it stands for."""
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
                like(f"{study}.yaml: claims: number {number}: {bound}", claim[bound], 1.0)
        for name, table in about.get("published", {}).items():
            for method in table.get("rows", {}):
                known(f"method published in {study}", method, self.methods())
            check_printed(f"{study}.yaml: published.{name}", table, self.protocols)
        for name in listed(about.get("main")):
            known(f"protocol of `main` in {study}.yaml", name, self.protocols)

    @staticmethod
    def _check_product(where: str, study: str, name: str, facts: dict, scale: dict) -> None:
        contract.product(report.module(study, name), facts["formats"])
        wanted = report.sources(study, name)
        if set(facts["from"]) != set(wanted):
            raise UsageError(
                f"{where} is drawn from {', '.join(wanted)}: say where each comes from"
            )
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
        """All that a method may be called."""
        return [*registered("methods"), *self.variants]

    def _check_block(self, block: dict) -> None:
        for axis in AXES:
            if not listed(block.get(axis)):
                raise UsageError(f"a grid needs a {axis}")
        for name in map(str, listed(block["partition"])):
            skew(name)
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


def check_printed(where: str, table: dict, protocols: dict) -> None:
    """Refuse a published table whose columns nothing is called, or whose rows are not as long."""
    columns = table.get("columns", [])
    for dataset, partition, *protocol in columns if "rows" in table else []:
        known(f"dataset of {where}", dataset, registered("datasets"))
        skew(partition)
        for name in protocol:
            known(f"protocol of {where}", name, protocols)
    for key in ("rows", "speedups"):
        for method, values in table.get(key, {}).items():
            known(f"method of {where}: {key}", method, table["rows"])
            if len(values) != len(columns):
                raise UsageError(
                    f"{where}: {key}.{method} has {len(values)} values for {len(columns)} columns"
                )


def check_keywords(where: str, part: str, given: dict) -> None:
    """Refuse hyper-parameters that a method's file does not have, or of another type."""
    contract.method(known(f"method of {where}", part, registered("methods")))
    defaults = source.keywords(f"methods.{part}", "method")
    for key, value in given.items():
        known(f"hyper-parameter of {part} in {where}", key, defaults)
        like(f"{where}: {part}'s {key}", value, defaults[key])


def check_protocol(name: str, protocol: dict, dataset: str) -> None:
    """Refuse a protocol that this dataset cannot follow."""
    for key, value in protocol.items():  # JSON's schema takes 3.0 for a whole number
        like(f"protocol `{name}`: {key}", value, PROTOCOL[key])
    contract.model(known(f"model of protocol `{name}`", protocol["model"], registered("models")))
    contract.dataset(dataset)
    statistics = source.literal(f"datasets.{dataset}", "STATISTICS")
    known(f"normalization of {dataset}", protocol["normalization"], statistics)
    for key in protocol["augment"]:
        known(f"augmentation of protocol `{name}`", key, source.literal("augment", "DRAWS"))
    if {"crop", "crop-reflect"} <= {*protocol["augment"]}:
        raise UsageError(f"protocol `{name}`: crop or crop-reflect augments an image, not both")
    if protocol["clients"] > (samples := source.literal(f"datasets.{dataset}", "TRAIN")):
        raise UsageError(
            f"protocol `{name}`: {protocol['clients']} clients are more than the {samples} "
            f"training samples of {dataset}"
        )
    if cohorts.size(protocol["clients"], protocol["participation"], protocol["sampler"]) < 1:
        raise UsageError(
            f"protocol `{name}`: participation {protocol['participation']} of "
            f"{protocol['clients']} clients samples nobody"
        )
    weights = source.literal(f"models.{protocol['model']}", "WEIGHTS", ())
    if protocol["weights"] not in ("none", *weights) and not is_file(protocol["weights"]):
        raise UsageError(
            f"protocol `{name}`: weights `{shown(protocol['weights'])}` are neither none"
            f"{''.join(f', {w}' for w in weights)} nor a file"
        )


def check_model(name: str, method: dict, model: str) -> None:
    """Refuse a method that takes every image by itself with a model that cannot."""
    alone = any(source.literal(f"methods.{part}", "INDEPENDENT", False) for part in method)
    if alone and not source.literal(f"models.{model}", "INDEPENDENT", True):
        raise UsageError(
            f"method `{name}` encodes every image by itself, and the BatchNorm of the model "
            f"{model} mixes the images of a batch: choose a model with running statistics, such "
            "as resnet18"
        )


def is_file(text: str) -> bool:
    """Whether there is such a file; a text that can be no path names none."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


DIGITS = re.compile("[0-9]{1,18}")


def axis_values(config: dict, axis: str) -> list:
    """What the configuration asks of an axis: a list, or `a,b` from the command line."""
    value = config.get(axis)
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]").split(",") if part.strip()]
    if axis == "seed":
        return [int(v) if isinstance(v, str) and DIGITS.fullmatch(v) else v for v in listed(value)]
    return [str(v) for v in listed(value)]


def like(what: str, value: Any, default: Any) -> None:
    """Refuse a value of another type than the default's; a float may be given as an int."""
    kinds, word = _KINDS[type(default)]
    if type(value) not in kinds:
        raise UsageError(f"{what} is {shown(repr(value))}, not {word} such as {default!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{what} is {value!r}, which is not finite")


# What may be given in place of a default, and what that is called. None tells nothing of it.
_KINDS = {
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    list: ((list,), "a list"),
    dict: ((dict,), "`key: value` pairs"),
    type(None): ((type(None), bool, int, float, str, list), "a number, text or list"),
}
