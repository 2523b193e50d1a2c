"""Published numbers: those with wrong names or lengths, and what they say of a paper's claims."""

import copy

import pytest

import made
from fedgrid.analysis import verdicts
from fedgrid.report import printed
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid

WRONG = {
    "no dataset": (["table3", "columns", 0, 0], "mnits", r"table3: no dataset .*is called `mnits`"),
    "no partition": (["table3", "columns", 0, 1], "shard2", "table3: no partition .* `shard2`"),
    "no protocol": (["table4", "columns", 1, 2], "fedlmd-mobile", "no protocol .* `fedlmd-mobile`"),
    "a short row": (["table5", "rows", "fedlmd"], [], r"rows\.fedlmd has 0 values for 1 columns"),
    "a long row": (["table3", "speedups", "fedrs"], [1.0] * 15, "has 15 values for 14 columns"),
    "no method": (["table3", "speedups", "fedrss"], [1.0] * 14, "no method .* `fedrss`"),
}


def changed(path: list, value) -> dict:
    """FedLMD's study with another value there."""
    study = copy.deepcopy(made.STUDIES["fedlmd"])
    *above, last = path
    place = study
    for key in above:
        place = place[key]
    place[last] = value
    return made.STUDIES | {"fedlmd": study}


@pytest.mark.parametrize(("path", "value", "message"), WRONG.values(), ids=WRONG)
def test_published_numbers_without_a_place_are_refused(path, value, message):
    with pytest.raises(UsageError, match=message):
        Grid(changed(["published", *path], value))


def test_the_main_setting_is_of_protocols_that_there_are():
    with pytest.raises(UsageError, match=r"fedlmd\.yaml: no protocol of `main` .*`fedlmt`"):
        Grid(changed(["main", 0], "fedlmt"))


# --- what printed numbers say ----------------------------------------------------------------

PAPER = {
    "columns": [["mnist", "dir0.1"], ["mnist", "dir0.5"]],
    "rows": {"fedavg": [50, 60], "moon": [53, 59]},
}
CLAIM = {"says": "better", "section": "1", "method": "moon", "over": "fedavg"}
CLAIMS = [
    CLAIM | {"least": 0},  # +3 and -1: one of two
    CLAIM | {"least": -2, "section": "2"},
    CLAIM | {"least": 0, "partition": ["dir0.1"]},
    CLAIM | {"least": 0, "method": "fedprox"},  # of which nothing is printed
]


def test_claims_are_judged_by_the_printed_numbers_alone():
    study = {"claims": CLAIMS, "published": {"table1": PAPER}}
    table = printed.draw(study, "quick")
    one = "+3.00 (over fedavg, mnist, alpha=0.1)"
    both = f"-1.00 (over fedavg, mnist, alpha=0.5) to {one}"
    columns = ["claim", "says", "section", "published", "published_verdict"]
    assert table[columns].values.tolist() == [
        [1, "better", "1", f"1 of 2 comparisons: {both}", verdicts.CONTRADICTED],
        [2, "better", "2", f"2 of 2 comparisons: {both}", "consistent"],
        [3, "better", "1", f"1 of 1 comparison: {one}", "consistent"],
        [4, "better", "1", "no numbers are printed", ""],
    ]
    assert table["we_test"].tolist()[1] == "moon minus fedavg is at least -2 points"
    shown = printed.wide(made.read(table))
    assert shown.columns.tolist() == ["section", "we_test", "published", "verdict"]
    assert shown["verdict"].tolist()[-1] == ""
    assert "that the paper itself prints" in printed.caption(table)


def test_a_study_without_claims_has_nothing_to_judge():
    table = printed.draw({}, "quick")
    assert table.empty
    assert printed.caption(table) == "The study has no claims."
