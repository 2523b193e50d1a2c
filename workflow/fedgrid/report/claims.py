"""The claims of the paper: the paper's own evidence, our evidence, and a verdict from both.

If a sentence is not consistent with the paper's own numbers, that is the verdict. Otherwise our
runs decide by paired tests over seeds (`analysis/verdicts.py`), or the fidelity study if the claim
is about it. `we_test` says in words how we read the sentence.
The product `contrasts` shows every comparison.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis import claim_text, measures, tables, verdicts
from fedgrid.claim import Claim, find_direction
from fedgrid.study.records import Study

OPTIONS = {"metrics": "way"}  # what they name (study/options.py)
BY_CLAIM = True  # results/claims/3.csv is the row of claim 3, and needs the runs of claim 3 only
MISSING = "missing"  # a comparison without runs
PAPER = "paper"  # the scale of the paper's own setting
EVIDENCE = {  # the verb for one comparison and for several, and what follows it
    verdicts.HOLDS: ("holds", "hold", ""),
    verdicts.FAILS: ("does", "do", " not hold"),
    verdicts.SMALLER: ("is", "are", " smaller, in the right direction"),
    verdicts.LARGER: ("is", "are", " larger, in the right direction"),
    verdicts.EQUAL: ("is", "are", " equal by design"),
    verdicts.UNDECIDED: ("is", "are", " undecided"),
    MISSING: ("has", "have", " no runs"),
}
COLUMNS = [*claim_text.STATED, "published", "published_verdict", "ours", "our_verdict"]
COLUMNS += ["missing", *verdicts.DECIDING, "verdict", "caution"]
ROUNDED = dict.fromkeys(("difference", "low", "high", "p"), 4)  # decimals


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
    """Return a row per claim, or the row of one `claim`; `scores` are of the fidelity study.

    A claim without data of ours shows only the paper's evidence. `best` keeps the best runs by the
    metric of each measure, and needs the runs' `settings`. `metrics` are further ways to score a
    run (`scores.WAYS`); each adds a column with its verdict. If `runs` are only a part of the
    study's grid, `grid` has the blocks of the whole grid: comparisons that need other runs are
    `missing`, and count as undecided. `costs` are the summaries of runs that count operations, and
    `predictions` those of the server's models.
    """
    sources = {
        "runs": runs, "scores": scores, "settings": settings, "interpolation": interpolation,
        "costs": costs, "predictions": predictions,
    }  # fmt: skip
    wanted = verdicts.list_wanted(grid)
    values, missing = verdicts.measure_by_way(study, sources, best, metrics, wanted)
    own, printed = values.pop(""), measures.measure_printed(study)
    speaks_of = f"{scale} scale" + ("" if scale == PAPER else " only")
    if runs is not None:
        speaks_of += (
            f": {tables.join_values(runs, 'dataset')}, {tables.join_values(runs, 'rounds')} rounds"
        )
    table = judge_claims(study, scale, own, printed, missing, claim)
    table = table.assign(speaks_of=speaks_of, scale=scale)
    for way, measured in values.items():
        table[f"{verdicts.BY}{way}"] = [
            verdicts.judge_claim(each, measured, missing[number])[1]
            for number, each in verdicts.number_claims(study, claim)
        ]
    return verdicts.add_changes(table, "our_verdict", values) if metrics else table


def judge_claims(
    study: Study,
    scale: str,
    values: pd.DataFrame,
    printed: pd.DataFrame,
    missing: dict[int, int],
    claim: int | None = None,
) -> pd.DataFrame:
    rows = [
        {"claim": number, **judge_claim(each, values, printed, missing[number], scale, study)}
        for number, each in verdicts.number_claims(study, claim)
    ]
    judged = pd.DataFrame(rows, columns=["claim", *COLUMNS[len(claim_text.STATED) :]])
    judged = judged.assign(compared=claim_text.write_comparisons(judged, study))
    return claim_text.state_claims(study, claim).merge(judged, on="claim").round(ROUNDED)


def judge_claim(
    claim: Claim,
    values: pd.DataFrame,
    printed: pd.DataFrame,
    missing: int,
    scale: str,
    study: Study,
) -> dict:
    """Judge one claim by printed numbers and by our values; `missing` comparisons have no runs."""
    theirs = verdicts.judge_printed(claim, printed, study)
    ours, verdict = verdicts.judge_claim(claim, values, missing)
    final = theirs["published_verdict"]
    differs = scale != PAPER and verdict not in (verdicts.HOLDS, verdicts.UNDECIDED)
    sized = claim_text.CAUTION if differs and find_direction(claim) else ""
    return {
        **theirs,
        "ours": describe_evidence(ours, missing),
        "our_verdict": verdict,
        "missing": missing,
        **verdicts.find_deciding(ours, verdict),
        "verdict": final if final in verdicts.AGAINST else verdict,
        "caution": " ".join(filter(None, [sized, claim_text.write_explained(claim, values)])),
    }


def describe_evidence(comparisons: pd.DataFrame, missing: int = 0) -> str:
    """Count comparisons by verdict, in words: `1 of 24 holds, 21 are undecided, 2 have no runs`."""
    if comparisons.empty:
        return "no runs at this scale"
    counts = {**comparisons["verdict"].value_counts(), MISSING: missing}
    total = f" of {len(comparisons) + missing}"
    parts: list[str] = []
    for name, (one, several, rest) in EVIDENCE.items():
        if count := counts.get(name, 0):
            of = "" if parts else total
            parts.append(f"{count}{of} {one if count == 1 else several}{rest}")
    return ", ".join(parts)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    shown = table[["says", "we_test", "reading", "published", "ours"]].astype(object).fillna("")
    shown = shown.assign(
        deciding=table["compared"].astype(object).fillna(""),
        difference=[write_difference(row) for row in table.itertuples()],
        seeds_needed=table["seeds_needed"].map(write_seeds),
        verdict=table["verdict"],
        caution=table["caution"].astype(object).fillna(""),
    )
    return shown.join(verdicts.show_by_metric(table)).set_index("says")


def write_difference(row) -> str:
    if pd.isna(row.difference):
        return ""
    if np.isinf(row.difference):
        return f"{'the other runs' if row.difference > 0 else 'its runs'} diverged"
    return f"{row.difference:+.3g} [{row.low:.3g}, {row.high:.3g}], p={row.p:.2g}"


def write_seeds(seeds: float) -> str:
    return "" if pd.isna(seeds) else f">{verdicts.MANY}" if np.isinf(seeds) else f"{seeds:.0f}"


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "The study has no claims."
    missing = " Only a part of the study's runs was asked for. The comparisons that this part "
    missing += "lacks count as undecided."
    return (
        f"Claims of the paper; our evidence is of the {tables.join_values(table, 'speaks_of')}. A "
        "verdict is 'holds' or 'does not hold' if the 95 % intervals of paired differences over "
        f"seeds decide it.{verdicts.describe_changes(table, 'claims')}"
        f"{missing * bool(table['missing'].any())}"
    )
