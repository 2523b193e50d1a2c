"""`draw --show`: a finished table is printed."""

from pathlib import Path

import pandas as pd
import pytest

import made
from fedgrid.commands import draw
from fedgrid.report._product import write_body
from fedgrid.report._shown import print_made
from fedgrid.runtime.names import UsageError
from fedgrid.study.reading import find_study, read_study

BY_SEED = """
study: fedsls
scale: quick
products:
  by_seed:
    draw: table
    from: {runs: runs/table1}
    with: {rows: seed, columns: method}
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with a configuration that has a product with options."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(BY_SEED)
    return tmp_path


def drawn(path: str, product: str, *options: str, study: str = "fedsls") -> None:
    """Draw a product into a file, from runs of FedAvg with 55, 60 and 50 percent."""
    made.runs({"fedavg": [55, 60, 50]}).to_csv("runs.csv", index=False)
    sources = ("--sources", "runs=runs.csv", "--scale", "paper")
    draw.main([product, "--study", study, *sources, *options, "--out", path])


def said(capsys, *words: str) -> str:
    draw.main([*words])
    return capsys.readouterr().out


def test_the_table_that_was_made_last_is_shown(place, capsys):
    drawn("results/table1.csv", "table1")
    assert "55.00 ± 5.00" in said(capsys, "table1", "--show")


def test_a_product_of_the_configuration_is_shown_with_its_options(place, capsys):
    entry = '{"draw": "table", "with": {"rows": "seed", "columns": "method"}}'
    drawn("results/by_seed.csv", "by_seed", "--entry", entry)
    lines = said(capsys, "by_seed", "--show").splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["0", "1", "2"]


def test_a_path_says_of_which_study_it_is(place, capsys):
    path = "results/studies/fedlmd/quick/table3.csv"
    drawn(path, "table3", study="fedlmd")
    assert "sooner" in said(capsys, "table3", "--show", path)
    assert "sooner" in said(capsys, "table3", "--study", "fedlmd", "--show")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel1"], "no product of fedsls is called `tabel1`: did you mean table1"),
        (["table33", "--study", "fedlmd"], "did you mean table3"),
        (["table1"], "results/table1.csv is missing: make it with `snakemake .* study=fedsls"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_sentence(words, message, place):
    with pytest.raises(UsageError, match=message) as found:
        draw.main([*words, "--show"])
    assert "\n" not in str(found.value)


def test_without_a_configuration_the_study_must_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="name it by --study"):
        draw.main(["table1", "--show"])


# -- at the end of a command of Snakemake ---------------------------------------------------------


def printed(capsys, *targets: str) -> str:
    print_made(targets, made.STUDIES | {"fedsls": read_study(find_study("fedsls"))}, "fedsls")
    return capsys.readouterr().out


def test_the_tables_among_the_targets_are_printed(place, capsys):
    drawn("results/table1.csv", "table1")
    assert "55.00 ± 5.00" in printed(capsys, "results/table1.csv", "results/table1.tex")
    path = "results/studies/fedlmd/quick/seed=0/table3.csv"
    drawn(path, "table3", study="fedlmd")
    assert "sooner" in printed(capsys, path)


@pytest.mark.parametrize("target", ["results/table1.tex", "fedsls", "results/runs/x/metrics.csv"])
def test_other_targets_are_not_printed(place, capsys, target):
    assert printed(capsys, target) == ""


def test_a_table_that_does_not_fit_on_the_screen_is_not_printed(place, capsys, monkeypatch):
    drawn("results/table1.csv", "table1")
    monkeypatch.setenv("LINES", "3")
    assert printed(capsys, "results/table1.csv") == ""


def test_a_few_wide_rows_have_a_line_for_each_cell():
    wide = pd.DataFrame({"says": ["a long sentence " * 5], "verdict": ["holds"]})
    lines = write_body(wide, 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert "verdict: holds" in lines
    many = pd.concat([wide] * 9)
    assert write_body(many, 200) == many.to_string(na_rep="")
