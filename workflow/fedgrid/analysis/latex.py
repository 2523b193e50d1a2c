r"""Tables for papers, in LaTeX: laid-out tables of texts, written by pandas' Styler.

A file can be read by `\input` into a paper, whose preamble needs the packages array, booktabs,
graphicx and siunitx (version 3). It also compiles by itself: outside a document it begins one.
"""

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from fedgrid.analysis.figures import label

BEGIN = r"""% Needs \usepackage{array, booktabs, graphicx, siunitx}, with version 3 of siunitx.
% Compiled by itself, this file is a document.
\expandafter\ifx\csname @nodocument\endcsname\relax\else
  \documentclass{article}
  \usepackage[T1]{fontenc}
  \usepackage[a4paper, landscape, margin=15mm]{geometry}
  \usepackage{array, booktabs, graphicx, siunitx}
  \pagestyle{empty}
  \begin{document}
  \def\endoftable{\end{document}}
\fi
"""
# The best number of a column, and the second.
MARKS = r"""\sisetup{text-series-to-math, reset-text-series = false, propagate-math-font}
\providecommand{\best}[1]{{\bfseries\boldmath #1}}
\providecommand{\secondbest}[1]{\underline{#1}}
"""
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"  # no wider than the text
END = "\\ifdefined\\endoftable\\expandafter\\endoftable\\fi\n"
LONG = 40  # characters of a text that is broken into lines
NAMES = ("method", "method_", "dataset", "protocol", "placebo")  # levels with names of files
GREEK = ("alpha", "beta", "gamma", "lambda", "mu", "tau", "eta", "rho", "sigma")
NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?")
VALUE = re.compile(r"([A-Za-z_]+?)_? ?= ?([-+.\w]+)")
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
SPECIAL |= {"<": "$<$", ">": "$>$", "\u00b1": r"$\pm$", "\u2212": "$-$", "\u2026": r"\dots{}"}
SPECIAL |= {"\u03b1": r"$\alpha$", "\u03b2": r"$\beta$", "\u03bc": r"$\mu$", "\u03c4": r"$\tau$"}

Ranked = Callable[[tuple, tuple], bool]  # row, column -> whether the cell is compared with others


def write(
    wide: pd.DataFrame, study: dict, caption: str, name: str, ranked: Ranked, lowest: bool = False
) -> str:
    """Return a laid-out table as LaTeX, with the label `tab:<name>`.

    Cells are texts. In each column, the best of the `ranked` numbers, which is the `lowest` or the
    highest, is bold, and the second best underlined; equal numbers are marked alike.
    """
    cells = wide.astype(object).where(wide.notna(), "").map(str)
    best, second = rank(cells, ranked, lowest)
    texts = cells.apply(column_of, axis=0) if len(cells) else cells
    for where, macro in ((best, "best"), (second, "secondbest")):
        texts = texts.mask(where, texts.map(partial(marked, macro)))
    for axis in ("index", "columns"):
        setattr(texts, axis, heading(getattr(wide, axis), study))
    body = texts.style.to_latex(
        column_format=columns_format(cells), hrules=True, multicol_align="c", multirow_align="naive",
        sparse_index=True,
    )  # fmt: skip
    head = "\\begin{table}[t]\n\\centering\n" + MARKS
    titled = f"\\caption{{{escape(caption)}}}\n\\label{{tab:{name}}}\n"
    return f"{BEGIN}{head}{titled}{FIT}%\n{body.strip()}%\n}}\n\\end{{table}}\n{END}"


# -- cells ----------------------------------------------------------------------------------------


def column_of(texts: pd.Series) -> pd.Series:
    """Return a column in LaTeX; deviations are as wide as the widest, so that points align."""
    found = texts.map(NUMBER.fullmatch)
    widest = max([len(one[2]) for one in found if one and one[2]], default=0)
    both = zip(texts, found, strict=True)
    return pd.Series([cell(*one, widest) for one in both], texts.index, dtype=object)


def cell(text: str, found: re.Match | None, widest: int) -> str:
    """Return a number with its deviation by siunitx, or an escaped text."""
    if not found:
        return escape(text)
    if not found[2]:
        return f"\\num{{{text}}}"
    room = f"\\phantom{{{'0' * (widest - len(found[2]))}}}" * (widest > len(found[2]))
    return f"$\\num{{{found[1]}}} \\pm {room}\\num{{{found[2]}}}$"


