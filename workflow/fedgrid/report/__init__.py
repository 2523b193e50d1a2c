"""Tables and figures, one file each: a study's own in a folder of its name, the others here.

A file's docstring says what is shown; it is the caption in the report. It has

    draw(<sources>, study, scale) -> DataFrame   all numbers: a pure function, written as .csv
    caption(table) -> str                        one sentence for readers: what the numbers are
    wide(table) -> DataFrame                     optional: laid out for people, for .tex and .html
    plot(table, study) -> Figure                 optional: for .pdf and .svg

<sources> are the names that the study gives to the product's sources (`from:`).
"""

from fedgrid import source
from fedgrid.names import known, registered

CHANGES_RESULTS = False
FIGURES = (".pdf", ".svg")  # formats of products that have a `plot`


def module(study: str, product: str) -> str:
    """The module of a product, without importing it; UsageError for one that is in no file."""
    own = f"report.{study}"
    if product in registered(own.replace(".", "/")):
        return f"{own}.{product}"
    known("product", product, [*registered("report"), *registered(own.replace(".", "/"))])
    return f"report.{product}"


def sources(study: str, product: str) -> list[str]:
    """The names of the sources that the product's `draw` takes."""
    arguments = source.arguments(module(study, product), "draw")
    return [name for name in arguments if name not in ("study", "scale")]
