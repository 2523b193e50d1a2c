"""Find and check the files of tables and figures without importing them."""

from typing import Any

from fedgrid.runtime.code import contract, source
from fedgrid.runtime.names import UsageError, followed_by, known, listed, registered
from fedgrid.study.protocol import PROTOCOL
from fedgrid.study.records import Product

GIVEN = ("study", "scale")  # arguments of every `draw`, besides its sources and options
CATEGORY = "Results"  # the default heading in the report
AS_FIGURE, AS_TABLE = ("csv", "svg"), ("csv", "tex", "html")  # default formats
BEST = "best"  # an option of every product: only the best of runs that differ in some fields
BEST_KEYS = ("over", "by")
BEST_SOURCES = ("runs", "settings")  # what the choice reads
FIGURES = (".pdf", ".svg", ".png")  # formats of products that have a `plot`


def product_module(study: str, product: str, about: Product) -> str:
    """Return the module of a product, without importing it; UsageError if no file has it.

    `about` is the product's entry in the study. The file's name is the entry's `draw`, or else the
    product's name. A file in the study's own folder takes precedence over a shared file.
    """
    name, own = about.get("draw", product), f"report/{study}"
    if name in registered(own):
        return f"report.{study}.{name}"
    try:
        known("product", name, [*registered("report"), *registered(own)])
    except UsageError as problem:
        if "draw" in about:
            raise
        hint = "If the product has another name than its file, name the file with `draw:`"
        raise followed_by(problem, hint) from None
    return f"report.{name}"


def complete_product(study: str, product: str, about: Product) -> Product:
    """Return the entry of a product with its formats and its category, by default if it has none.

    A product is a figure by default if its file has a `plot`, otherwise a table.
    """
    defaults: Product = {"category": CATEGORY}
    if "formats" not in about:
        plots = "plot" in source.definitions(product_module(study, product, about))
        defaults["formats"] = [*(AS_FIGURE if plots else AS_TABLE)]
    return defaults | about


def check_product(study: str, product: str, about: Product) -> None:
    """Raise a UsageError if no file draws the product, or its entry lacks a source or option."""
    module = product_module(study, product, about)
    contract.product(module, about["formats"])
    best_of_product(module, about.get("with", {}))
    check_best_sources(about)
    needed, possible = parameters_of(module, about.get("with", {}))
    there = {*about["from"], *about.get("with", {}), *GIVEN}
    if missing := [name for name in needed if name not in there]:
        raise UsageError(
            f"the product is drawn from {' and '.join(missing)}: name the source of each under "
            f"`from`, or its value under `with` if `draw` in {source.file(module)} takes a value"
        )
    if possible is not None:
        for name in sorted({*about["from"], *about.get("with", {})}):
            known("source or option of the product", name, {*possible} - {*GIVEN})


def parameters_of(module: str, options: dict) -> tuple[list[str], list[str] | None]:
    """Return the arguments that a product must have, and all that it may have, or None for any.

    With the option `best`, the sources for the choice are among both.
    """
    needed, possible = source.parameters(module, "draw")
    if BEST not in options or chooses_itself(module):
        return needed, possible
    more = [name for name in BEST_SOURCES if name not in needed]
    return [*needed, *more], possible and [*possible, *more, BEST]


def needed_sources(study: str, product: str, about: Product) -> set[str]:
    """Return those sources of a product that it cannot be drawn without."""
    needed, possible = parameters_of(product_module(study, product, about), about.get("with", {}))
    return {name for name in about["from"] if possible is None or name in needed}


def chooses_itself(module: str) -> bool:
    """Whether a product's `draw` takes `best`, because it has a choice for each of its metrics."""
    return BEST in source.arguments(module, "draw")


def best_of_product(module: str, options: dict) -> dict | None:
    """Return the option `best` with the metric to choose by; None if the product chooses itself.

    The metric is that of the product, if `best` names none.
    """
    if BEST in options:
        check_best(source.file(module), options[BEST])
    if BEST not in options or chooses_itself(module):
        return None
    return {"by": options.get("metric", "accuracy")} | options[BEST]


def check_best(where: str, best: Any) -> None:
    """Raise a UsageError unless `best` says between which runs to choose, and by which metric."""
    if not isinstance(best, dict) or not listed(best.get("over")):
        raise UsageError(
            f"{where}: `best` does not say in which fields the runs differ: write "
            "`with: {best: {over: lr, by: own_mean}}`, where `by` may be left out"
        )
    for name in best:
        known(f"key of `best` in {where}", name, BEST_KEYS)
    for name in listed(best["over"]):
        known(f"field of a protocol in `best` of {where}", name, PROTOCOL)
    if not isinstance(best.get("by", ""), str):
        raise UsageError(f"{where}: `by` in `best` is not text: write the name of a metric")


def check_best_sources(about: Product) -> None:
    """Raise a UsageError if a product with `best` lacks a source that the choice reads."""
    missing = [name for name in BEST_SOURCES if name not in about["from"]]
    if BEST in about.get("with", {}) and missing:
        raise UsageError(
            f"`best` reads the source `{missing[0]}`: name it under `from`, with the same "
            "grid as the others"
        )
