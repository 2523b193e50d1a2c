"""The paper's checkable sentences: its own evidence, ours, and a verdict computed from both.

A sentence that the paper's printed numbers contradict is reported as such; otherwise the runs
decide by paired tests over seeds (how, says fedgrid/claims.py; each comparison is in contrasts).
"""

import numpy as np
import pandas as pd

from fedgrid import claims, tables

PAPER = "paper"  # the scale that speaks of the paper
COMPARED = ["measure", "method", "over", "protocol", "dataset", "partition"]
DECIDING = [*COMPARED, "difference", "low", "high", "p", "seeds", "seeds_needed"]
COLUMNS = ["says", "section", "published", "published_verdict", "ours", "our_verdict"]
COLUMNS += [*DECIDING, "verdict"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per claim."""
    return of_values(claims.accuracies(runs), runs, study, scale)


def of_values(values: pd.DataFrame, runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per claim, of all that was measured; `runs` say what it speaks of."""
    printed = claims.published(study)
    made = f"{tables.each(runs, 'dataset')}, {tables.each(runs, 'rounds')} rounds"
    about = f"{scale} scale" + ("" if scale == PAPER else " only") + f": {made}"
    rows = [row(claim, values, printed) for claim in study.get("claims", [])]
    table = pd.DataFrame(rows, columns=COLUMNS).assign(speaks_of=about, scale=scale)
    table.insert(0, "claim", range(1, len(table) + 1))
    return table.round(dict.fromkeys(("difference", "low", "high", "p"), 4))


def row(claim: dict, values: pd.DataFrame, printed: pd.DataFrame) -> dict:
    """The evidence for and against one claim."""
    theirs, ours = claims.printed(claim, printed), claims.compare(claim, values)
    verdict = claims.verdict(ours, claim.get("share"))
    final = theirs["published_verdict"]
    return {
        **{"says": claim["says"], "section": claim["section"], **theirs},
        **{"ours": evidence(ours), "our_verdict": verdict},
        **deciding(ours),
        "verdict": final if final == claims.CONTRADICTED else verdict,
    }


def evidence(comparisons: pd.DataFrame) -> str:
    """How many comparisons hold, do not hold and are open."""
    if comparisons.empty:
        return "no runs at this scale"
    found = comparisons["verdict"].value_counts()
    counted = (f"{found[name]} {name}" for name in found.index)
    return f"of {len(comparisons)} comparisons " + ", ".join(counted)


def deciding(comparisons: pd.DataFrame) -> dict:
    """The numbers of the comparison on which the verdict hangs: the worst, then the most open."""
    if comparisons.empty:
        return dict.fromkeys(DECIDING, np.nan)
    rank = comparisons["verdict"].map({claims.FAILS: 0, claims.UNDECIDED: 1, claims.HOLDS: 2})
    ordered = comparisons.assign(rank=rank).sort_values(
        ["rank", "seeds_needed", "p"], ascending=[True, False, False], kind="stable"
    )
    return ordered[DECIDING].iloc[0].to_dict()


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """What people read: the sentence, both kinds of evidence, the deciding numbers, the verdict."""
    several = tables.varies(table.dropna(subset="protocol"), "protocol")
    names = [name for name in COMPARED if several or name != "protocol"]
    where = table[names].astype(object).fillna("")
    shown = table[["says", "published", "ours"]].assign(
        deciding=[" ".join(row).strip() for row in where.itertuples(index=False)],
        difference=[numbers(row) for row in table.itertuples()],
        seeds_needed=table["seeds_needed"].map(counted),
        verdict=table["verdict"],
    )
    return shown.set_index("says")


def numbers(row) -> str:
    """A difference with its interval and p, as a text."""
    if pd.isna(row.difference):
        return ""
    if np.isinf(row.difference):
        return f"{'other runs' if row.difference > 0 else 'its runs'} diverged"
    return f"{row.difference:+.3g} [{row.low:.3g}, {row.high:.3g}], p={row.p:.2g}"


def counted(seeds: float) -> str:
    """A number of seeds, as a text."""
    return "" if pd.isna(seeds) else f">{claims.MANY}" if np.isinf(seeds) else f"{seeds:.0f}"


def caption(table: pd.DataFrame) -> str:
    """What the verdicts speak of."""
    if table.empty:
        return "The study states no claims."
    return (
        f"Claims of the paper; our evidence is of the {tables.each(table, 'speaks_of')}. A verdict "
        "is 'holds' or 'does not hold' where the 95 % intervals of paired differences over seeds "
        "say so."
    )
