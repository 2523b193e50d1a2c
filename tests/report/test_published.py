"""Published values of several sources: a column for each, and citations in the caption."""

import json
from copy import deepcopy
from pathlib import Path

import pandas as pd
import pytest

import made
from fedgrid.analysis import measures, published
from fedgrid.commands import draw
from fedgrid.report import comparison
from fedgrid.report.fedsls import table1
from fedgrid.runtime.names import UsageError
from fedgrid.study.reading import read_study
from fedgrid.study.stated import check_published, collect_names

NAMES = {"protocol": "mine", "dataset": "digits", "partition": "dir0.1"}
RUNS = made.runs({"fedavg": [55, 60, 50], "fedprox": [58, 59, 60]}, **NAMES)
OWN = {"source": "Mine, table 1", "columns": [["digits", "dir0.1"]]}
OWN |= {"rows": {"fedavg": [51.5], "fedprox": [52]}}
OTHER = {"heading": "Li & Co", "source": "Li et al., 2022, table 3"}
OTHER |= {"columns": [["digits", "dir0.1"], ["digits", "iid"]], "rows": {"fedavg": [[49, 2.5], 70]}}
ELSEWHERE = {"heading": "Doe", "source": "Doe, 2023", "columns": [["digits", "iid"]]}
ELSEWHERE |= {"rows": {"fedavg": [80]}}
LABELS = {"title": "mine", "labels": {}, "products": {}}
ONE = LABELS | {"published": {"table1": OWN}}
SEVERAL = LABELS | {"published": {"table1": OWN, "li": OTHER, "doe": ELSEWHERE}}
BLOCK = {"protocol": "mine", "dataset": "digits", "partition": ["dir0.1", "iid"]}
BLOCK |= {"method": ["fedavg", "fedprox"], "seed": 0}


def test_each_source_has_a_column_and_the_papers_own_stays():
    table = table1.draw(RUNS, SEVERAL, "quick")
    before = table1.draw(RUNS, ONE, "quick")
    own = table.drop(columns=["published by Li & Co", "published by Li & Co (std)", "cited"])
    pd.testing.assert_frame_equal(own, before)
    shown = table1.wide(table)
    parts = [column[-1] for column in shown.columns]
    assert parts == ["ours", "published", "published by Li & Co"]
    assert [*shown.loc["fedavg"]] == ["55.00 ± 5.00", "51.50", "49.00 ± 2.50"]
    assert shown.loc["fedprox"].iloc[-1] == ""
    ranked = [table1.ranked(("fedavg",), column) for column in shown.columns]
    assert ranked == [True, False, False]


def test_a_source_without_a_value_of_the_table_is_neither_shown_nor_cited():
    table = table1.draw(RUNS, SEVERAL, "quick")
    assert not [name for name in table if "Doe" in name]
    assert set(table["cited"]) == {
        "Published: Mine, table 1. Published by Li & Co: Li et al., 2022, table 3."
    }
    only = SEVERAL | {"published": {"table1": OWN, "doe": ELSEWHERE}}
    pd.testing.assert_frame_equal(table1.draw(RUNS, only, "quick"), table1.draw(RUNS, ONE, "quick"))


def test_a_comparison_has_a_row_for_each_source():
    table = comparison.draw(RUNS, SEVERAL, "quick")
    shown = comparison.wide(table)
    assert shown.loc[("fedavg", "published by Li & Co")].tolist() == ["49.00 ± 2.50"]
    assert shown.loc[("fedavg", "published")].tolist() == ["51.50"]
    assert ("fedprox", "published by Li & Co") not in shown.index


def test_only_the_papers_own_numbers_are_evidence_for_its_claims():
    pd.testing.assert_frame_equal(measures.measure_printed(SEVERAL), measures.measure_printed(ONE))
    assert len(published.list_published_cells(SEVERAL)) == 2


def test_captions_have_the_citations_in_every_format(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    study = deepcopy(SEVERAL) | {
        "protocols": {"mine": {"base": "fedsls-quick"}},
        "scales": {"quick": {"grids": {"main": [BLOCK]}}},
        "products": {"comparison": {"from": {"runs": "runs/main"}}},
    }
    Path("mine.yaml").write_text(json.dumps(study))
    RUNS.to_csv("runs.csv", index=False)
    command = ["comparison", "--study", "mine.yaml"]
    out = [f"out.{form}" for form in ("csv", "tex", "html")]
    draw.main([*command, "--sources", "runs=runs.csv", "--out", *out])
    assert "Li et al., 2022, table 3" in Path("out.html").read_text()
    assert "published by Li \\& Co" in Path("out.tex").read_text()
    assert "Li et al., 2022, table 3" in Path("out.tex").read_text()
    draw.main([*command, "--show", "out.csv"])
    assert "Published by Li & Co: Li et al., 2022, table 3." in capsys.readouterr().out


# -- what is refused ------------------------------------------------------------------------------

GRIDS = collect_names([BLOCK])
UNCITED = {name: value for name, value in OTHER.items() if name != "source"}


def test_several_sources_may_have_different_values_for_a_cell():
    check_published(SEVERAL["published"], GRIDS)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"li2": OTHER | {"rows": {"fedavg": [48, 70]}}}, "published.li2: .* has the value 48"),
        ({"li2": UNCITED}, "published.li2: .*no citation"),
        ({"li2": OTHER | {"rows": {"fedavgg": [48, 70]}}}, "`fedavgg`: did you mean fedavg"),
    ],
)
def test_a_mistake_in_another_source_is_named(more, message):
    with pytest.raises(UsageError, match=message):
        check_published(SEVERAL["published"] | more, GRIDS)


def test_a_heading_is_one_line(tmp_path):
    path = tmp_path / "mine.yaml"
    wrong = {"li": OTHER | {"heading": "a\nb"}}
    path.write_text(json.dumps(LABELS | {"protocols": {}, "scales": {}, "published": wrong}))
    with pytest.raises(UsageError, match="heading"):
        read_study(path)
