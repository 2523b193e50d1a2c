"""Tables for papers: names, numbers, ranks, and files that LaTeX compiles as they are."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from fedgrid.analysis import latex
from fedgrid.report import _formats, comparison
from fedgrid.report.fedsls import table1
from made import STUDIES, STUDY
from made_products import draw_product, list_products

EVERY = {"ranked": lambda row, column: True}


def write(
    wide: pd.DataFrame, study: dict = STUDY, caption: str = "All.", note: str = "", **options
) -> str:
    return latex.write_table([wide], study, (caption, note), "mine", **EVERY | options)


def body(text: str) -> list[str]:
    """The rows of a table in LaTeX, without its head."""
    return text.split("\\midrule\n")[1].split("\\bottomrule")[0].strip().splitlines()


def column(*texts: str, names=("fedavg", "fedprox", "moon", "mine")) -> pd.DataFrame:
    """A table with one column."""
    index = pd.Index(names[: len(texts)], name="method")
    return pd.DataFrame({"digits": texts}, index=index)


def cells(*texts: str, **options) -> list[str]:
    """The cells of a table with one column, in LaTeX."""
    rows = body(write(column(*texts), **options))
    return [row.split(" & ")[1].removesuffix(" \\\\") for row in rows]


# -- marks ----------------------------------------------------------------------------------------


def test_the_best_is_bold_and_the_second_underlined():
    best, second, third = cells("95.08", "94.00", "12.00")
    assert best == r"\best{\num{95.08}}"
    assert second == r"\secondbest{\num{94.00}}"
    assert third == r"\num{12.00}"


def test_equal_numbers_are_marked_alike():
    found = cells("95.08", "95.08", "94.00", "94.00")
    assert [one.split("{")[0] for one in found] == [r"\best"] * 2 + [r"\secondbest"] * 2


@pytest.mark.parametrize("texts", [("95.08",), ("95.08", "95.08"), ("95.08", "1/3 diverged")])
def test_without_two_different_numbers_nothing_is_marked(texts):
    assert not re.search(r"\\(second)?best\{\\num", "".join(cells(*texts)))


def test_what_is_not_compared_is_not_marked():
    wide = pd.DataFrame({("d", "ours"): ["1.0", "2.0"], ("d", "published"): ["9.0", "8.0"]})
    rows = body(latex.write_table([wide], {}, ("", ""), "x", table1.ranked))
    assert r"\best{\num{2.0}} & \num{8.0}" in rows[1]
    assert r"\num{9.0} \\" in rows[0]
    assert comparison.ranked(("FedAvg", "ours"), ()) > comparison.ranked(("FedAvg", "smoothed"), ())


def test_rows_of_different_datasets_are_not_compared():
    index = pd.MultiIndex.from_product([["a", "b"], ["x", "y"]], names=["dataset", "method"])
    wide = pd.DataFrame({"d": ["1.0", "2.0", "9.0", "8.0"]}, index=index)
    rows = [row.split(" & ")[-1] for row in body(write(wide))]
    assert [row.split("{")[0] for row in rows] == [
        r"\secondbest", r"\best", r"\best", r"\secondbest"
    ]  # fmt: skip
    alone = wide.xs("x", level="method")
    assert r"\best{\num" not in write(alone)


# -- numbers and names ----------------------------------------------------------------------------


def test_deviations_are_as_wide_as_the_widest():
    first, second, *_ = cells("95.08 ± 1.10", "57.39 ± 12.50", "1.00 ± 1.00")
    assert first == r"\best{$\num{95.08} \pm \phantom{0}\num{1.10}$}"
    assert second == r"\secondbest{$\num{57.39} \pm \num{12.50}$}"


def test_methods_have_the_labels_of_the_study():
    rows = body(write(column("1.0", "2.0", "3.0", names=("fedsl-f4", "fedprox-mu0.1", "my_own%"))))
    assert rows[0].startswith("FedSL $f = 4$ &")
    assert rows[1].startswith(r"FedProx ($\mu = 0.1$) &")
    assert rows[2].startswith(r"my\_own\% &")


def test_a_concentration_is_a_formula_and_a_name_is_upright():
    assert latex.write_latex("alpha=0.05") == r"$\alpha = 0.05$"
    assert latex.write_latex("s=2, lr = 1e-3.") == r"$s = 2$, $\mathrm{lr} = \num{1e-3}$."
    assert latex.write_latex("a_b & 5% #1 {x} ~ ^ \\") == (
        r"a\_b \& 5\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )


def test_letters_of_mathematics_and_what_latex_reads_at_the_beginning_of_a_line():
    assert latex.write_latex("λ ≤ Δ") == r"$\lambda$ $\le$ $\Delta$"
    assert latex.write_latex("[x]\ny") == "{[}x] y"


def test_the_caption_says_the_scale_and_is_escaped():
    text = write(column("1.0", "2.0"), caption="In percent (95 %): quick scale.")
    assert r"\caption{In percent (95 \%): quick scale.}" in text
    assert r"\label{tab:mine}" in text


def test_a_note_stands_below_the_table():
    text = write(column("1.0", "2.0"), note="Of 2 runs 2 are kept.")
    caption, table, note = (text.index(part) for part in ("All.", "midrule", "Of 2 runs"))
    assert caption < table < note
    assert "parbox" not in write(column("1.0", "2.0"))


# -- files ----------------------------------------------------------------------------------------


def compiled(path: Path) -> str:
    """What LaTeX says of a file that it compiles; skips without LaTeX and siunitx."""
    if not (shutil.which("pdflatex") and shutil.which("kpsewhich")):
        pytest.skip("pdflatex is not installed: no table is compiled")
    for package in ("siunitx", "booktabs", "array", "graphicx"):
        found = subprocess.run(["kpsewhich", f"{package}.sty"], capture_output=True)
        if found.returncode:
            pytest.skip(f"the LaTeX package {package} is not installed: no table is compiled")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", path.name]
    done = subprocess.run(
        command, cwd=path.parent, capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


PACKAGES = r"""\documentclass[twocolumn]{article}
\usepackage[T1]{fontenc}
\usepackage{array,booktabs,graphicx,siunitx}
"""
HOSTILE = pd.DataFrame(
    {("a_b%", "alpha=0.1", "ours"): ["95.08 ± 1.10", "1/3 diverged", "7.00 ± 12.00"],
     ("a_b%", "s=2", "published"): ["", "95.08", "a & b $ # { } ~ ^ \\ µ"],
     ("ü", "iid", "many words " * 6): ["long " * 30, "1e-05", "<5 %> λΔη ≤≥≈∞√"]},
    index=pd.Index(["[my_method%]", "fedprox-mu0.1", "fedsl-f2"], name="method"),
)  # fmt: skip


@pytest.mark.slow
def test_a_file_compiles_by_itself_and_inside_a_paper(tmp_path):
    path = tmp_path / "mine.tex"
    path.write_text(write(HOSTILE, caption="50 % of alpha=0.1 & more_", note="Kept: 1 & 2_."))
    said = compiled(path)
    assert "Overfull" not in said
    paper = tmp_path / "paper.tex"
    paper.write_text(
        PACKAGES + r"\begin{document}One\input{mine}two\input{mine}three.\end{document}"
    )
    compiled(paper)
    assert (tmp_path / "paper.pdf").stat().st_size > 0


@pytest.mark.slow
def test_the_tables_of_all_products_compile_in_one_document(tmp_path):
    names = []
    for study, name in (one.values for one in list_products()):
        product = draw_product(study, name)
        if hasattr(product, "wide"):
            names.append(f"{study}-{name}")
            table = product.table.assign(kept="Kept: 1 & 2_.")
            _formats.write_tex(product, table, tmp_path / f"{names[-1]}.tex", STUDIES[study])
    tables = "\\clearpage\n".join(f"\\input{{{name}}}" for name in names)
    paper = tmp_path / "paper.tex"
    paper.write_text(f"{PACKAGES}\\begin{{document}}{tables}\\end{{document}}")
    said = compiled(paper)
    assert "Overfull \\hbox" not in said


def test_a_name_that_is_missing_in_an_index_is_written():
    index = pd.MultiIndex.from_tuples([("fedavg", None), ("moon", "a")], names=["method", "of"])
    assert len(body(write(pd.DataFrame({"x": ["1", "2"]}, index=index)))) == 2


@pytest.mark.parametrize("study", STUDIES)
def test_every_label_of_a_study_is_written_in_latex(study):
    labels = STUDIES[study]["labels"]
    for label in [one for one in labels.values() if isinstance(one, str)]:
        assert not re.search(r"(?<!\\)[%&#_]", latex.write_latex(label))
