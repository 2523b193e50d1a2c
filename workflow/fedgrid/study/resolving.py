"""What the names of protocols and methods stand for, and which names stand for the same work.

A name is a file of the package, an entry of a study or of the configuration, or a variant by the
rule of its name (`variants.py`).
"""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import chain
from typing import Any, NoReturn

from fedgrid.federation.protocols import changed_protocol
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
from fedgrid.runtime.resolved import Fields, MethodParts, Names, Protocol, Run
from fedgrid.study.checks import check_keywords
from fedgrid.study.jobs import run_content
from fedgrid.study.paths import CELLS, cell_hash
from fedgrid.study.protocol import KINDS, PROTOCOL, STAGES
from fedgrid.study.reading import GIVEN, Studies, check_schema
from fedgrid.study.records import Block, Study
from fedgrid.study.variants import split_name, write_value, write_values


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
        self._protocols: dict[str, dict[str, str]] = {}
        self._filled: dict[str, Protocol] = {}
        self._cells: dict[str, dict[str, str]] = {}

    # -- protocols -------------------------------------------------------------------------------

    def protocol(self, name: str, above: tuple[str, ...] = ()) -> Protocol:
        """Return a protocol with all fields: the defaults, those of its `base`, its own."""
        if name not in self._filled:
            self._filled[name] = self._fill(name, above)
        return self._filled[name].copy()

    def _fill(self, name: str, above: tuple[str, ...]) -> Protocol:
        if name not in self.protocols and (found := self.split_protocol(name)):
            named, own = found
            check_schema(f"protocol `{name}`", own, "study", "protocol")
            return set_for_all(self.protocol(named), own)
        own = {**self.protocols[self.known_protocol(name)]}
        if name in above:
            raise UsageError(f"protocol `{name}` is its own base, through {', '.join(above)}")
        base = self.protocol(own.pop("base"), (*above, name)) if "base" in own else PROTOCOL
        for key in own:
            known(f"field of protocol `{name}`", key, PROTOCOL)
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
        given = (protocol["by_method"].get(part, {}) for part in parts)
        found: dict[str, Any] = {}
        for fields in given:
            for field, value in fields.items():
                value = same_type(value, PROTOCOL[field])
                if found.setdefault(field, value) != value:
                    raise UsageError(
                        f"`by_method` gives {field} two values, {found[field]} and {value}, for a "
                        f"method of {' and '.join(parts)}: give one, or none"
                    )
        return found

    def split_protocol(self, name: str) -> tuple[str, Fields] | None:
        return split_name(name, self.protocols, lambda base: KINDS)

    def cells(self, name: str) -> dict[str, str]:
        """Return the folders of what the stages in CELLS make for all methods of a protocol.

        A folder is a hash of the fields that the stage depends on, so it does not change with the
        protocol's name. A protocol by the rule of its name has the hash of its base, and after it
        the values of its own.
        """
        if name not in self._cells:
            self._cells[name] = {stage: self._cell(stage, name) for stage in CELLS}
        return dict(self._cells[name])

    def _cell(self, stage: str, name: str) -> str:
        whole, found = cell_hash(stage, self.protocol(name)), self.split_protocol(name)
        if found is None or whole in self._hashes(stage):
            return whole
        base, values = found
        own = {field: values[field] for field in sorted(values) if field in STAGES[stage]}
        return cell_hash(stage, self.protocol(base)) + write_values(own)

    def _hashes(self, stage: str) -> dict[str, str]:
        """Return the first protocol with an entry by its hash for a stage."""
        if stage not in self._protocols:
            pairs = [(cell_hash(stage, self.protocol(name)), name) for name in self.protocols]
            self._protocols[stage] = dict(reversed(pairs))
        return self._protocols[stage]

    def protocol_of_cell(self, cell: str) -> str:
        base, dash, values = cell.partition("-")
        for stage in CELLS:
            if base in self._hashes(stage):
                return self._hashes(stage)[base] + dash + values
        raise UsageError(f"no protocol's files are in a folder called `{shown(cell)}`")

    # -- methods ---------------------------------------------------------------------------------

    def methods(self) -> list[str]:
        """Return all names of methods and variants, without those by the rule of their name."""
        return [*self._named_methods()]

    @remember_answers
    def _named_methods(self) -> dict[str, None]:
        return dict.fromkeys([*registered("methods"), *self.variants])

    def is_method(self, name: str) -> bool:
        return name in self._named_methods()

    def method(self, name: str, dataset: str) -> MethodParts:
        """Return the method files of a name, each with all its hyper-parameters.

        The variant's values override the study's `tuned` values for the dataset, and these override
        the file's defaults. A hyper-parameter that the file names in `ADDED` is there only with
        another value than its default, so that earlier settings stay as they are.
        """
        return {part: dict(fields) for part, fields in self._method(name, dataset).items()}

    @remember_answers
    def _method(self, name: str, dataset: str) -> MethodParts:
        parts = self.parts(name)
        found = {part: self._keywords(part, dataset, given or {}) for part, given in parts.items()}
        for part, values in found.items():
            contract.check_ranges(f"method `{name}`", part, values)
        return found

    @remember_answers
    def parts(self, name: str) -> MethodParts:
        """Return the method files of a name, each with the hyper-parameters that the name gives."""
        if name in self.variants:
            return self.variants[name]
        if name in self._named_methods():
            return {name: {}}
        if found := split_name(name, self._named_methods(), self.hyper_parameters):
            base, values = found
            return self.with_values(self.parts(base), values)
        self._refuse_method(name)

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

    @staticmethod
    def with_values(parts: MethodParts, values: Fields) -> MethodParts:
        """Return the parts of a method, each with those values that are its own."""
        return {
            part: (given or {}) | {k: v for k, v in values.items() if k in list_defaults(part)}
            for part, given in parts.items()
        }

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

    def _keywords(self, part: str, dataset: str, given: Fields) -> Fields:
        defaults = self._defaults(part)
        found = defaults | self.tuned.get(part, {}).get(dataset, {}) | given
        found = {key: same_type(value, defaults[key]) for key, value in found.items()}
        later = source.literal(f"methods.{part}", "ADDED", ())
        return {k: v for k, v in found.items() if k not in later or v != defaults[k]}

    @remember_answers  # many variants share a file
    def _defaults(self, part: str) -> Fields:
        """Return `list_defaults` of a method's file, which must be right."""
        contract.method(part)
        return list_defaults(part)

    # -- runs ------------------------------------------------------------------------------------

    def resolve(self, run: Mapping[str, Any]) -> Run:
        protocol, cells = self.protocol(run["protocol"]), self.cells(run["protocol"])
        method = self.method(run["method"], run["dataset"])
        resolved: Any = {
            "name": {
                "protocol": run["protocol"],
                "dataset": run["dataset"],
                "partition": run["partition"],
                "method": run["method"],
                "seed": int(run["seed"]),
            },
            "protocol": protocol,
            "cells": cells,
            "dataset": run["dataset"],
            "partition": run["partition"],
            "method": method,
            "own": self.own_fields(protocol, method),
            "seed": int(run["seed"]),
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
        names = chain(self._in_grids["method"], self._named_methods())
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
        there = self._named_methods()
        return name in there or split_name(name, there, self.hyper_parameters) is not None

    @remember_answers
    def meaning(self, axis: str, name: str) -> str:
        """Return what a protocol or method by the rule of its name means; of others the name.

        The same values in another order mean the same.
        """
        if axis == "protocol" and name not in self.protocols:
            return write_meaning({**self.protocol(name)})
        if axis == "method" and not self.is_method(name):
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
            for key in fields:
                known("field of a protocol", key, [*PROTOCOL, "base"])
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
                known("dataset", dataset, own_data.list_datasets())
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


def list_blocks(about: Study) -> list[Block]:
    grids = [grid for scale in about["scales"].values() for grid in scale["grids"].values()]
    return [block for grid in grids for block in grid]


def list_defaults(part: str) -> dict[str, Any]:
    return source.keywords(f"methods.{part}", "method")


def same_type(value: Any, default: Any) -> Any:
    return float(value) if type(default) is float and type(value) is int else value


def write_meaning(meaning: dict) -> str:
    return json.dumps(meaning, sort_keys=True)
