"""Decide whether a paper's sentences hold: comparisons over seeds, confidence intervals, verdicts.

A claim stands for comparisons. Each comparison is a difference with bounds: a measure of one method
minus that of another in the same setting, or the growth of that difference along partitions,
protocols or methods. Runs of a seed share everything but the method, so differences are taken seed
by seed. Student's interval of their mean decides (a paired t-test at the level LEVEL):

    holds           the intervals of all comparisons lie within the bounds; no correction for their
                    number is needed, because all of them must hold
    does not hold   the interval of some comparison lies outside; with k comparisons its level is
                    LEVEL / k (Bonferroni)
    undecided       neither; more seeds can decide

A bound itself agrees with a claim that a part is useless, and not with a claim that it helps. So a
difference that is a bound in every seed has the verdict that the claim has as its `tie`; without
one it stays undecided.

With a `share`, a claim holds if more than that share of its comparisons hold, and does not hold if
that is no longer possible. The paper's own evidence is the differences of its printed means.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from fedgrid.analysis.choice import Chooser
from fedgrid.analysis.measures import SETTING, measure_all
from fedgrid.analysis.scores import WAYS
from fedgrid.runtime.names import known, listed
from fedgrid.study import claims

LEVEL = 0.05
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CONTRADICTED = "contradicted by the paper's own table"
MANY = 1000  # more seeds than one can run
JUDGED = ("difference", "low", "high", "p", "seeds", "seeds_needed", "verdict")
COMPARED = ["measure", "method", "over", "protocol", "dataset", "partition"]
DECIDING = [*COMPARED, "difference", "low", "high", "p", "seeds", "seeds_needed"]
EFFECT = ["difference", "low", "high"]
BY = "verdict_"  # before the metric, in columns of verdicts with another metric


# -- comparisons ----------------------------------------------------------------------------------


def differences(claim: dict, values: pd.DataFrame) -> pd.DataFrame:
    """Return a row per comparison and seed, with the difference."""
    values = values[values["measure"].isin(claims.measures(claim))]
    for axis in ("protocol", "dataset", "partition"):
        if axis in claim:
            values = values[values[axis].isin(listed(claim[axis]))]
    ours = values[values["method"].isin(listed(claim["method"]))]
    if "over" in claim and len(ours):
        compared = [
            (method, over) for method, names in claims.others(claim).items() for over in names
        ]
        wanted = pd.DataFrame(compared, columns=["method", "over"])
        pairs = ours.merge(values.rename(columns={"method": "over"}), on=SETTING)
        pairs = pairs.merge(wanted, on=["method", "over"])
        ours = pairs.assign(value=pairs["value_x"] - pairs["value_y"])
    else:
        ours = ours.assign(over="")
    ours = ours[[*SETTING, "method", "over", "value"]]
    for axis, names in claim.get("along", {}).items():
        ours = growth(ours, axis, names)
    return ours


def possible(claim: dict, runs: pd.DataFrame | None) -> set[tuple]:
    """Return the comparisons, as values of COMPARED, that runs of these names allow.

    They do not depend on what the runs measured. There are none if the claim is not about runs.
    """
    if runs is None or not claims.needs_runs(claim):
        return set()
    named = runs[[*SETTING[1:], "method"]].drop_duplicates()
    values = pd.concat([named.assign(measure=of, value=0.0) for of in claims.measures(claim)])
    return {*differences(claim, values)[COMPARED].itertuples(index=False, name=None)}


def growth(table: pd.DataFrame, axis: str, along: list[str]) -> pd.DataFrame:
    """Return the growth of the value from each name on an axis to the next one present."""
    keys = [name for name in table.columns if name not in (axis, "value")]
    there = table[table[axis].isin(along)]
    there = there.sort_values(axis, key=lambda names: names.map(along.index), kind="stable")
    before = there.groupby(keys, sort=False)[[axis, "value"]].shift()
    grown = (there["value"] - before["value"]).where(np.isfinite(there["value"] + before["value"]))
    steps = there.assign(**{axis: before[axis] + " to " + there[axis], "value": grown})
    return steps[before[axis].notna()].reset_index(drop=True)


def interval(sample: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Return Student's two-sided confidence interval of the mean; infinite for one value."""
    if len(sample) < 2:
        return -np.inf, np.inf
    if (sample == sample[0]).all():
        return sample[0], sample[0]
    found = stats.ttest_1samp(sample, 0).confidence_interval(1 - level)
    return float(found.low), float(found.high)


