"""Every comparison behind the claims: the difference over seeds, its 95 % interval and a verdict.

Differences are taken seed by seed (paired t-test); accuracies in points of percent.
"""

import pandas as pd

from fedgrid import claims, tables

NO_CLAIM = {"method": [], "least": 0}  # it compares nothing


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per comparison, numbered by its claim."""
    return of_values(claims.accuracies(runs), study, scale)


def of_values(values: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per comparison, of all that was measured."""
    found = [
        claims.compare(claim, values).assign(claim=number)
        for number, claim in enumerate(study.get("claims", []), start=1)
    ]
    nothing = claims.compare(NO_CLAIM, values).assign(claim=0)
    table = pd.concat([one for one in found if len(one)] or [nothing]).assign(scale=scale)
    table.insert(0, "claim", table.pop("claim"))
    return table.round(dict.fromkeys(("difference", "low", "high", "p"), 4))


def caption(table: pd.DataFrame) -> str:
    """What the numbers are."""
    if table.empty:
        return (
            "There is no comparison: the study states no claims, or there are no runs of what its "
            "claims compare."
        )
    return (
        "Differences over seeds with their 95 % intervals (paired t-test) behind each claim: "
        f"{tables.each(table, 'scale')} scale."
    )
