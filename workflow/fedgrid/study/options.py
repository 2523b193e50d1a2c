"""Check the names in the options of products.

A file of `report/` may have a dict OPTIONS, which says for some of its options what their values
name (KINDS). The value of an option is a name, a list of names, or pairs whose keys and values are
names. For fields, and if the values are numbers, only the keys are names.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known, listed, shown, within
from fedgrid.study.products import BEST
from fedgrid.study.protocol import AXES, PROTOCOL
from fedgrid.study.resolving import Resolver
from fedgrid.study.stated import NAMED, GridNames

OPTIONS = "OPTIONS"  # the constant in a product's file
WAYS = ("tail", "best", "smoothed", "final", "tail_epochs")  # to score a run
TAILS = ("rounds", "epochs")  # what a protocol's `tail` counts
ON_REQUEST = ("balanced_accuracy", "macro_f1", "auroc", "calibration_error")
OVER_CLIENTS = ("mean", "weighted", "worst", "loss", *(f"decile{k}" for k in range(1, 10)))
METRICS = (
    *("accuracy", "loss", "train_loss", "effective_clients", "validation_accuracy"),
    *("validation_loss", "validation_own_mean", "distance_bound", "weight_distance"),
    *("averaged_accuracy", "averaged_loss"),
    *("validation_averaged_accuracy", "validation_averaged_loss"),
    "epsilon",
    *ON_REQUEST,
    *(f"own_{name}" for name in ON_REQUEST),
    *(f"{model}_{of}" for model in ("own", "server") for of in OVER_CLIENTS),
)
RECALL = re.compile("(own_)?recall_.+")
LIKE = 0.85  # how like fedgrid's own name of a metric a misspelt one is
HOOKS = ("observe", "evaluate", "evaluate_server")  # of a method that records columns of its own


@dataclass
class Checker:
    """Checks names of one product, against the names of the grids that it is drawn from."""

    resolver: Resolver
    there: GridNames
    published: dict[str, Any]

    def check(self, module: str, options: dict[str, Any]) -> None:
        declared = source.literal(module, OPTIONS, None) or {}
        check_declared(module, declared)
        for option, kind in declared.items():
            if option in options:
                with within(f"with.{option}"):
                    for name in list_names(options[option], kind):
                        self.check_name(kind, name)
        if by := options.get(BEST, {}).get("by"):
            with within(f"with.{BEST}.by"):
                self.check_metric(by)

    def check_name(self, kind: str, name: str) -> None:
        if kind == "metric":
            self.check_metric(name)
        elif kind == "ending":
            self.check_ending(name)
        elif kind == "field" or (kind == "axis" and name not in AXES):
            self.check_field(name)
        elif kind != "axis":
            among = {"way": WAYS, "tail": TAILS, "published": self.published}.get(kind)
            known(KINDS[kind], name, self.there[kind] if among is None else among)

    def check_ending(self, name: str) -> None:
        methods = self.there["method"]
        if not any(method.endswith(name) for method in methods):
            endings = {f"+{method.rpartition('+')[2]}" for method in methods if "+" in method}
            known(KINDS["ending"], name, endings)

    def check_metric(self, name: str) -> None:
        """Refuse a metric that no run can have; methods may record columns of their own."""
        if name in METRICS or RECALL.fullmatch(name):
            return
        files = {file for part in self.list_parts() for file in source.reachable(f"methods.{part}")}
        texts = [source.text(file) for file in files if file.startswith("methods.")]
        has_own = any(f"{hook}=" in text for text in texts for hook in HOOKS)
        if not has_own or get_close_matches(name, METRICS, n=1, cutoff=LIKE):
            known(KINDS["metric"], name, METRICS)

    def check_field(self, name: str) -> None:
        """Refuse a field that neither protocols nor the methods of the grids have."""
        every = {part: source.keywords(f"methods.{part}", "method") for part in self.list_parts()}
        every["protocol"] = PROTOCOL
        plain = {name for defaults in every.values() for name in defaults}
        whole = {f"{defaults}.{name}" for defaults, names in every.items() for name in names}
        known(KINDS["field"], name, plain if "." not in name else whole)

    def list_parts(self) -> set[str]:
        return {part for method in self.there["method"] for part in self.resolver.parts(method)}


# What a name of each kind is called in an error.
KINDS: dict[str, str] = {
    **{axis: f"{axis} of the product's grids" for axis in NAMED},
    "ending": "ending of a method of the product's grids",
    "metric": "metric of runs",
    "way": "way to score a run",
    "tail": "unit of `tail`",
    "published": "entry of `published`",
    "field": "field of the product's runs",
    "axis": "field of the product's runs",
}


def check_declared(module: str, declared: Any) -> None:
    if not isinstance(declared, dict):
        raise UsageError(f"{source.file(module)}: {OPTIONS} is not a dict of options and KINDS")
    drawing = [name for name in ("draw", "wide", "plot") if name in source.definitions(module)]
    taken = {name for function in drawing for name in source.arguments(module, function)}
    for option, kind in declared.items():
        known(f"argument in {OPTIONS} of {source.file(module)}", option, taken)
        known(f"kind of names in {OPTIONS} of {source.file(module)}", kind, KINDS)


def list_names(value: Any, kind: str) -> Iterator[str]:
    """Yield the names in the value of an option; UsageError for one that is not text."""
    names = [*value] if isinstance(value, dict) else listed(value)
    if isinstance(value, dict) and kind != "field":
        for inner in value.values():
            names += [] if type(inner) in (int, float) else listed(inner)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"{shown(repr(name))} is not a name: write a name as text")
        yield name