def p_value(sample: np.ndarray, bound: float) -> float:
    """Return p of the paired t-test that the mean difference is `bound`; 1 for one value."""
    if len(sample) < 2:
        return 1.0
    if (sample == sample[0]).all():
        return float(sample[0] == bound)
    return float(stats.ttest_1samp(sample, bound).pvalue)


def seeds_needed(sample: np.ndarray, bounds: tuple[float, float], comparisons: int = 1) -> float:
    """Return how many seeds would decide if mean and deviation stayed the same; NaN for one seed.

    That is the least n whose interval reaches no bound; infinite if it is more than MANY.
    """
    inside = bounds[0] <= sample.mean() <= bounds[1]
    level = LEVEL if inside else LEVEL / comparisons
    if len(sample) < 2 or not np.isfinite(sample).all():
        return np.nan
    room = min(abs(sample.mean() - bound) for bound in bounds if np.isfinite(bound))
    n = np.arange(2, MANY + 1)
    half = stats.t.ppf(1 - level / 2, n - 1) * sample.std(ddof=1) / np.sqrt(n)
    enough = n[half < room]
    return float(enough[0]) if len(enough) else np.inf


def compare(claim: dict, values: pd.DataFrame, missing: int = 0) -> pd.DataFrame:
    """Return a row per comparison: mean difference, interval, p, seeds, seeds needed, verdict.

    `missing` comparisons have no runs, and count among the k of Bonferroni's correction.

    If all seeds of one method diverged and none of the other's, that decides. If some seeds
    diverged, or those of both methods, the comparison is undecided.
    """
    bounds = claim.get("least", -np.inf), claim.get("most", np.inf)
    tie = claim.get("tie", UNDECIDED)
    names = [*SETTING[:-1], "method", "over"]
    groups = list(differences(claim, values).groupby(names, sort=False))
    k = len(groups) + missing
    rows = [
        dict(zip(names, key, strict=True)) | judged(of["value"].to_numpy(), bounds, k, tie)
        for key, of in groups
    ]
    return pd.DataFrame(rows, columns=[*names, *JUDGED])


def judged(
    sample: np.ndarray, bounds: tuple[float, float], comparisons: int, tie: str = UNDECIDED
) -> dict:
    """Return the result of one comparison among several.

    A difference that is one of the bounds in every seed has the verdict `tie`.
    """
    if np.isinf(sample).any() and (sample != sample[0]).any():  # some seeds diverged
        sample = np.full_like(sample, np.nan)
    low, high = interval(sample)
    least, most = interval(sample, LEVEL / comparisons)
    nearest = min(filter(np.isfinite, bounds), key=lambda bound: abs(sample.mean() - bound))
    above, below = low > bounds[0] or np.isinf(bounds[0]), high < bounds[1] or np.isinf(bounds[1])
    outside = most < bounds[0] or least > bounds[1]
    verdict = HOLDS if above and below else FAILS if outside else UNDECIDED
    verdict = tie if low == high and np.isfinite(low) and low in bounds else verdict
    needed = seeds_needed(sample, bounds, comparisons) if verdict == UNDECIDED else len(sample)
    numbers = sample.mean(), low, high, p_value(sample, nearest), len(sample), needed
    return dict(zip(JUDGED, (*numbers, verdict), strict=True))


# -- claims ---------------------------------------------------------------------------------------


def numbered(study: dict, claim: int | None) -> list[tuple[int, dict]]:
    """Return the study's claims with their numbers, from 1 on, or only the one asked for."""
    every = enumerate(study.get("claims", []), start=1)
    return [(number, one) for number, one in every if claim in (None, number)]


def verdict(comparisons: pd.DataFrame, share: float | None, missing: int = 0) -> str:
    """Return the common verdict of a claim's comparisons; `missing` ones have no runs.

    A missing comparison counts as undecided. A claim whose comparisons are all missing is, too.
    """
    total, found = len(comparisons) + missing, comparisons["verdict"].value_counts()
    held, failed = found.get(HOLDS, 0), found.get(FAILS, 0)
    needed = total if share is None else int(np.floor(share * total)) + 1
    if total and held >= needed:
        return HOLDS
    return FAILS if failed > total - needed and total else UNDECIDED


def deciding(comparisons: pd.DataFrame) -> dict:
    """Return the numbers of the deciding comparison: the worst, else the least decided one."""
    if comparisons.empty:
        return dict.fromkeys(DECIDING, np.nan)
    rank = comparisons["verdict"].map({FAILS: 0, UNDECIDED: 1, HOLDS: 2})
    ordered = comparisons.assign(rank=rank).sort_values(
        ["rank", "seeds_needed", "p"], ascending=[True, False, False], kind="stable"
    )
    return ordered[DECIDING].iloc[0].to_dict()


