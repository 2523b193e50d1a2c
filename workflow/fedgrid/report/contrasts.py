"""Every comparison behind the claims: the difference over seeds, its 95 % interval, a verdict.

Differences are taken seed by seed (paired t-test); accuracies in points of percent.
"""

import pandas as pd

from fedgrid.analysis import choice, measures, tables, verdicts
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
    choose = choice.make_chooser(runs, settings, best)
    more = {"costs": costs, "predictions": predictions}
    values = measures.measure_all(study, runs, scores, interpolation, choose, more=more)
    others = {
        way: measures.measure_all(study, runs, scores, interpolation, choose, way, more)
        for way in verdicts.other_metrics(runs, metrics)
    }
    named = choice.name_families(runs, settings, best)
    missing = verdicts.count_lacking(study, grid, named, bool(best))
    parts = [
        verdicts.compare_by_metric(each_claim, values, others, missing[number]).assign(claim=number)
        for number, each_claim in verdicts.number_claims(study, claim)
    ]
    nothing = verdicts.compare_by_metric(NO_CLAIM, values, others).assign(claim=0)
    table = pd.concat([part for part in parts if len(part)] or [nothing]).assign(scale=scale)
    table.insert(0, "claim", table.pop("claim"))
    ends = ["", *(f"_{way}" for way in others)]
    rounded = [f"{name}{end}" for name in verdicts.EFFECT for end in ends]
    return table.round(dict.fromkeys([*rounded, "p"], 4))


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
