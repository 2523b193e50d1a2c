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

With a `share`, a claim holds if more than that share of its k comparisons hold: at least m of them.
It does not hold if k - m + 1 of them do not. Some comparisons can be on the right side by chance,
so the level is LEVEL / (k - m + 1) for `holds` and LEVEL / m for `does not hold`: the partial
conjunction test of Benjamini and Heller (Biometrics 2008) with Bonferroni's bound. Without a share
m is k, which gives the two levels above.

A bound itself agrees with a claim that a part is useless, and not with a claim that it helps. So a
difference that is a bound in every seed has the verdict that the claim has as its `tie`; without
one it stays undecided.

The paper's own evidence is the differences of its printed means. A comparison with a method that
the paper does not print, such as a placebo, has no such evidence.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from fedgrid import claim as claims
from fedgrid.analysis.choice import Chooser
from fedgrid.analysis.measures import SETTING, measure_all
from fedgrid.analysis.scores import WAYS
from fedgrid.runtime.names import known, listed
from fedgrid.study.protocol import runs_of_block

LEVEL = 0.05
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CONTRADICTED = "contradicted by the paper's own table"
CONSISTENT, PARTLY = "consistent", "consistent, but only a part is printed"
MANY = 1000  # more seeds than one can run
JUDGED = ("difference", "low", "high", "p", "seeds", "seeds_needed", "verdict")
COMPARED = ["measure", "method", "over", "protocol", "dataset", "partition"]
DECIDING = [*COMPARED, "difference", "low", "high", "p", "seeds", "seeds_needed"]
EFFECT = ["difference", "low", "high"]
BY = "verdict_"  # before the metric, in columns of verdicts with another metric


# -- comparisons ----------------------------------------------------------------------------------


def compute_differences(claim: dict, values: pd.DataFrame) -> pd.DataFrame:
    """Return a row per comparison and seed, with the difference."""
    values = values[values["measure"].isin(claims.measures(claim))]
    for axis in ("protocol", "dataset", "partition"):
        if axis in claim:
            values = values[values[axis].isin(listed(claim[axis]))]
    ours = values[values["method"].isin(listed(claim["method"]))]
    if "over" in claim and len(ours):
        wanted = pd.DataFrame(list_pairs(claim), columns=["method", "over"])
        pairs = ours.merge(values.rename(columns={"method": "over"}), on=SETTING)
        pairs = pairs.merge(wanted, on=["method", "over"])
        ours = pairs.assign(value=pairs["value_x"] - pairs["value_y"])
    else:
        ours = ours.assign(over="")
    ours = ours[[*SETTING, "method", "over", "value"]]
    for axis, names in claim.get("along", {}).items():
        ours = compute_growth(ours, axis, names)
    return ours


def list_pairs(claim: dict) -> list[tuple[str, str]]:
    """Return each method of a claim with each that the claim compares it with."""
    return [(method, over) for method, names in claims.others(claim).items() for over in names]


def list_possible(claim: dict, runs: pd.DataFrame | None) -> set[tuple]:
    """Return the comparisons, as values of COMPARED, that runs of these names allow.

    They do not depend on what the runs measured. There are none if the claim is not about runs.
    """
    if runs is None or not claims.needs_runs(claim):
        return set()
    named = runs[[*SETTING[1:], "method"]].drop_duplicates()
    values = pd.concat([named.assign(measure=of, value=0.0) for of in claims.measures(claim)])
    return {*compute_differences(claim, values)[COMPARED].itertuples(index=False, name=None)}


def count_missing(
    study: dict, wanted: pd.DataFrame | None, there: pd.DataFrame | None
) -> dict[int, int]:
    """Return by claim how many comparisons of the `wanted` runs lack runs of one side or of both.

    Both tables have the names of runs; without `wanted` nothing is missing.
    """
    return {
        number: len(list_possible(claim, wanted) - list_possible(claim, there))
        for number, claim in number_claims(study, None)
    }


def count_lacking(
    study: dict, grid: list[dict] | None, runs: pd.DataFrame | None
) -> dict[int, int]:
    """Return `count_missing` for the blocks of a whole grid; without them nothing is missing."""
    names = [run for block in grid or [] for run in runs_of_block(block)]
    return count_missing(study, pd.DataFrame(names) if names else None, runs)


def compute_growth(table: pd.DataFrame, axis: str, along: list[str]) -> pd.DataFrame:
    """Return the growth of the value from each name on an axis to the next one present."""
    keys = [name for name in table.columns if name not in (axis, "value")]
    there = table[table[axis].isin(along)]
    there = there.sort_values(axis, key=lambda names: names.map(along.index), kind="stable")
    before = there.groupby(keys, sort=False)[[axis, "value"]].shift()
    grown = (there["value"] - before["value"]).where(np.isfinite(there["value"] + before["value"]))
    steps = there.assign(**{axis: before[axis] + " to " + there[axis], "value": grown})
    return steps[before[axis].notna()].reset_index(drop=True)


