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
BEST_KEYS = ("over", "by", "methods")
BEST_SOURCES = ("runs", "settings")  # what the choice reads
FORMATS = ("csv", "tex", "html", "pdf", "svg", "png", "txt")
FIGURES = (".pdf", ".svg", ".png")  # formats of products that have a `plot`
CAPTION = "txt"  # a figure's caption: a file beside it, always written
SIZE = "size"  # an option of every figure: how wide it is
SIZES = ("column", "text")  # of a page of a paper


def product_module(study: str, product: str, entry: Product) -> str:
    """Return the module of a product, without importing it; UsageError if no file has it.

    `about` is the product's entry in the study. The file's name is the entry's `draw`, or else the
    product's name. A file in the study's own folder takes precedence over a shared file.
    """
    name, own = entry.get("draw", product), f"report/{study}"
    if name in registered(own):
        return f"report.{study}.{name}"
    try:
        known("product", name, [*registered("report"), *registered(own)])
    except UsageError as problem:
        if "draw" in entry:
            raise
        hint = "If the product has another name than its file, name the file with `draw:`"
        raise followed_by(problem, hint) from None
    return f"report.{name}"


def complete_product(study: str, product: str, entry: Product) -> Product:
    """Complete the entry of a product with default formats and category, if it has none.

    A product is a figure by default if its file has a `plot`, otherwise a table.
    """
    completed: Product = {"category": CATEGORY} | entry
    if "formats" not in entry:
        plots = "plot" in source.definitions(product_module(study, product, entry))
        completed["formats"] = [*(AS_FIGURE if plots else AS_TABLE)]
    if has_figure(completed["formats"]) and CAPTION not in completed["formats"]:
        completed["formats"] = [*completed["formats"], CAPTION]
    return completed


def has_figure(formats: list[str]) -> bool:
    return any(f".{form}" in FIGURES for form in formats)


def check_product(study: str, product: str, entry: Product) -> None:
    module, options = product_module(study, product, entry), dict(entry.get("with", {}))
    contract.product(module, entry["formats"])
    read_best(module, options)
    missing = [name for name in BEST_SOURCES if name not in entry["from"]]
    if BEST in options and missing:
        raise UsageError(
            f"`best` reads the source `{missing[0]}`: name it under `from`, with the same "
            "grid as the others"
        )
    needed, possible = list_parameters(module, options)
    if has_figure(entry["formats"]) and SIZE in options:
        known("size of a figure", options.pop(SIZE), SIZES)
    given = {*entry["from"], *options}
    if missing := [name for name in needed if name not in {*given, *GIVEN}]:
        raise UsageError(
            f"the product is drawn from {' and '.join(missing)}: name the source of each under "
            f"`from`, or its value under `with` if `draw` in {source.file(module)} takes a value"
        )
    if possible is not None:
        for name in sorted(given):
            known("source or option of the product", name, {*possible} - {*GIVEN})


def list_parameters(module: str, options: dict) -> tuple[list[str], list[str] | None]:
    """List the arguments that a product must have, and all that it may have; None allows any.

    With the option `best`, the sources for the choice are among both.
    """
    needed, possible = source.parameters(module, "draw")
    if BEST not in options or takes_best(module):
        return needed, possible
    more = [name for name in BEST_SOURCES if name not in needed]
    return [*needed, *more], possible and [*possible, *more, BEST]


def takes_best(module: str) -> bool:
    """Whether a product's `draw` takes `best`, and so chooses runs for each of its metrics."""
    return BEST in source.arguments(module, "draw")


def read_best(module: str, options: dict) -> dict | None:
    """Return the option `best` with the metric to choose by; None if the product takes `best`.

    Without `by`, the metric is that of the product.
    """
    if BEST not in options:
        return None
    check_best(source.file(module), options[BEST])
    given = {"over": None, "by": options.get("metric", "accuracy")} | options[BEST]
    return None if takes_best(module) else given


def check_best(where: str, best: Any) -> None:
    if not isinstance(best, dict) or not (listed(best.get("over")) or best.get("methods")):
        raise UsageError(
            f"{where}: `best` does not say in which fields the runs differ: write "
            "`with: {best: {over: lr, by: own_mean}}`, where `by` may be left out, or "
            "`with: {best: {methods: true}}` for hyper-parameters of methods"
        )
    for name in best:
        known(f"key of `best` in {where}", name, BEST_KEYS)
    for name in listed(best.get("over")):
        known(f"field of a protocol in `best` of {where}", name, PROTOCOL)
    if not isinstance(best.get("methods", False), bool):
        raise UsageError(f"{where}: `methods` in `best` is not true or false: write one of them")
    if not isinstance(best.get("by", ""), str):
        raise UsageError(f"{where}: `by` in `best` is not text: write the name of a metric")


def list_tuned(entry: Product) -> list[str]:
    """Return the fields of protocols by which a product chooses the best of its runs."""
    return listed(entry.get("with", {}).get(BEST, {}).get("over"))


def chooses_methods(entry: Product) -> bool:
    return bool(entry.get("with", {}).get(BEST, {}).get("methods"))
