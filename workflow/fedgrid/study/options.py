"""Check the names in the options of products.

A file of `report/` may have a dict OPTIONS, which says for some of its options what their values
name (KINDS). The value of an option is a name, a list of names, or pairs whose keys and values are
names. For fields, and if the values are numbers, only the keys are names.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any

from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, known, listed, shown, within
from fedgrid.study.products import BEST
from fedgrid.study.protocol import AXES, PROTOCOL
from fedgrid.study.resolving import Resolver
from fedgrid.study.stated import GridNames

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


class Checker:
    """Checks names of one product, against the names of the grids that it is drawn from."""

    def __init__(self, resolver: Resolver, grid_names: GridNames, published: dict[str, Any]):
        self.resolver, self.there, self.published = resolver, grid_names, published

    def check(self, module: str, options: dict[str, Any]) -> None:
        declared = source.literal(module, OPTIONS, None) or {}
        check_declared(module, declared)
        for option, kind in declared.items():
            if option in options:
                with within(f"with.{option}"):
                    for name in list_names(options[option], kind):
                        KINDS[kind](self, name=name)
        if by := options.get(BEST, {}).get("by"):
            with within(f"with.{BEST}.by"):
                self.metric(by)

    def named(self, axis: str, name: str) -> None:
        known(f"{axis} of the product's grids", name, getattr(self.there, axis))

    def ending(self, name: str) -> None:
        if not any(method.endswith(name) for method in self.there.method):
            endings = {
                f"+{method.rpartition('+')[2]}" for method in self.there.method if "+" in method
            }
            known("ending of a method of the product's grids", name, endings)

    def metric(self, name: str) -> None:
        """Refuse a metric that no run can have; methods may record columns of their own."""
        if name in METRICS or RECALL.fullmatch(name):
            return
        parts = {part for method in self.there.method for part in self.resolver.parts(method)}
        files = {file for part in parts for file in source.reachable(f"methods.{part}")}
        texts = [source.text(file) for file in files if file.startswith("methods.")]
        has_own = any(f"{hook}=" in text for text in texts for hook in HOOKS)
        if not has_own or get_close_matches(name, METRICS, n=1, cutoff=LIKE):
            known("metric of runs", name, METRICS)

    def way(self, name: str) -> None:
        known("way to score a run", name, WAYS)

    def tail(self, name: str) -> None:
        known("unit of `tail`", name, TAILS)

    def table(self, name: str) -> None:
        known("entry of `published`", name, self.published)

    def field(self, name: str) -> None:
        parts = {part for method in self.there.method for part in self.resolver.parts(method)}
        every = {part: source.keywords(f"methods.{part}", "method") for part in parts}
        every["protocol"] = PROTOCOL
        plain = {name for defaults in every.values() for name in defaults}
        whole = {f"{defaults}.{name}" for defaults, names in every.items() for name in names}
        known("field of the product's runs", name, plain if "." not in name else whole)

    def axis(self, name: str) -> None:
        if name not in AXES:
            self.field(name)


KINDS: dict[str, Callable[..., None]] = {
    **{axis: partial(Checker.named, axis=axis) for axis in AXES[:-1]},
    "ending": Checker.ending,
    "metric": Checker.metric,
    "way": Checker.way,
    "tail": Checker.tail,
    "published": Checker.table,
    "field": Checker.field,
    "axis": Checker.axis,
}


def check_declared(module: str, declared: Any) -> None:
    if not isinstance(declared, dict):
        raise UsageError(f"{source.file(module)}: {OPTIONS} is not a dict of options and KINDS")
    for option, kind in declared.items():
        taken = {
            name
            for f in ("draw", "wide", "plot")
            if f in source.definitions(module)
            for name in source.arguments(module, f)
        }
        known(f"argument in {OPTIONS} of {source.file(module)}", option, taken)
        known(f"kind of names in {OPTIONS} of {source.file(module)}", kind, KINDS)


def list_names(value: Any, kind: str) -> Iterator[str]:
    names = [*value] if isinstance(value, dict) else listed(value)
    if isinstance(value, dict) and kind != "field":
        inner = (
            listed(inner_value)
            for inner_value in value.values()
            if type(inner_value) not in (int, float)
        )
        names += [name for inner_value in inner for name in inner_value]
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"{shown(repr(name))} is not a name: write a name as text")
        yield name
