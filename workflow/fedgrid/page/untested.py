"""Count the claims of a study that a scale does not test, and say why."""

from typing import cast

import pandas as pd

from fedgrid import claim as claims
from fedgrid.analysis import verdicts
from fedgrid.claim import Claim
from fedgrid.study.records import Study

REASONS = {  # by what stands in the way: a field of the claim, or what the scale lacks
    "dataset": "they name data that the scale does not have",
    "partition": "they name partitions that the scale does not have",
    "protocol": "they name protocols that the scale does not have",
    "along": "they compare steps of which the scale has only one",
    "maps": "they are about maps of images, and the scale has not measured these",
    "method": "they name methods that the scale's grids do not have",
    "files": "not all of their runs, or of what these measured, are there yet",
}


def count_untested(
    study: Study, wanted: pd.DataFrame, compared: dict[int, int], tuned: bool
) -> pd.DataFrame:
    """Return a row for all claims without comparisons, then one for each reason.

    `wanted` has the names of the runs of the scale's grid, and `compared` the number of comparisons
    by claim. Rows that we added are not counted. Without runs nothing is.
    """
    parents = claims.find_parents(study.get("claims", []))
    numbered = zip(verdicts.number_claims(study, None), parents, strict=True)
    every = [claim for claim, parent in numbered if not parent]
    rows = [
        (number, REASONS[find_reason(claim, wanted, tuned)])
        for number, claim in every
        if not compared.get(number)
    ]
    table = pd.DataFrame(rows, columns=["claim", "reason"])
    parts = [("", table), *table.groupby("reason", sort=False)]
    counted = [
        {
            "reason": reason,
            "untested": len(part),
            "claims": len(every),
            "numbers": ", ".join(map(str, part["claim"])),
        }
        for reason, part in parts
    ]
    return pd.DataFrame(counted)


def find_reason(claim: Claim, wanted: pd.DataFrame, tuned: bool) -> str:
    """Return the key of the reason why a claim has no comparisons."""
    if not claims.needs_runs(claim):
        return "maps"
    if verdicts.list_possible(claim, wanted, tuned):
        return "files"
    for field in ("dataset", "partition", "protocol", "along"):
        others = cast("Claim", {key: value for key, value in claim.items() if key != field})
        if field in claim and verdicts.list_possible(others, wanted, tuned):
            return field
    return "method"
