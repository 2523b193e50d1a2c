"""Write a product's files: CSV, TeX, HTML, figures and their captions."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedgrid.report._product import drop_kept, lay_out, write_note
from fedgrid.runtime import cli, files
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.products import FIGURES
from fedgrid.study.records import Study


def write_product(product, table, study: Study, paths: list[Path]) -> None:
    from fedgrid.analysis import figures

    study = figures.tell_apart(study, table)
    for path in paths:
        known("format", path.suffix, WRITERS)
        if path.suffix in FIGURES and not hasattr(product, "plot"):
            raise UsageError(f"{path} cannot be drawn: the product is a table and has no `plot`")
        with files.replacing(path) as temporary:
            WRITERS[path.suffix](product, table, temporary, study)


def write_tex(product, table, path: Path, study: Study) -> None:
    """Write a table for a paper, which also compiles by itself (`analysis/latex.py`)."""
    from fedgrid.analysis import latex

    caption, order = product.caption(table), find_order(product, table)
    words = caption, write_note(table)
    text = latex.write_table(lay_out(product, table), study, words, path.stem, *order)
    if foreign := latex.list_foreign(text):
        need = f"pdflatex cannot print the letters {foreign} of this table: compile it with"
        need += " lualatex or xelatex and a font that has them"
        cli.warn(f"{path.stem}: {need}")
        text = f"% {need}.\n{text}"
    path.write_text(f"% {' '.join(caption.split())}\n{text}", encoding="utf-8")


def write_html(product, table, path: Path, study: Study) -> None:
    from html import escape

    from fedgrid.analysis import html

    order = find_order(product, table)
    body = "\n<br>\n".join(html.write_table(of, study, *order) for of in lay_out(product, table))
    words = [escape(text, quote=False) for text in (product.caption(table), write_note(table))]
    page = PAGE.format(caption=words[0], body=body, note=words[1] and NOTE.format(words[1]))
    path.write_text(page, encoding="utf-8")


def find_order(product, table) -> tuple[Callable[..., bool], bool]:
    """Return which cells are compared with each other, and whether the lowest is the best."""
    from fedgrid.analysis.metrics import lower_is_better
    from fedgrid.analysis.tables import find_metric

    ranked = getattr(product, "ranked", None) or (lambda row, column: False)
    return ranked, lower_is_better(str(find_metric(table)))


def write_caption(product, table, path: Path, study: Study) -> None:
    words = filter(None, (product.caption(table), write_note(table)))
    path.write_text("\n\n".join(words) + "\n", encoding="utf-8")


def write_figure(product, table, path: Path, study: Study, form: str) -> None:
    """Write a figure for print (pdf), for screens (svg) or for slides (png).

    The caption with its note is not in the picture, but the file's metadata have it.
    """
    from fedgrid.analysis import figures

    text = table.to_csv() + str(study.get("labels"))
    with figures.use_style(getattr(product, "size", None), text), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # `use_style` has said it in a sentence
        figure = product.plot(drop_kept(table), study)
        about = f"{product.caption(table)} {write_note(table)}".strip()
        figures.save_figure(figure, path, form, about)


WRITERS: dict[str, Callable[..., None]] = {
    ".csv": lambda product, table, path, study: table.to_csv(path, index=False),
    ".tex": write_tex,
    ".html": write_html,
    ".pdf": partial(write_figure, form="pdf"),
    ".svg": partial(write_figure, form="svg"),
    ".png": partial(write_figure, form="png"),
    ".txt": write_caption,
}


PAGE = """<!doctype html>
<meta charset="utf-8">
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; color: #222; margin: 1.5em; }}
table {{ border-collapse: collapse; }}
.note {{ color: #555; font-size: .85em; }}
th, td {{ padding: .25em .7em; text-align: right; vertical-align: top; }}
th, td {{ border-bottom: 1px solid #ddd; }}
tbody th, thead th:first-child, thead th:has(> .words), td:has(> .words) {{ text-align: left; }}
thead th[colspan] {{ text-align: center; }}
thead tr:last-child:has(th:empty:last-child) th {{ text-align: left; }} /* names of the index */
tbody th {{ font-weight: normal; }}
thead th {{ border-bottom: 1px solid #222; }}
@media screen and (min-width: 1400px) {{ td:not(:has(> .words)) {{ white-space: nowrap; }} }}
@media print {{
  @page {{ size: landscape; margin: 10mm; }}
  body {{ font-size: 8pt; margin: 0; }} table {{ font-size: 6.5pt; }}
  th, td {{ padding: .15em .4em; }}
  tr {{ break-inside: avoid; }} thead {{ display: table-header-group; }}
}}
</style>
<p>{caption}</p>
{body}
{note}"""
NOTE = '<p class="note">{}</p>\n'
