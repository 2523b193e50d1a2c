"""Symbols of hyper-parameters, minus signs, intervals and colours of texts, as people see them."""

import re

import numpy as np
import pandas as pd
import pytest

from fedgrid.analysis import figures, html, latex
from fedgrid.analysis.symbols import write_symbols

ALPHA, MU, MINUS = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER MU}", "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("CIFAR-10, alpha=0.1", f"CIFAR-10, {ALPHA}=0.1"),
        (
            "FedProx (mu=0.1), feddyn.alpha. alpha_0",
            f"FedProx ({MU}=0.1), feddyn.{ALPHA}. {ALPHA}_0",
        ),
        ("`alpha` of results/alpha/mu.csv, alphabet", "`alpha` of results/alpha/mu.csv, alphabet"),
        ("fedprox-mu0.1 $\\mu$", "fedprox-mu0.1 $\\mu$"),
        ("-0.5 [-1.2, 3], 1e-05, 2-3, ours - printed", None),
    ],
)
def test_words_of_symbols_and_minus_signs_and_nothing_else_are_replaced(text, written):
    expected = f"{MINUS}0.5 [{MINUS}1.2, 3], 1e-05, 2-3, ours {MINUS} printed"
    assert write_symbols(text) == (expected if written is None else written)


def test_every_text_of_a_figure_has_letters(tmp_path):
    with figures.use_style("column"):
        figure, ((axes,),) = figures.panels(1, 1)
        axes.plot([1, 2], [1, 2], label="beta")
        axes.set(title="alpha=0.1", xlabel="mu")
        axes.set_xticks([1, 2], ["gamma=1", "lambda=2"])
        figures.legend(figure, [axes])
        figures.save_figure(figure, tmp_path / "figure.svg", "svg", "alpha of a caption")
    drawn = (tmp_path / "figure.svg").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert not re.search("alpha|beta|gamma|lambda|mu", " ".join(texts))
    assert f"{ALPHA}=0.1" in texts


def test_an_interval_has_a_real_minus_and_no_line_break():
    wide = pd.DataFrame({"alpha": ["-0.50 [-1.20, 0.20], p = 0.4"]}, index=["fedavg"])
    shown = html.write_table(wide, {}, lambda *_: False)
    blank = "\N{NO-BREAK SPACE}"
    assert f">{MINUS}0.50{blank}[{MINUS}1.20,{blank}0.20], p = 0.4<" in shown
    assert f">{ALPHA}<" in shown
    two = pd.DataFrame({"x": ["-0.50 [-1.20, 0.20]", "-2.00"]}, index=["fedavg", "moon"])
    best = html.write_table(two, {}, lambda *_: True)
    assert f"<b>{MINUS}0.50{blank}[{MINUS}1.20,{blank}0.20]</b>" in best
    written = latex.write_table([wide], {}, ("", ""), "x", lambda *_: False)
    assert "$-$0.50 {[}$-$1.20, 0.20], $p = 0.4$" in written
    assert r"$\alpha$" in written


@pytest.mark.parametrize("colour", ["#E69F00", "#56B4E9", "#CC79A7", "0.75", "white"])
def test_a_text_in_a_light_colour_is_darkened_until_it_is_read(colour):
    assert (
        figures.compute_contrast(colour) < 4.5 <= figures.compute_contrast(figures.darken(colour))
    )
    assert figures.darken("#0072B2") == "#0072B2"


def test_the_contrast_of_black_and_of_white():
    assert [figures.compute_contrast(c) for c in ("black", "white")] == pytest.approx([21, 1])


def test_a_name_at_the_end_of_a_light_line_is_darker_than_the_line():
    _, ((axes,),) = figures.panels(1, 1)
    axes.plot([0, 1], [1, 2], color="#56B4E9", label="light")
    figures.name_lines([axes])
    assert figures.compute_contrast(axes.texts[0].get_color()) >= figures.CONTRAST
    assert np.array_equal(axes.lines[0].get_color(), "#56B4E9")
