"""Resolve the names of protocols and methods, and find names that mean the same work.

A name is a file of the package, an entry of a study or of the configuration, or a variant whose
name has its values (`variants.py`).
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import UsageError, followed_by, known, listed, registered, shown, within
from fedgrid.study.checks import check_keywords
from fedgrid.study.jobs import run_content
from fedgrid.study.paths import CELLS, cell_hash
from fedgrid.study.protocol import AXES, PROTOCOL, STAGES
from fedgrid.study.reading import check_schema
from fedgrid.study.variants import list_examples, split_name, write_value


def remember_answers(function: Callable) -> Callable:
    """Have an object remember what its method returned for these arguments.

    Callers must not change the result. A grid of thousands of runs asks the same for every run.
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

    def __init__(self, studies: dict[str, dict], config: dict):
        sources = {f"{study}.yaml": entries for study, entries in studies.items()}
        sources["config.yaml"] = config
        self.protocols = merge_entries("protocols", sources)
        self.variants = merge_entries("variants", sources)
        self.tuned = merge_entries("tuned", sources)
        for file, entries in sources.items():
            with within(file):
                check_entries(entries, self)
        given = (fields.get("by_method", ()) for fields in self.protocols.values())
        self._with_own = {part for by_method in given for part in by_method}
        self._in_grids = {axis: list_grid_names(studies, axis) for axis in ("protocol", "method")}
        self._first: dict[str, dict[str, str]] = {}
        self._protocols: dict[str, dict[str, str]] = {}
        self._filled: dict[str, dict[str, Any]] = {}
        self._cells: dict[str, dict[str, str]] = {}

    # -- protocols -------------------------------------------------------------------------------

    def protocol(self, name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return a protocol with all fields: defaults, then those of its `base`, then its own."""
        if name not in self._filled:
            self._filled[name] = self._fill(name, above)
        return dict(self._filled[name])

    def _fill(self, name: str, above: tuple[str, ...]) -> dict[str, Any]:
        if name not in self.protocols and (split := self.split_protocol(name)):
            base, own = split
            check_schema(f"protocol `{name}`", own, "study", "protocol")
            return set_for_all(self.protocol(base), own)
        own = dict(self.protocols[self._known_protocol(name)])
        if name in above:
            raise UsageError(f"protocol `{name}` is its own base, through {', '.join(above)}")
        base = self.protocol(own.pop("base"), (*above, name)) if "base" in own else PROTOCOL
        for key in own:
            known(f"field of protocol `{name}`", key, PROTOCOL)
        return base | own

    def _known_protocol(self, name: str) -> str:
        """Return a protocol's name if it has an entry; else raise a UsageError with a hint."""
        try:
            return known("protocol", name, self.protocols)
        except UsageError as problem:
            bases = [base for base in self.protocols if name.startswith(f"{base}-")]
            if not bases:
                raise
            hint = (
                f"After `{max(bases, key=len)}-` there must be a field of a protocol with a value "
                "of its type, such as lr0.1 or local10; docs/guide/protocols.md lists the fields"
            )
            raise followed_by(problem, hint) from None

    def check_base(self, name: str) -> None:
        """Raise a UsageError unless this is the name of a protocol or of a variant of one."""
        if not self.knows("protocol", name):
            self._known_protocol(name)

    def own_fields(self, protocol: dict[str, Any], parts) -> dict[str, Any]:
        """Return the fields that `by_method` of a protocol changes for these method files."""
        given = (protocol["by_method"].get(part, {}) for part in parts)
        changed: dict[str, Any] = {}
        for fields in given:
            for field, value in fields.items():
                value = same_type(value, PROTOCOL[field])
                if changed.setdefault(field, value) != value:
                    raise UsageError(
                        f"`by_method` gives {field} two values, {changed[field]} and {value}, for "
                        f"a method of {' and '.join(parts)}: give one, or none"
                    )
        return changed

    def split_protocol(self, name: str) -> tuple[str, dict[str, Any]] | None:
        """Split the name of a protocol's variant into base and fields; None for other names."""
        return split_name(name, self.protocols, lambda base: PROTOCOL)

    def cells(self, name: str) -> dict[str, str]:
        """Return the folder of each stage in CELLS, whose files all methods of a protocol share.

        Its name is a hash of the fields that the stage depends on, so the protocol's name does not
        matter. A variant has the hash of its base, and after it its own values.
        """
        if name not in self._cells:
            self._cells[name] = {stage: self._cell(stage, name) for stage in CELLS}
        return dict(self._cells[name])

    def _cell(self, stage: str, name: str) -> str:
        whole, hashes = cell_hash(stage, self.protocol(name)), self._hashes(stage)
        if whole in hashes:
            return whole
        base, values = self.split_protocol(name)
        own = {field: values[field] for field in sorted(values) if field in STAGES[stage]}
        parts = (f"-{field}{write_value(value)}" for field, value in own.items())
        return cell_hash(stage, self.protocol(base)) + "".join(parts)

    def _hashes(self, stage: str) -> dict[str, str]:
        """Return the protocols with entries by their hash for a stage; of equal ones the first."""
        if stage not in self._protocols:
            pairs = [(cell_hash(stage, self.protocol(name)), name) for name in self.protocols]
            self._protocols[stage] = dict(reversed(pairs))
        return self._protocols[stage]

    def protocol_of_cell(self, cell: str) -> str:
        """Return a protocol whose files of a stage are in the folder `cell`."""
        base, dash, values = cell.partition("-")
        for stage in CELLS:
            if base in self._hashes(stage):
                return self._hashes(stage)[base] + dash + values
        raise UsageError(f"no protocol's files are in a folder called `{shown(cell)}`")

    # -- methods ---------------------------------------------------------------------------------

    def methods(self) -> list[str]:
        """Return the names of all methods and of all variants that have an entry."""
        return [*self._named_methods()]

    @remember_answers
    def _named_methods(self) -> dict[str, None]:
        """Return the names of `methods` as keys, for a fast look-up."""
        return dict.fromkeys([*registered("methods"), *self.variants])

    def is_method(self, name: str) -> bool:
        """Whether a name is among `methods`."""
        return name in self._named_methods()

    def method(self, name: str, dataset: str) -> dict[str, dict[str, Any]]:
        """Return the method files of a name, each with all its hyper-parameters.

        The variant's values override the study's `tuned` values for the dataset, and these override
        the file's defaults.
        """
        return {part: dict(fields) for part, fields in self._method(name, dataset).items()}

    @remember_answers
    def _method(self, name: str, dataset: str) -> dict[str, dict[str, Any]]:
        parts = self.parts(name)
        return {part: self._keywords(part, dataset, given or {}) for part, given in parts.items()}

    @remember_answers
    def parts(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the method files of a name, each with the hyper-parameters that the name gives."""
        if name in self.variants:
            return self.variants[name]
        if name in self._named_methods():
            return {name: {}}
        if split := split_name(name, self._named_methods(), self.hyper_parameters):
            base, values = split
            return self.with_values(self.parts(base), values)
        self._refuse_method(name)

    @remember_answers
    def hyper_parameters(self, name: str) -> dict[str, Any]:
        """Return the hyper-parameters of a method or variant with their defaults.

        If several of its files have one of the same name, it is left out, because it is ambiguous.
        """
        defaults_by_file = [list_defaults(part) for part in self.parts(name)]
        every = [key for defaults in defaults_by_file for key in defaults]
        return {
            k: v
            for own_defaults in defaults_by_file
            for k, v in own_defaults.items()
            if every.count(k) == 1
        }

    @staticmethod
    def with_values(parts: dict[str, dict], values: dict[str, Any]) -> dict[str, dict]:
        """Return the parts of a method, each with those values that are its own."""
        return {
            part: (given or {}) | {k: v for k, v in values.items() if k in list_defaults(part)}
            for part, given in parts.items()
        }

    def _refuse_method(self, name: str) -> None:
        """Raise a UsageError that says which hyper-parameters can follow, if the base is known."""
        bases = [base for base in self.methods() if name.startswith(f"{base}-")]
        if not bases:
            known("method", name, self.methods())
        base = max(bases, key=len)
        allowed = ", ".join(list_examples(self.hyper_parameters(base))) or "none"
        raise UsageError(
            f"no method is called `{shown(name)}`: after `{base}-` there must be a hyper-parameter "
            f"of {base} with its value; its hyper-parameters, with their defaults, are {allowed}"
        )

    def _keywords(self, part: str, dataset: str, given: dict) -> dict[str, Any]:
        contract.method(part)
        defaults = list_defaults(part)
        merged = defaults | self.tuned.get(part, {}).get(dataset, {}) | given
        return {key: same_type(value, defaults[key]) for key, value in merged.items()}

    # -- runs ------------------------------------------------------------------------------------

    def resolve(self, run) -> dict[str, Any]:
        """Resolve a run: replace its names by all fields and hyper-parameters that they mean."""
        protocol, cells = self.protocol(run["protocol"]), self.cells(run["protocol"])
        method = self.method(run["method"], run["dataset"])
        return {
            "name": {axis: run[axis] for axis in AXES} | {"seed": int(run["seed"])},
            "protocol": protocol,
            "cells": cells,
            "dataset": run["dataset"],
            "partition": run["partition"],
            "method": method,
            "own": self.own_fields(protocol, method),
            "seed": int(run["seed"]),
        }

    def first_name(self, run: dict) -> dict[str, Any]:
        """Return the name under which a resolved run is trained; equal runs are linked to it.

        It has the first protocol and the first method that mean the same run. Those in the grids of
        studies come before all others.
        """
        content = run_content(run)
        fields, dataset = [*content["protocol"]], run["dataset"]
        changing = sorted(run["method"].keys() & self._with_own)

        def meaning(name: str) -> dict[str, Any]:
            protocol = self.protocol(name)
            protocol |= self.own_fields(protocol, changing)
            return {field: protocol[field] for field in fields}

        names = [*self._in_grids["protocol"], *self.protocols]
        protocols = self._first_of(f"protocols {fields} {changing}", names, meaning)
        methods = self._first_of(
            f"methods {dataset}",
            [*self._in_grids["method"], *self.methods()],
            lambda name: self.method(name, dataset),
        )
        first = {"protocol": protocols.get(write_meaning(content["protocol"]))}
        first["method"] = methods.get(write_meaning(content["method"]))
        return run["name"] | {axis: name for axis, name in first.items() if name}

    def _first_of(self, key: str, names, meaning: Callable[[str], dict]) -> dict[str, str]:
        """Return, for each meaning, the first name that has it; names with errors are left out."""
        if key not in self._first:
            first_names: dict[str, str] = {}
            for name in names:
                try:
                    first_names.setdefault(write_meaning(meaning(name)), name)
                except UsageError:
                    continue  # it is refused where it is asked for
            self._first[key] = first_names
        return self._first[key]

    def knows(self, axis: str, name: str) -> bool:
        """Whether a protocol or method of this name exists."""
        if axis == "protocol":
            return name in self.protocols or self.split_protocol(name) is not None
        methods = self._named_methods()
        return name in methods or split_name(name, methods, self.hyper_parameters) is not None


def set_for_all(protocol: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Set these fields of a protocol for all methods; `by_method` no longer changes them.

    A user asked for the values, by a protocol's name or on the command line.
    """
    by_method = {
        part: {field: value for field, value in own.items() if field not in values}
        for part, own in protocol["by_method"].items()
    }
    return protocol | {"by_method": by_method} | values


def check_entries(entries_of_file: dict, names: Resolver) -> None:
    """Refuse unknown names in the protocols, variants and tuned values of a file."""
    for name, fields in (entries_of_file.get("protocols") or {}).items():
        with within(f"protocols.{name}"):
            names.check_base(fields.get("base", name))
            for key in fields:
                known("field of a protocol", key, [*PROTOCOL, "base"])
    for name, parts in (entries_of_file.get("variants") or {}).items():
        if name in registered("methods"):
            raise UsageError(f"variants.{name}: a method has this name already: give another one")
        for part, given in parts.items():
            with within(f"variants.{name}"):
                check_keywords("the variant", part, given)
    for part, datasets in (entries_of_file.get("tuned") or {}).items():
        with within(f"tuned.{part}"):
            known("method", part, registered("methods"))
            for dataset, given in datasets.items():
                known("dataset", dataset, registered("datasets"))
                check_keywords(dataset, part, given)


def merge_entries(key: str, sources: dict[str, dict]) -> dict[str, dict]:
    """Merge the entries of all sources; UsageError if a name has two meanings."""
    merged: dict[str, dict] = {}
    for name, entries in ((n, s.get(key) or {}) for n, s in sources.items()):
        for entry, value in entries.items():
            if merged.setdefault(entry, value) != value:
                raise UsageError(
                    f"{name}: {key}.{entry} already means something else in another study: give "
                    "this entry another name"
                )
    return merged


def list_grid_names(studies: dict[str, dict], axis: str) -> list[str]:
    """Return the names of an axis that the grids of studies have, each once."""
    scales = [scale for study in studies.values() for scale in study["scales"].values()]
    blocks = [block for scale in scales for grid in scale["grids"].values() for block in grid]
    return [*dict.fromkeys(name for block in blocks for name in listed(block.get(axis)))]


def list_defaults(part: str) -> dict[str, Any]:
    """Return the hyper-parameters of a method's file with their defaults."""
    return source.keywords(f"methods.{part}", "method")


def same_type(value: Any, default: Any) -> Any:
    """Return a whole number as a float where the default is one, so that 1 and 1.0 are the same."""
    return float(value) if type(default) is float and type(value) is int else value


def write_meaning(meaning: dict) -> str:
    """Write a meaning as a text; equal meanings give equal texts."""
    return json.dumps(meaning, sort_keys=True)