def marked(macro: str, text: str) -> str:
    """Return a cell with a macro around it."""
    return f"\\{macro}{{{text}}}"


def columns_format(cells: pd.DataFrame) -> str:
    """Return the alignment of all columns: numbers to the right, long texts in lines."""
    return "".join(
        [aligned(level.astype(str)) for level in levels_of(cells.index)]
        + [aligned(cells.iloc[:, at]) for at in range(cells.shape[1])]
    )


def levels_of(index: pd.Index) -> list[pd.Index]:
    """Return the levels of an index, one after the other."""
    return [index.get_level_values(level) for level in range(index.nlevels)]


def aligned(texts) -> str:
    """Return the alignment of one column."""
    there = [text for text in texts if text]
    if any(len(text) > LONG for text in there):
        return r">{\raggedright\arraybackslash}p{6cm}"
    return "r" if there and any(map(NUMBER.fullmatch, there)) else "l"


# -- ranks ----------------------------------------------------------------------------------------


def rank(cells: pd.DataFrame, ranked: Ranked, lowest: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return where the best and the second best numbers of each column are.

    A number is what a cell begins with. A column without two different numbers has no best.
    """
    values = cells.apply(lambda column: column.map(number)).astype(float)
    for at, column in enumerate(cells.columns):
        compared = [ranked(parts(row), parts(column)) for row in cells.index]
        values.isetitem(at, values.iloc[:, at].where(compared))
    places = values.rank(method="dense", ascending=lowest)
    several = places.max() > 1
    return places.eq(1) & several, places.eq(2) & several


def parts(name) -> tuple:
    """Return the names of a row or column, one for each level."""
    return name if isinstance(name, tuple) else (name,)


def number(text: str) -> float:
    """Return the number that a cell begins with; NaN for a text, such as that of a lost run."""
    found = re.match(r"[+-]?\d+(\.\d+)?(?= ±| \(|$)", text)
    return float(found[0]) if found else np.nan


# -- names ----------------------------------------------------------------------------------------


def heading(index: pd.Index, study: dict) -> pd.Index:
    """Return an index with readers' names in LaTeX, for its levels and their values."""
    found = [
        [readable(study, name, value) for value in level]
        for name, level in zip(index.names, levels_of(index), strict=True)
    ]
    names = [escape(str(name or "").removesuffix("_")) for name in index.names]
    if index.nlevels == 1:
        return pd.Index(found[0], name=names[0] or None)
    return pd.MultiIndex.from_arrays(found, names=names)


def readable(study: dict, level: str | None, value) -> str:
    """Return a heading in LaTeX; names of files are replaced by the study's labels."""
    text = str(value)
    return escape(written_name(study, text, str(level)) if level in NAMES else text)


def written_name(study: dict, name: str, axis: str = "") -> str:
    """Return the label of a name; `fedprox-mu0.1` is that of fedprox, and its values after it."""
    if (found := label(study, name, axis)) != name:
        return found
    bases = [at for at, letter in enumerate(name) if letter == "-"]
    for at in reversed(bases):
        if (found := label(study, name[:at], axis)) != name[:at]:
            values = re.findall(
                r"([A-Za-z_]+?)([-+]?[\d.]+(?:e[-+]?\d+)?|true|false)(?:-|$)", name[at + 1 :]
            )
            if values:
                return f"{found} ({', '.join(f'{key}={value}' for key, value in values)})"
    return name


def escape(text: str) -> str:
    """Return a text in LaTeX; `alpha=0.1` becomes a formula."""
    found, end = [], 0
    for match in VALUE.finditer(text):
        found += [plain(text[end : match.start()]), formula(*match.groups())]
        end = match.end()
    return "".join([*found, plain(text[end:])])


def plain(text: str) -> str:
    """Return a text with LaTeX's own letters escaped."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def formula(name: str, value: str) -> str:
    """Return `name = value` as a formula; a name that is no symbol is upright."""
    symbol = f"\\{name}" if name in GREEK else name
    symbol = symbol if len(name) == 1 or name in GREEK else f"\\mathrm{{{plain(name)}}}"
    end = value[len(value.rstrip(".")) :]  # the full stop of a sentence
    shown = value.rstrip(".")
    shown = (
        shown if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", shown) else f"\\mathrm{{{plain(shown)}}}"
    )
    return f"${symbol} = {shown}${end}"