def printed(claim: dict, values: pd.DataFrame) -> dict:
    """Return the paper's own evidence: how many comparisons of printed means agree with a claim."""
    gaps = differences(claim, values)
    if gaps.empty:
        return {"published": "no numbers are printed", "published_verdict": ""}
    inside = gaps["value"].between(claim.get("least", -np.inf), claim.get("most", np.inf))
    share = claim.get("share")
    enough = inside.all() if share is None else inside.mean() > share
    text = f"{inside.sum()} of {len(gaps)} comparisons, {described(gaps)}"
    return {"published": text, "published_verdict": "consistent" if enough else CONTRADICTED}


def described(gaps: pd.DataFrame) -> str:
    """Return the smallest and the largest finite difference, with their settings, in words."""
    gaps = gaps[np.isfinite(gaps["value"])]
    if gaps.empty:
        return "no comparison has two numbers"
    ends = gaps.loc[[gaps["value"].idxmin(), gaps["value"].idxmax()]]
    return " to ".join(
        f"{row.value:+.2f} ({' '.join(filter(None, (row.dataset, row.partition, row.over)))})"
        for row in ends.itertuples()
    )


# -- claims by metric: whether a verdict depends on how runs are scored ---------------------------


def judge_by_metric(
    study: dict,
    runs: pd.DataFrame | None,
    metrics: Sequence[str],
    scores: pd.DataFrame | None = None,
    interpolation: pd.DataFrame | None = None,
    choose: Chooser = lambda table, by: table,
    missing: dict[int, int] | None = None,
) -> pd.DataFrame:
    """Return a row per claim and metric: our verdict and the deciding comparison's numbers.

    The columns are the claim's number, metric, our_verdict, difference, low, high and seeds. The
    metrics are words of `scores.WAYS`. `choose` is used as it is: it keeps the same runs for every
    metric. A claim without runs is undecided. `missing` are the comparisons without runs by claim.
    """
    columns = ["claim", "metric", "our_verdict", *EFFECT, "seeds"]
    rows = []
    for metric in metrics:
        values = measure_all(study, runs, scores, interpolation, choose, metric)
        for number, claim in numbered(study, None):
            without_runs = (missing or {}).get(number, 0)
            found = compare(claim, values, without_runs)
            about = {"claim": number, "metric": metric, **deciding(found)}
            said = verdict(found, claim.get("share"), without_runs)
            rows.append(about | {"our_verdict": said})
    return pd.DataFrame(rows, columns=columns).sort_values("claim", kind="stable")


def other_metrics(runs: pd.DataFrame | None, metrics: str | list[str] | None) -> list[str]:
    """Return those of the metrics that are not the own one of all runs' protocols."""
    own = [] if runs is None else [*runs["metric"].unique()]
    asked = [known("way to score a run", name, WAYS) for name in listed(metrics)]
    return [name for name in dict.fromkeys(asked) if own != [name]]


def compare_by_metric(
    claim: dict, values: pd.DataFrame, others: dict[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return the comparisons of a claim, and beside them their results by other metrics.

    `others` has the measured values by metric. If there are any, `changes` says whether the verdict
    depends on the metric.
    """
    table = compare(claim, values)
    for metric, of in others.items():
        also = compare(claim, of)[[*COMPARED, *EFFECT, "verdict"]]
        table = table.merge(also, how="left", on=COMPARED, suffixes=("", f"_{metric}"))
    return with_changes(table, "verdict", others) if others else table


def with_changes(table: pd.DataFrame, own: str, others: Iterable[str]) -> pd.DataFrame:
    """Add the column `changes`: whether another metric gives another verdict than `own` has."""
    verdicts = table[[own, *(f"{BY}{metric}" for metric in others)]]
    return table.assign(changes=verdicts.nunique(axis="columns") > 1)


def read_by_metric(table: pd.DataFrame) -> pd.DataFrame:
    """Return for readers the verdicts with other metrics, and whether they change; maybe none."""
    found = table[[name for name in table if name.startswith(BY)]]
    found = found.rename(columns=lambda name: name.removeprefix(BY))
    if "changes" in table:
        found = found.assign(changes=table["changes"].map({True: "yes", False: "no"}))
    return found


def describe_changes(table: pd.DataFrame, rows: str) -> str:
    """Return a sentence about verdicts with other metrics; empty if there are none."""
    by_metric = [name.removeprefix(BY) for name in table if name.startswith(BY)]
    if not by_metric:
        return ""
    return (
        f" Runs were also scored in another way ({', '.join(by_metric)}): for "
        f"{table['changes'].sum()} of {len(table)} {rows} our verdict depends on it."
    )
