"""Tables and figures, one file each: a study's own in the folder of its name, shared ones here.

An entry of a study names its file with `draw`, or has the name of the file. Its `caption` is shown
in the report, otherwise the first paragraph of the file's docstring. A file has

    draw(<sources>, study, scale) -> DataFrame   all numbers: a pure function, written as .csv
    caption(table) -> str                        one sentence for readers: what the numbers are
    wide(table) -> DataFrame                     optional: the layout for readers, .tex and .html
    below(table) -> DataFrame | None             optional: a second table, laid out, below it
    ranked(row, column) -> bool                  optional: whether a cell is compared with others
    plot(table, study) -> Figure                 optional: for .pdf and .svg

A product of another metric than the accuracy has its name in the column `of` of its table.

It may also have `OPTIONS`, a dict with what those of its options name whose values are names, such
as {"over": "method"}: they are checked when the study is read (`study/options.py`).

<sources> are tables, by the names under `from` in the entry. A function also gets those values
under `with` that it has arguments for.
"""

from fedgrid.runtime.places import search

__path__ = search("report")  # with the folder of one's own paper
