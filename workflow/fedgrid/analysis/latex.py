r"""Tables for papers, in LaTeX: laid-out tables of texts, written by pandas' Styler.

A file can be read by `\input` into a paper, whose preamble needs the packages array, booktabs,
graphicx and siunitx (version 3). It also compiles by itself: outside a document it begins one.
"""

import re
from collections.abc import Sequence

import pandas as pd

from fedgrid.analysis import readable
from fedgrid.analysis.symbols import LETTERS, write_symbols
from fedgrid.study.records import Study

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
MARKS = r"""\sisetup{reset-math-version = false}
\providecommand{\best}[1]{{\bfseries\boldmath #1}}
\providecommand{\secondbest}[1]{\underline{#1}}
"""
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"  # no wider than the text
BELOW = "\\par\\smallskip\n"
END = "\\ifdefined\\endoftable\\expandafter\\endoftable\\fi\n"
LATIN = {*map(chr, range(0x180)), *map(chr, range(0x2010, 0x203B)), "\u20ac", "\u2122"}
LONG = 40  # characters of a text that is broken into lines
CAPITALS = ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega")
MEAN = re.compile(rf"({readable.NUMBER})(?: ± ({readable.NUMBER}))?")  # with its deviation
VALUE = re.compile(rf"([A-Za-z_{''.join(LETTERS.values())}]+?)_? ?= ?([-+\u2212.\w]+)")
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
SPECIAL |= {"<": "$<$", ">": "$>$", "\u00b1": r"$\pm$", "\u2212": "$-$", "\u2026": r"\dots{}"}
SPECIAL |= {"\n": " ", "[": "{[}", "\u00d7": r"$\times$", "\u221e": r"$\infty$"}
SPECIAL |= {"\u221a": r"$\surd$"}
SPECIAL |= {"\u2264": r"$\le$", "\u2265": r"$\ge$", "\u2248": r"$\approx$", "\u2260": r"$\ne$"}
SPECIAL |= {letter: f"$\\{name}$" for name, letter in LETTERS.items()}
SPECIAL |= {LETTERS[name.lower()].upper(): f"$\\{name}$" for name in CAPITALS}


def write_table(
    wides: Sequence[pd.DataFrame],
    study: Study,
    words: tuple[str, str],
    name: str,
    ranked: readable.Ranked,
    lowest: bool = False,
) -> str:
    """Return laid-out tables, one below the other, as LaTeX with the label `tab:<name>`.

    `words` are their caption and a note, which stands below them. Cells are texts. In each column,
    the best of the `ranked` numbers, which is the `lowest` or the highest, is bold, and the second
    best underlined; equal numbers are marked alike.
    """
    bodies = [f"{FIT}%\n{write_body(wide, study, ranked, lowest)}%\n}}\n" for wide in wides]
    head = "\\begin{table}[t]\n\\centering\n" + MARKS
    caption, note = map(write_latex, words)
    titled = f"\\caption{{{caption}}}\n\\label{{tab:{name}}}\n"
    below = f"{BELOW}\\parbox{{\\linewidth}}{{\\footnotesize {note}}}\n" * bool(note)
    return f"{BEGIN}{head}{titled}{BELOW.join(bodies)}{below}\\end{{table}}\n{END}"


def write_body(wide: pd.DataFrame, study: Study, ranked: readable.Ranked, lowest: bool) -> str:
    cells = readable.write_cells(wide)
    best, second = readable.find_best(cells, ranked, lowest)
    texts = cells.apply(write_column, axis=0) if len(cells) else cells
    texts = texts.mask(best, texts.map(r"\best{{{}}}".format))
    texts = texts.mask(second, texts.map(r"\secondbest{{{}}}".format))
    texts.index = readable.label_index(wide.index, study, write_latex)
    texts.columns = readable.label_index(wide.columns, study, write_latex)
    columns = [level.map(str) for level in readable.list_levels(cells.index)]
    columns += [cells.iloc[:, at] for at in range(cells.shape[1])]
    return texts.style.to_latex(
        column_format="".join(map(align_column, columns)), hrules=True, sparse_index=True,
        multicol_align="c", multirow_align="naive",
    ).strip()  # fmt: skip


# -- cells ----------------------------------------------------------------------------------------


def write_column(texts: pd.Series) -> pd.Series:
    """Return a column in LaTeX, in which deviations have equal width, so that points align."""
    matches = texts.map(MEAN.fullmatch)
    widest = max([len(match[2]) for match in matches if match and match[2]], default=0)
    both = zip(texts, matches, strict=True)
    return pd.Series([write_cell(*match, widest) for match in both], texts.index, dtype=object)


def write_cell(text: str, match: re.Match | None, widest: int) -> str:
    """Return a number with its deviation by siunitx, or an escaped text."""
    if not match:
        return write_latex(text)
    if not match[2]:
        return f"\\num{{{text}}}"
    room = f"\\phantom{{{'0' * (widest - len(match[2]))}}}" * (widest > len(match[2]))
    return f"$\\num{{{match[1]}}} \\pm {room}\\num{{{match[2]}}}$"


def align_column(texts) -> str:
    """Return the alignment of a column: numbers to the right, long texts in lines."""
    filled = [text for text in texts if text]
    if any(len(text) > LONG for text in filled):
        return r">{\raggedright\arraybackslash}p{6cm}"
    return "r" if filled and any(map(MEAN.fullmatch, filled)) else "l"


# -- names ----------------------------------------------------------------------------------------


def write_latex(text: str) -> str:
    """Return a text in LaTeX; `alpha=0.1` becomes a formula."""
    pieces, end, text = [], 0, write_symbols(text)
    for match in VALUE.finditer(text):
        pieces += [escape_letters(text[end : match.start()]), write_formula(*match.groups())]
        end = match.end()
    return "".join([*pieces, escape_letters(text[end:])])


def escape_letters(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def list_foreign(text: str) -> str:
    """Return the letters of a table that pdflatex cannot print; it prints those of LATIN."""
    return "".join(sorted({*text} - LATIN))


def write_formula(name: str, value: str) -> str:
    """Return `name = value` as a formula; a name that is no symbol is upright."""
    written = escape_letters(name)
    symbol = written.strip("$") if len(name) == 1 else f"\\mathrm{{{written}}}"
    end = value[len(value.rstrip(".")) :]  # the full stop of a sentence
    shown = value.rstrip(".").replace("\u2212", "-")
    if re.fullmatch(readable.NUMBER, shown):
        shown = f"\\num{{{shown}}}" if "e" in shown else shown
    else:
        shown = f"\\mathrm{{{escape_letters(shown)}}}"
    return f"${symbol} = {shown}${end}"
