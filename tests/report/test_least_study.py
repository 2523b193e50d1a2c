"""The least of a study: what is drawn for any, and what the sources of a product are to have."""

import itertools
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

import made
from fedgrid.commands import draw
from fedgrid.report import _product
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid
from fedgrid.study.reading import read_study

# As in README.md, with all that is drawn for any study.
MINE = """
title: mine
protocols: {mine: {base: fedsls-quick, model: resnet8, smallest_batch: 8}}
scales:
  quick:
    grids:
      main:
        - {protocol: mine, dataset: digits, partition: dir0.1, method: [fedavg, fedprox], seed: [0]}
products:
  convergence: {from: {runs: runs/main}, formats: [csv, tex, html, pdf, svg], category: Results}
  claims: {from: {runs: runs/main}, formats: [csv, tex, html], category: Results}
  contrasts: {from: {runs: runs/main}, formats: [csv, tex, html], category: Results}
  configuration: {from: {settings: settings/main}, formats: [csv, tex, html], category: Results}
"""
PRODUCTS = ["convergence", "claims", "contrasts", "configuration"]
UNCLAIMED = {
    "claims": "The study has no claims.",
    "contrasts": "There is no comparison: the study has no claims, or there are no runs of the "
    "methods that its claims compare.",
}
NAMES = {"protocol": "mine", "dataset": "digits", "partition": "dir0.1"}
RUNS = {
    "two methods": made.runs({"fedavg": [50], "fedprox": [52]}, **NAMES),
    "one method": made.runs({"fedavg": [50, 51]}, **NAMES),
    "a run that diverged": made.runs({"fedavg": [50], "fedprox": [None]}, **NAMES),
    "runs that diverged": made.runs({"fedavg": [None], "fedprox": [None]}, **NAMES),
    "no evaluation left": made.evaluations({0: 0.1}, diverged=True, **NAMES),
}


@pytest.fixture
def mine(tmp_path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def commanded(*arguments) -> None:
    draw.main([*map(str, arguments)])


def source(product: str, runs: pd.DataFrame, everything: Grid, folder: Path) -> str:
    """The only source of a product, as a file."""
    kind = "settings" if product == "configuration" else "runs"
    if kind == "settings":
        names = NAMES | {"method": "fedavg", "seed": 0}
        run, shared = everything.resolve(names), names | made.SUMMED
        rows = [{"of": None, "field": n, "value": v} | shared for n, v in run["protocol"].items()]
        runs = pd.DataFrame(rows)
    runs.to_csv(folder / f"{kind}.csv", index=False)
    return f"{kind}={folder}/{kind}.csv"


@pytest.mark.parametrize(
    ("product", "runs"),
    [
        *(pair for pair in itertools.product(PRODUCTS[:-1], RUNS)),
        (PRODUCTS[-1], "two methods"),  # of which it shows the settings alone
    ],
)
def test_a_product_for_any_study_is_drawn_in_all_formats(product, runs, mine, tmp_path, capsys):
    study = read_study(mine)
    everything = Grid(made.STUDIES | {"mine": study})
    formats = study["products"][product]["formats"]
    out = [tmp_path / f"{product}.{form}" for form in formats]
    given = source(product, RUNS[runs], everything, tmp_path)
    commanded(product, "--study", mine, "--sources", given, "--out", *out)
    assert all(path.stat().st_size for path in out)
    commanded(product, "--study", mine, "--show", out[0])
    said = capsys.readouterr().out.strip()
    assert said
    if product in UNCLAIMED:
        assert said == UNCLAIMED[product]
        assert f"<p>{said}</p>" in (tmp_path / f"{product}.html").read_text()
        assert f"% {said}\n" in (tmp_path / f"{product}.tex").read_text()
        assert len(_product.read_table(out[0])) == 0


def test_an_entry_of_a_product_needs_its_sources_only(tmp_path):
    head, _, _ = MINE.partition("products:")
    short = """products:
  sweep: {from: {runs: runs/main, settings: settings/main}, with: {along: mu}}
  best: {draw: tuned, from: {runs: runs/main, settings: settings/main}, with: {chosen_on: test}}
  table: {from: {runs: runs/main}, formats: [csv], category: Mine}
"""
    (tmp_path / "short.yaml").write_text(head + short)
    study = read_study(tmp_path / "short.yaml")
    Grid(made.STUDIES | {"short": study})
    whole = {n: (about["formats"], about["category"]) for n, about in study["products"].items()}
    assert whole == {
        "sweep": (["csv", "svg", "txt"], "Results"),
        "best": (["csv", "tex", "html"], "Results"),
        "table": (["csv"], "Mine"),
    }


@pytest.mark.parametrize("product", ["claims", "contrasts"])
def test_no_claims_have_the_columns_of_claims(product):
    runs = RUNS["two methods"]
    claim = {"says": "better", "section": "1", "method": "fedprox", "over": "fedavg", "least": 0}
    module = import_module(f"fedgrid.report.{product}")
    tables = [module.draw(study, "quick", runs) for study in ({}, {"claims": [claim]})]
    assert [len(table) for table in tables] == [0, 1]
    assert tables[0].columns.tolist() == tables[1].columns.tolist()


def test_a_table_is_no_picture(mine, tmp_path):
    given = source("claims", RUNS["two methods"], Grid(made.STUDIES), tmp_path)
    with pytest.raises(UsageError, match=r"a\.svg cannot be drawn: the product is a table"):
        commanded("claims", "--study", mine, "--sources", given, "--out", tmp_path / "a.svg")
    study = read_study(mine)
    study["products"]["claims"]["formats"] = ["csv", "svg"]
    with pytest.raises(UsageError, match="no function `plot`, which pdf, svg and png"):
        Grid(made.STUDIES | {"mine": study})


def test_only_a_column_of_a_source_is_missed_in_a_sentence(mine, tmp_path, monkeypatch):
    runs = tmp_path / "runs.csv"
    asked = ["convergence", "--study", mine, "--sources", f"runs={runs}", "--out"]
    RUNS["two methods"].drop(columns="accuracy").to_csv(runs, index=False)
    with pytest.raises(UsageError, match="no metric of these runs is called `accuracy`"):
        commanded(*asked, tmp_path / "a.csv")
    RUNS["two methods"].drop(columns="round").to_csv(runs, index=False)
    with pytest.raises(UsageError, match="a source of convergence has no column 'round'"):
        commanded(*asked, tmp_path / "a.csv")
    product = import_module("fedgrid.report.convergence")
    monkeypatch.setattr(product, "draw", lambda runs, study, scale: study["published"])
    with pytest.raises(KeyError, match="published"):
        commanded(*asked, tmp_path / "a.csv")
    monkeypatch.setattr(
        product, "draw", lambda runs, study, scale: runs.drop(columns="seed")["seed"]
    )
    with pytest.raises(KeyError, match="seed"):
        commanded(*asked, tmp_path / "a.csv")
