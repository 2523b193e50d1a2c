"""What the names of protocols and methods stand for, and which names stand for the same work.

A name is a file of the package, an entry of a study or of the configuration, or a variant by the
rule of its name (`variants.py`).
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from itertools import chain
from typing import Any, NoReturn

from fedgrid.federation.protocols import changed_protocol
from fedgrid.partitions import parse_name
from fedgrid.runtime.code import contract, own_data, source
from fedgrid.runtime.names import (
    UsageError,
    followed_by,
    known,
    listed,
    name_family,
    registered,
    shown,
    within,
)
from fedgrid.runtime.resolved import Fields, MethodParts, Named, Names, Protocol, Run
from fedgrid.study.checks import check_keywords
from fedgrid.study.jobs import run_content
from fedgrid.study.paths import CELLS, cell_hash
from fedgrid.study.protocol import AXES, KINDS, PROTOCOL, STAGES
from fedgrid.study.reading import GIVEN, Studies, check_schema
from fedgrid.study.records import Block, Study, Sweep
from fedgrid.study.variants import split_name, sweep_names, write_value, write_values

SWEPT: tuple[Named, ...] = ("protocol", "method")  # axes whose names a sweep can replace
ALL_PROTOCOLS = "protocol"  # the name in a sweep that stands for every protocol of a grid


def remember_answers(function: Callable) -> Callable:
    """Have an object remember what its method returned for these arguments; do not change that.

    A grid of thousands of runs asks the same of every run.
    """

    @wraps(function)
    def answer(self, *arguments):
        known_answers = self.__dict__.setdefault("_remembered", {})
        question = function.__name__, arguments
        if question not in known_answers:
            known_answers[question] = function(self, *arguments)
        return known_answers[question]

    return answer


class Resolver:
    """The protocols and variants of the studies and the configuration, by name."""

    def __init__(self, studies: Mapping[str, Study], config: dict[str, Any]):
        self.studies = Studies(studies)
        self.files: dict[str, Mapping[str, Any]] = {
            **{f"{study}.yaml": about for study, about in studies.items()},
            GIVEN: config,
        }
        own_data.give_studies(merge_datasets(studies))
        merged = (merge_entries(key, self.files) for key in ("protocols", "variants", "tuned"))
        self.protocols, self.variants, self.tuned = merged
        given = (fields.get("by_method", ()) for fields in self.protocols.values())
        self._with_own = {part for by_method in given for part in by_method}
        blocks = [block for about in studies.values() for block in list_blocks(about)]
        self._in_grids = {
            axis: [*dict.fromkeys(name for block in blocks for name in listed(block.get(axis)))]
            for axis in ("protocol", "method")
        }
        self._first: dict[tuple, dict[str, str]] = {}

    # -- protocols -------------------------------------------------------------------------------

    def protocol(self, name: str) -> Protocol:
        """Return a protocol with all fields: the defaults, those of its `base`, its own."""
        return self._protocol(name).copy()

    @remember_answers
    def _protocol(self, name: str, *above: str) -> Protocol:
        if name not in self.protocols and (found := self.split_protocol(name)):
            named, values = found
            check_schema(f"protocol `{name}`", values, "study", "protocol")
            return set_for_all(self._protocol(named), values)
        own = {**self.protocols[self.known_protocol(name)]}
        if name in above:
            raise UsageError(f"protocol `{name}` is its own base, through {', '.join(above)}")
        base = self._protocol(own.pop("base"), *above, name) if "base" in own else PROTOCOL
        return changed_protocol(base, own)

    def known_protocol(self, name: str) -> str:
        """Return a name with an entry; else a UsageError says what can follow a name with one."""
        try:
            return self.studies.known("protocol", name, self.protocols)
        except UsageError as problem:
            bases = [base for base in self.protocols if name.startswith(f"{base}-")]
            if not bases:
                raise
            hint = (
                f"After `{max(bases, key=len)}-` there must be a field of a protocol with a value "
                "of its type, such as lr0.1 or local10; docs/guide/protocols.md lists the fields"
            )
            raise followed_by(problem, hint) from None

    def own_fields(self, protocol: Protocol, parts) -> dict[str, Any]:
        """Return the fields of a protocol that these method files change, by its `by_method`."""
        found: dict[str, Any] = {}
        for part in parts:
            for field, value in protocol["by_method"].get(part, {}).items():
                value = same_type(value, PROTOCOL[field])
                if found.setdefault(field, value) != value:
                    raise UsageError(
                        f"`by_method` gives {field} two values, {found[field]} and {value}, for a "
                        f"method of {' and '.join(parts)}: give one, or none"
                    )
        return found

    def split_protocol(self, name: str) -> tuple[str, Fields] | None:
        return split_name(name, self.protocols, lambda base: KINDS)

    def without_fields(self, name: str, fields: Collection[str]) -> str:
        """Return the name of a protocol by the rule of its name without the values of fields."""
        found = None if name in self.protocols else self.split_protocol(name)
        if found is None:
            return name
        base, values = found
        return base + write_values({k: v for k, v in values.items() if k not in fields})

    def cells(self, name: str) -> dict[str, str]:
        """Return the folders of what the stages in CELLS make for all methods of a protocol.

        A folder is a hash of the fields that the stage depends on, so it does not change with the
        protocol's name. A protocol by the rule of its name has the hash of its base, and after it
        the values of its own.
        """
        return {stage: self._cell(stage, name) for stage in CELLS}

    @remember_answers
    def _cell(self, stage: str, name: str) -> str:
        whole, found = cell_hash(stage, self.protocol(name)), self.split_protocol(name)
        if found is None or whole in self._hashes(stage):
            return whole
        base, values = found
        own = {field: values[field] for field in sorted(values) if field in STAGES[stage]}
        return cell_hash(stage, self.protocol(base)) + write_values(own)

    @remember_answers
    def _hashes(self, stage: str) -> dict[str, str]:
        """Return the first protocol with an entry by its hash for a stage."""
        pairs = [(cell_hash(stage, self.protocol(name)), name) for name in self.protocols]
        return dict(reversed(pairs))

    def protocol_of_cell(self, cell: str) -> str:
        base, dash, values = cell.partition("-")
        for stage in CELLS:
            if base in self._hashes(stage):
                return self._hashes(stage)[base] + dash + values
        raise UsageError(f"no protocol's files are in a folder called `{shown(cell)}`")

    # -- methods ---------------------------------------------------------------------------------

    @remember_answers
    def methods(self) -> dict[str, None]:
        """Return all names of methods and variants, without those by the rule of their name."""
        return dict.fromkeys([*registered("methods"), *self.variants])

    def method(self, name: str, dataset: str) -> MethodParts:
        """Return the method files of a name, each with all its hyper-parameters.

        The variant's values override the study's `tuned` values for the dataset, and these override
        the file's defaults. A hyper-parameter that the file names in `ADDED` is there only with
        another value than its default, so that earlier settings stay as they are.
        """
        return {part: dict(fields) for part, fields in self._method(name, dataset).items()}

    @remember_answers
    def _method(self, name: str, dataset: str) -> MethodParts:
        found = {}
        for part, given in self.parts(name).items():
            contract.method(part)
            defaults, later = list_defaults(part), source.literal(f"methods.{part}", "ADDED", ())
            values = defaults | self.tuned.get(part, {}).get(dataset, {}) | (given or {})
            values = {key: same_type(value, defaults[key]) for key, value in values.items()}
            kept = {k: v for k, v in values.items() if k not in later or v != defaults[k]}
            contract.check_ranges(f"method `{name}`", part, kept)
            found[part] = kept
        return found

    @remember_answers
    def parts(self, name: str) -> MethodParts:
        """Return the method files of a name, each with the hyper-parameters that the name gives."""
        if name in self.variants:
            return self.variants[name]
        if name in self.methods():
            return {name: {}}
        found = split_name(name, self.methods(), self.hyper_parameters)
        if found is None:
            self._refuse_method(name)
        base, values = found
        return {
            part: (given or {}) | {k: v for k, v in values.items() if k in list_defaults(part)}
            for part, given in self.parts(base).items()
        }

    def family(self, name: str) -> str:
        """Return the family of a method: the names of its files (`analysis/fields.py`)."""
        return name_family(self.parts(name))

    @remember_answers
    def hyper_parameters(self, name: str) -> dict[str, Any]:
        """Return the hyper-parameters of a method or variant with their defaults.

        One that several of its files have is left out, because its name does not say whose it is.
        """
        found = [list_defaults(part) for part in self.parts(name)]
        every = [key for defaults in found for key in defaults]
        return {k: v for of in found for k, v in of.items() if every.count(k) == 1}

    def _refuse_method(self, name: str) -> NoReturn:
        """Raise a UsageError that says which hyper-parameters can follow, if the base is known."""
        bases = [base for base in self.methods() if name.startswith(f"{base}-")]
        if not bases:
            self.studies.known("method", name, self.methods())
        base = max(bases, key=len)
        fields = sorted(self.hyper_parameters(base).items())
        there = ", ".join(f"{field}{write_value(value)}" for field, value in fields) or "none"
        raise UsageError(
            f"no method is called `{shown(name)}`: after `{base}-` there must be a hyper-parameter "
            f"of {base} with its value; its hyper-parameters, with their defaults, are {there}"
        )

    # -- sweeps: {fedprox: {mu: [0.01, 0.1]}} gives fedprox-mu0.01 and fedprox-mu0.1 --------------

    def expand_block(self, block: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
        """Replace, in a block of a grid, each name in a sweep by its variants."""
        expanded: dict[str, Any] = {
            axis: [v for name in listed(block[axis]) for v in self.find_variants(axis, name, sweep)]
            for axis in SWEPT
        }
        return {**block, **expanded}

    def find_variants(self, axis: str, name: str, sweep: Sweep) -> list[str]:
        """Return the variants of a name on an axis of a grid; only the name if no sweep has it.

        A method can have the protocol's name; its hyper-parameters are not the protocol's.
        """
        if axis not in SWEPT or not sweep:
            return [name]
        swept = sweep.get(name, {})
        is_method = axis == "method" or name in self.methods()
        defaults = self.hyper_parameters(name) if swept and is_method else {}
        own = {field: values for field, values in swept.items() if field in defaults}
        if axis == "method":
            return sweep_names(name, own, defaults)
        given = {field: values for field, values in swept.items() if field not in own}
        return sweep_names(name, given | sweep.get(ALL_PROTOCOLS, {}), KINDS)

    def check_sweep(self, where: str, sweep: Sweep) -> None:
        """Refuse a sweep of a name, or of a field of it, that does not exist."""
        for name, axes in sweep.items():
            is_protocol = name == ALL_PROTOCOLS or self.knows("protocol", name)
            fields = KINDS if is_protocol else {}
            fields = fields | (self.hyper_parameters(name) if self.knows("method", name) else {})
            if not fields:
                every = [ALL_PROTOCOLS, *self.methods(), *self.protocols]
                self.studies.known(f"method or protocol of `sweep` in {where}", name, every)
            for field in axes:
                known(f"hyper-parameter or field of {name} in `sweep` of {where}", field, fields)

    # -- runs ------------------------------------------------------------------------------------

    def resolve(self, run: Mapping[str, Any]) -> Run:
        protocol = self.protocol(run["protocol"])
        method = self.method(run["method"], run["dataset"])
        names = {axis: run[axis] for axis in AXES} | {"seed": int(run["seed"])}
        resolved: Any = {
            "name": names,
            "protocol": protocol,
            "cells": self.cells(run["protocol"]),
            "dataset": run["dataset"],
            "partition": run["partition"],
            "method": method,
            "own": self.own_fields(protocol, method),
            "seed": names["seed"],
        }
        return resolved | source.data_of(run["dataset"])

    def first_name(self, run: Run) -> Names:
        """Return the name under which a resolved run is trained; other names are linked to it.

        It has the first protocol and the first method that make the same run: of those in the
        grids of studies, and then of all others.
        """
        content = run_content(run)
        fields, dataset = [*content["protocol"]], run["dataset"]
        changing = sorted(run["method"].keys() & self._with_own)

        def meaning(name: str) -> dict[str, Any]:
            protocol = self.protocol(name)
            whole: Fields = {**protocol, **self.own_fields(protocol, changing)}
            return {field: whole[field] for field in fields}

        names = chain(self._in_grids["protocol"], self.protocols)
        protocols = self._first_of((*fields, None, *changing), names, meaning)
        names = chain(self._in_grids["method"], self.methods())
        methods = self._first_of((dataset,), names, lambda name: self.method(name, dataset))
        name = run["name"].copy()
        name["protocol"] = protocols.get(write_meaning(content["protocol"]), name["protocol"])
        name["method"] = methods.get(write_meaning(content["method"]), name["method"])
        return name

    def _first_of(self, key: tuple, names, meaning: Callable[[str], dict]) -> dict[str, str]:
        """Return the first name by its meaning; a name without a meaning is left out."""
        if key not in self._first:
            found: dict[str, str] = {}
            for name in names:
                try:
                    found.setdefault(write_meaning(meaning(name)), name)
                except UsageError:
                    continue  # it is refused where it is asked for
            self._first[key] = found
        return self._first[key]

    def knows(self, axis: str, name: str) -> bool:
        if axis == "protocol":
            return name in self.protocols or self.split_protocol(name) is not None
        there = self.methods()
        return name in there or split_name(name, there, self.hyper_parameters) is not None

    def check_name(self, axis: str, name: str, kind: str = "") -> None:
        """Refuse an unknown name on an axis; an error calls it `kind`, by default the axis."""
        if axis == "partition":
            parse_name(name)
        elif axis == "dataset":
            known(kind or axis, name, own_data.list_datasets())
        elif not self.knows(axis, name):
            there = self.protocols if axis == "protocol" else self.methods()
            self.studies.known(kind or axis, name, there)

    @remember_answers
    def meaning(self, axis: str, name: str) -> str:
        """Return what a protocol or method by the rule of its name means; of others the name.

        The same values in another order mean the same.
        """
        if axis == "protocol" and name not in self.protocols:
            return write_meaning({**self.protocol(name)})
        if axis == "method" and name not in self.methods():
            return write_meaning(self.parts(name))
        return name


def set_for_all(protocol: Protocol, values: Fields) -> Protocol:
    """Return a protocol with these values for all methods, also for those with fields of their own.

    The values are those that a user asked for, by a protocol's name or on the command line.
    """
    by_method = {
        part: {field: value for field, value in own.items() if field not in values}
        for part, own in protocol["by_method"].items()
    }
    return changed_protocol(protocol, {"by_method": by_method, **values})


def check_entries(about: Mapping[str, Any], names: Resolver) -> None:
    for name, fields in (about.get("protocols") or {}).items():
        with within(f"protocols.{name}"):
            if not names.knows("protocol", base := fields.get("base", name)):
                names.known_protocol(base)
    for name, parts in (about.get("variants") or {}).items():
        if name in registered("methods"):
            raise UsageError(f"variants.{name}: a method has this name already: give another one")
        for part, given in parts.items():
            with within(f"variants.{name}"):
                check_keywords("the variant", part, given)
    for part, datasets in (about.get("tuned") or {}).items():
        with within(f"tuned.{part}"):
            known("method", part, registered("methods"))
            for dataset, given in datasets.items():
                names.check_name("dataset", dataset)
                check_keywords(dataset, part, given)


def merge_entries(key: str, sources: dict[str, Mapping[str, Any]]) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    owners: dict[str, str] = {}
    for name, entries in ((n, s.get(key) or {}) for n, s in sources.items()):
        for entry, value in entries.items():
            owner = owners.setdefault(entry, name)
            if found.setdefault(entry, value) != value:
                raise UsageError(
                    f"{name}: {key}.{entry} already means something else in {owner}: give this "
                    "entry another name",
                    where=name if name == GIVEN else f"{owner} and {name}",
                )
    return found


def merge_datasets(studies: Mapping[str, Study]) -> dict[str, Fields]:
    """Return the data of one's own that studies name, without those of the configuration."""
    files = {f"{study}.yaml": about.get("datasets") for study, about in studies.items()}
    of_studies = {file: {"datasets": own_data.checked(of, file)} for file, of in files.items()}
    found = merge_entries("datasets", of_studies | {GIVEN: {"datasets": own_data.given()}})
    return {name: entry for name, entry in found.items() if name not in own_data.given()}


def list_blocks(about: Study) -> list[Block]:
    grids = [grid for scale in about["scales"].values() for grid in scale["grids"].values()]
    return [block for grid in grids for block in grid]


def list_defaults(part: str) -> dict[str, Any]:
    return source.keywords(f"methods.{part}", "method")


def same_type(value: Any, default: Any) -> Any:
    return float(value) if type(default) is float and type(value) is int else value


def write_meaning(meaning: dict) -> str:
    return json.dumps(meaning, sort_keys=True)
