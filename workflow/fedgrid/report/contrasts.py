"""Every comparison behind the claims: the difference over seeds, its 95 % interval, a verdict.

Differences are taken seed by seed (paired t-test); accuracies in points of percent.
"""

import pandas as pd

from fedgrid.analysis import tables, verdicts
from fedgrid.claim import Claim
from fedgrid.study.records import Study

OPTIONS = {"metrics": "way"}  # what they name (study/options.py)
BY_CLAIM = True  # as for `claims`
# A claim without comparisons.
NO_CLAIM: Claim = {"says": "", "section": "", "method": [], "least": 0}


def draw(
    study: Study,
    scale: str,
    runs: pd.DataFrame | None = None,
    scores: pd.DataFrame | None = None,
    claim: int | None = None,
    settings: pd.DataFrame | None = None,
    interpolation: pd.DataFrame | None = None,
    best: dict | None = None,
    metrics: str | list[str] | None = None,
    grid: list[dict] | None = None,
    costs: pd.DataFrame | None = None,
    predictions: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return a row per comparison, numbered by its claim; arguments as for `claims`."""
    sources = {
        "runs": runs, "scores": scores, "settings": settings, "interpolation": interpolation,
        "costs": costs, "predictions": predictions,
    }  # fmt: skip
    wanted = verdicts.list_wanted(grid)
    values, missing = verdicts.measure_by_way(study, sources, best, metrics, wanted)
    parts = [
        compare_by_way(each, values, missing[number]).assign(claim=number)
        for number, each in verdicts.number_claims(study, claim)
    ]
    nothing = compare_by_way(NO_CLAIM, values).assign(claim=0)
    table = pd.concat([part for part in parts if len(part)] or [nothing]).assign(scale=scale)
    table.insert(0, "claim", table.pop("claim"))
    rounded = [name for name in table if name.startswith(tuple(verdicts.EFFECT))]
    return table.round(dict.fromkeys([*rounded, "p"], 4))


def compare_by_way(claim: Claim, values: dict[str, pd.DataFrame], missing: int = 0) -> pd.DataFrame:
    """Judge each comparison of a claim, and beside it the same comparison by other ways to score.

    With others, the column `changes` says whether the verdict depends on the way.
    """
    own, *others = values
    table = verdicts.compare_claim(claim, values[own], missing)
    for way in others:
        also = verdicts.compare_claim(claim, values[way], missing)
        also = also[[*verdicts.COMPARED, *verdicts.EFFECT, "verdict"]]
        table = table.merge(also, how="left", on=verdicts.COMPARED, suffixes=("", f"_{way}"))
    return verdicts.add_changes(table, "verdict", others) if others else table


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return (
            "There is no comparison: the study has no claims, or there are no runs of the methods "
            "that its claims compare."
        )
    return (
        "Differences over seeds with their 95 % intervals (paired t-test) behind each claim: "
        f"{tables.join_values(table, 'scale')} scale."
    )
