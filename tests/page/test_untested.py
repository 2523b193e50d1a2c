"""What the page says of claims without runs, and of verdicts that depend on the score window."""

import pandas as pd
import pytest

from fedgrid.page import making, sections
from fedgrid.page.sheets import Sheet

SETTINGS = {"protocol": "p", "dataset": "digits"}
WANTED = pd.DataFrame(
    [
        SETTINGS | {"partition": partition, "method": method, "seed": 0}
        for partition, method in (("dir0.5", "fedavg"), ("dir0.5", "moon"), ("dir0.1", "fedavg"))
    ]
)
OVER = {"says": "it is better", "section": "4", "method": "moon", "over": "fedavg", "least": 0}
CLAIMS = {  # by the reason why there are no comparisons
    "files": OVER,
    "dataset": OVER | {"dataset": "cifar10"},
    "partition": OVER | {"partition": "dir0.1"},
    "protocol": OVER | {"protocol": "q"},
    "along": OVER | {"along": {"partition": ["dir0.5", "dir0.1"]}},
    "method": OVER | {"method": "fedsls"},
    "maps": OVER | {"measure": "ssim median", "method": "area-f2", "over": "area-f4"},
}


@pytest.mark.parametrize("reason", CLAIMS)
def test_the_reason_is_what_stands_in_the_way(reason):
    assert making.find_reason(CLAIMS[reason], WANTED, False) == reason


def test_claims_without_comparisons_are_counted_by_reason_and_rows_of_ours_are_not():
    every = [OVER, OVER | {"added": True}, CLAIMS["dataset"], CLAIMS["method"], CLAIMS["dataset"]]
    table = making.count_untested({"claims": every}, WANTED, {1: 2}, False)
    found = table.set_index("reason")
    assert found.loc[""].to_dict() == {"untested": 3, "claims": 4, "numbers": "3, 4, 5"}
    assert found.loc[making.REASONS["dataset"], "numbers"] == "3, 5"
    assert found.loc[making.REASONS["method"], "untested"] == 1


def test_verdicts_that_change_with_another_way_to_score_are_listed(tmp_path):
    own = pd.DataFrame({"claim": [1, 2], "our_verdict": ["holds", "undecided"]})
    rows = [(1, "tail_epochs", "undecided"), (2, "tail_epochs", "undecided"), (2, "best", "holds")]
    metrics = pd.DataFrame(rows, columns=["claim", "metric", "our_verdict"])
    sheets = {
        name: Sheet(tmp_path / f"{name}.csv", table)
        for name, table in (("claims", own), ("metrics", metrics))
    }
    study = {"title": "", "products": {"claims": {"from": {}, "with": {"metrics": "tail_epochs"}}}}
    paper = sections.Paper("mine", study, [], {}, {"small": sheets}, None)
    assert paper.readings == ["tail_epochs"]
    assert [row["claim"] for row in paper.list_changed("small", "tail_epochs")] == ["1"]
    assert [row["claim"] for row in paper.list_changed("small", "best")] == ["2"]
