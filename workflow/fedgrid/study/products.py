"""Find and check the files of tables and figures without importing them."""

from fedgrid.runtime import contract, source
from fedgrid.runtime.names import UsageError, known, registered

GIVEN = ("study", "scale")  # arguments of every `draw`, besides its sources and options
CATEGORY = "Results"  # the default heading in the report
AS_FIGURE, AS_TABLE = ("csv", "svg"), ("csv", "tex", "html")  # default formats
FIGURES = (".pdf", ".svg")  # formats of products that have a `plot`


def product_module(study: str, product: str, about: dict) -> str:
    """Return the module of a product, without importing it; UsageError if no file has it.

    `about` is the product's entry in the study. The file's name is the entry's `draw`, or else the
    product's name. A file in the study's own folder takes precedence over a shared file.
    """
    name, own = about.get("draw", product), f"report/{study}"
    if name in registered(own):
        return f"report.{study}.{name}"
    known("product", name, [*registered("report"), *registered(own)])
    return f"report.{name}"


def complete_product(study: str, product: str, about: dict) -> dict:
    """Return the entry of a product with its formats and its category, by default if it has none.

    A product is a figure by default if its file has a `plot`, otherwise a table.
    """
    defaults = {"category": CATEGORY}
    if "formats" not in about:
        plots = "plot" in source.definitions(product_module(study, product, about))
        defaults["formats"] = [*(AS_FIGURE if plots else AS_TABLE)]
    return defaults | about


def check_product(where: str, study: str, product: str, about: dict) -> None:
    """Raise a UsageError if no file draws the product, or its entry lacks a source or option."""
    module = product_module(study, product, about)
    contract.product(module, about["formats"])
    needed, possible = source.parameters(module, "draw")
    there = {*about["from"], *about.get("with", {}), *GIVEN}
    if missing := [name for name in needed if name not in there]:
        raise UsageError(
            f"{where} is drawn from {' and '.join(missing)}: name the source of each under "
            f"`from`, or its value under `with` if `draw` in {source.file(module)} takes a value"
        )
    for name in () if possible is None else sorted({*about["from"]} | {*about.get("with", {})}):
        known(f"source or option of {where}", name, {*possible} - {*GIVEN})
