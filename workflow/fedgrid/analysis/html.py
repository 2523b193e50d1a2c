"""Tables for screens, in HTML: laid-out tables with labels for names, the best numbers bold.

Columns of words have the class `words`, by which a page aligns them to the left.
"""

import re
from functools import partial

import pandas as pd
from markupsafe import Markup, escape

from fedgrid.analysis import readable
from fedgrid.analysis.symbols import write_symbols
from fedgrid.partitions import write_label
from fedgrid.study.records import Study

METHODS = ("over", "plain")  # columns with names of methods, beside those of readable.NAMES
WORD = re.compile(r"[^\W\d_]{3,}")
INTERVAL = re.compile(r"\S+ \[[^][]*\]")  # a number with its interval


def write_table(
    wide: pd.DataFrame, study: Study, ranked: readable.Ranked, lowest: bool = False
) -> Markup:
    """Return a laid-out table as an HTML table of the class `product`.

    In each column the best of the `ranked` numbers, which is the `lowest` or the highest, is bold.
    """
    cells = readable.write_cells(wide)
    best, _ = readable.find_best(cells, ranked, lowest)
    shown = label_cells(cells, study).map(escape_text)
    shown = shown.mask(best, shown.map(Markup("<b>{}</b>").format))
    of_words = [is_of_words(cells.iloc[:, at]) for at in range(cells.shape[1])]
    for at in (at for at, words in enumerate(of_words) if words):
        shown.isetitem(at, shown.iloc[:, at].map(mark_words))
    heads = readable.label_index(wide.columns, study, escape_text)
    shown.index = readable.label_index(wide.index, study, escape_text)
    shown.columns = mark_heads(heads, of_words)
    return Markup(shown.to_html(border=0, escape=False, classes="product"))


def escape_text(text: str) -> Markup:
    """Return a text in HTML; no line break divides a number and its interval."""
    shown = write_symbols(text)
    return escape(INTERVAL.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), shown))


def label_cells(cells: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Replace the names in columns of methods, data sets, protocols and partitions by labels."""
    shown = cells.copy()
    for at, name in enumerate(cells.columns):
        if name == "partition":
            write = write_label
        elif name in (*readable.NAMES, *METHODS):
            write = partial(readable.write_name, study, axis=name)
        else:
            continue
        shown.isetitem(at, cells.iloc[:, at].map(partial(readable.write_steps, write)))
    return shown


def is_of_words(column: pd.Series) -> bool:
    """Whether most of the cells with a text have words, and not just numbers."""
    filled = [bool(WORD.search(text)) for text in column if text]
    return 2 * sum(filled) > len(filled)


def mark_heads(heads: pd.Index, of_words: list[bool]) -> pd.Index:
    """Mark the heads of columns of words, which are the last level, and write no underscores."""
    *groups, last = readable.list_levels(heads)
    texts = [Markup(head.replace("_", " ")) for head in last]
    pairs = zip(texts, of_words, strict=True)
    marked = [mark_words(text) if words else text for text, words in pairs]
    if not groups:
        return pd.Index(marked, name=heads.name)
    return pd.MultiIndex.from_arrays([*groups, marked], names=heads.names)


def mark_words(text: str) -> Markup:
    return Markup('<span class="words">{}</span>').format(text)