def confidence_interval(sample: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
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


def least_holding(comparisons: int, share: float | None) -> int:
    """Return how many of a claim's comparisons must hold, so that the claim holds."""
    return comparisons if share is None else int(np.floor(share * comparisons)) + 1


def correct_levels(comparisons: int, share: float | None = None) -> tuple[float, float]:
    """Return the levels at which one of several comparisons holds, and at which it does not."""
    needed = least_holding(comparisons, share)
    return LEVEL / (comparisons - needed + 1), LEVEL / needed


def seeds_needed(
    sample: np.ndarray, bounds: tuple[float, float], at: tuple[float, float] = (LEVEL, LEVEL)
) -> float:
    """Return how many seeds would decide if mean and deviation stayed the same; NaN for one seed.

    That is the least n whose interval, at its level of `at`, reaches no bound; infinite if it is
    more than MANY.
    """
    inside = bounds[0] <= sample.mean() <= bounds[1]
    level = at[0] if inside else at[1]
    if len(sample) < 2 or not np.isfinite(sample).all():
        return np.nan
    room = min(abs(sample.mean() - bound) for bound in bounds if np.isfinite(bound))
    n = np.arange(2, MANY + 1)
    half = stats.t.ppf(1 - level / 2, n - 1) * sample.std(ddof=1) / np.sqrt(n)
    enough = n[half < room]
    return float(enough[0]) if len(enough) else np.inf


def compare_claim(claim: dict, values: pd.DataFrame, missing: int = 0) -> pd.DataFrame:
    """Return a row per comparison: mean difference, interval, p, seeds, seeds needed, verdict.

    `missing` comparisons have no runs, and count among the k of the correction.

    If all seeds of one method diverged and none of the other's, that decides. If some seeds
    diverged, or those of both methods, the comparison is undecided.
    """
    bounds = claim.get("least", -np.inf), claim.get("most", np.inf)
    tie = claim.get("tie", UNDECIDED)
    names = [*SETTING[:-1], "method", "over"]
    groups = list(compute_differences(claim, values).groupby(names, sort=False))
    at = correct_levels(max(len(groups) + missing, 1), claim.get("share"))
    rows = [
        dict(zip(names, key, strict=True)) | judge_sample(of["value"].to_numpy(), bounds, at, tie)
        for key, of in groups
    ]
    return pd.DataFrame(rows, columns=[*names, *JUDGED])


def judge_sample(
    sample: np.ndarray,
    bounds: tuple[float, float],
    at: tuple[float, float] = (LEVEL, LEVEL),
    tie: str = UNDECIDED,
) -> dict:
    """Return the result of one comparison; `at` are the levels of `holds` and `does not hold`.

    A difference that is one of the bounds in every seed has the verdict `tie`.
    """
    if np.isinf(sample).any() and (sample != sample[0]).any():  # some seeds diverged
        sample = np.full_like(sample, np.nan)
    low, high = confidence_interval(sample)
    nearest = min(filter(np.isfinite, bounds), key=lambda bound: abs(sample.mean() - bound))
    verdict = judge_interval(sample, bounds, at)
    verdict = tie if low == high and np.isfinite(low) and low in bounds else verdict
    needed = seeds_needed(sample, bounds, at) if verdict == UNDECIDED else len(sample)
    numbers = sample.mean(), low, high, p_value(sample, nearest), len(sample), needed
    return dict(zip(JUDGED, (*numbers, verdict), strict=True))


def judge_interval(sample: np.ndarray, bounds: tuple[float, float], at: tuple[float, float]) -> str:
    """Return whether the interval of a mean lies within bounds, outside, or neither."""
    low, high = confidence_interval(sample, at[0])
    if (low > bounds[0] or np.isinf(bounds[0])) and (high < bounds[1] or np.isinf(bounds[1])):
        return HOLDS
    low, high = confidence_interval(sample, at[1])
    return FAILS if high < bounds[0] or low > bounds[1] else UNDECIDED


# -- claims ---------------------------------------------------------------------------------------


def number_claims(study: dict, claim: int | None) -> list[tuple[int, dict]]:
    """Return the study's claims with their numbers, from 1 on, or only the one asked for."""
    every = enumerate(study.get("claims", []), start=1)
    return [(number, one) for number, one in every if claim in (None, number)]


def combine_verdicts(comparisons: pd.DataFrame, share: float | None, missing: int = 0) -> str:
    """Return the common verdict of a claim's comparisons; `missing` ones have no runs.

    A missing comparison counts as undecided. A claim whose comparisons are all missing is, too.
    """
    total, found = len(comparisons) + missing, comparisons["verdict"].value_counts()
    held, failed = found.get(HOLDS, 0), found.get(FAILS, 0)
    needed = least_holding(total, share)
    if total and held >= needed:
        return HOLDS
    return FAILS if failed > total - needed and total else UNDECIDED


def find_deciding(comparisons: pd.DataFrame, said: str) -> dict:
    """Return the numbers of the deciding comparison of a claim whose verdict is `said`.

    That is one with the same verdict, if there is one: the one that fails most clearly, by its p;
    the least decided one, which has a single pair or else needs the most seeds; of those that hold
    the one with the largest p. A comparison without a finite difference, because runs diverged,
    decides only if all that have its verdict are without one.
    """
    if comparisons.empty:
        return dict.fromkeys(DECIDING, np.nan)
    failed = comparisons["verdict"] == FAILS
    order = {
        "differs": comparisons["verdict"] != said,
        "rank": comparisons["verdict"].map({FAILS: 0, UNDECIDED: 1, HOLDS: 2}),
        "diverged": ~np.isfinite(comparisons["difference"]),
        "needed": -comparisons["seeds_needed"].mask(failed, 0).fillna(np.inf),
        "unlikely": comparisons["p"].where(failed, -comparisons["p"]),
    }
    ordered = comparisons.assign(**order).sort_values([*order], kind="stable")
    return ordered[DECIDING].iloc[0].to_dict()


def judge_printed(claim: dict, values: pd.DataFrame) -> dict:
    """Return the paper's own evidence: how many comparisons of printed means agree with a claim."""
    gaps = compute_differences(claim, values)
    if gaps.empty:
        return {"published": "no numbers are printed", "published_verdict": ""}
    inside = gaps["value"].between(claim.get("least", -np.inf), claim.get("most", np.inf))
    share = claim.get("share")
    enough = inside.all() if share is None else inside.mean() > share
    agrees = CONSISTENT if is_printed_whole(claim, gaps) else PARTLY
    text = f"{inside.sum()} of {len(gaps)} comparisons, {describe_differences(gaps)}"
    return {"published": text, "published_verdict": agrees if enough else CONTRADICTED}


def is_printed_whole(claim: dict, gaps: pd.DataFrame) -> bool:
    """Whether the paper prints something of each pair of methods that a claim compares."""
    if "over" not in claim or "method" in claim.get("along", {}):
        return True
    return {*list_pairs(claim)} <= {*zip(gaps["method"], gaps["over"], strict=True)}


def describe_differences(gaps: pd.DataFrame) -> str:
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
        for number, claim in number_claims(study, None):
            without_runs = (missing or {}).get(number, 0)
            found = compare_claim(claim, values, without_runs)
            said = combine_verdicts(found, claim.get("share"), without_runs)
            about = {"claim": number, "metric": metric, "our_verdict": said}
            rows.append(about | find_deciding(found, said))
    return pd.DataFrame(rows, columns=columns).sort_values("claim", kind="stable")


def other_metrics(runs: pd.DataFrame | None, metrics: str | list[str] | None) -> list[str]:
    """Return those of the metrics that are not the own one of all runs' protocols."""
    own = [] if runs is None else [*runs["metric"].unique()]
    asked = [known("way to score a run", name, WAYS) for name in listed(metrics)]
    return [name for name in dict.fromkeys(asked) if own != [name]]


def compare_by_metric(
    claim: dict, values: pd.DataFrame, others: dict[str, pd.DataFrame], missing: int = 0
) -> pd.DataFrame:
    """Return the comparisons of a claim, and beside them their results by other metrics.

    `others` has the measured values by metric. If there are any, `changes` says whether the verdict
    depends on the metric. `missing` comparisons have no runs.
    """
    table = compare_claim(claim, values, missing)
    for metric, of in others.items():
        also = compare_claim(claim, of, missing)[[*COMPARED, *EFFECT, "verdict"]]
        table = table.merge(also, how="left", on=COMPARED, suffixes=("", f"_{metric}"))
    return add_changes(table, "verdict", others) if others else table


def add_changes(table: pd.DataFrame, own: str, others: Iterable[str]) -> pd.DataFrame:
    """Add the column `changes`: whether another metric gives another verdict than `own` has."""
    verdicts = table[[own, *(f"{BY}{metric}" for metric in others)]]
    return table.assign(changes=verdicts.nunique(axis="columns") > 1)


def show_by_metric(table: pd.DataFrame) -> pd.DataFrame:
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
