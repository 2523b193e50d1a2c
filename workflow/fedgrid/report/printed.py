"""What the paper's own printed numbers say of its claims: no run is needed.

A sentence is consistent with the printed numbers, is not consistent with them as we read it, or is
about numbers that are not printed. `claims` has the same beside our runs.
"""

import pandas as pd

from fedgrid.analysis import claim_text, measures, verdicts
from fedgrid.study.records import Study

COLUMNS = [*claim_text.STATED, "published", "published_verdict"]


def draw(study: Study, scale: str) -> pd.DataFrame:
    values = measures.measure_printed(study)
    rows = [
        {"claim": number, **verdicts.judge_printed(claim, values, study)}
        for number, claim in verdicts.number_claims(study, None)
    ]
    judged = pd.DataFrame(rows, columns=["claim", "published", "published_verdict"])
    return claim_text.state_claims(study).merge(judged, on="claim")


def wide(table: pd.DataFrame) -> pd.DataFrame:
    shown = table.drop(columns=["claim", "reading", "added"]).rename(
        columns={"published_verdict": "verdict"}
    )
    return shown.astype(object).fillna("").set_index("says")


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "The study has no claims."
    return "Claims of the paper, judged by the means that the paper itself prints."
