"""Decide whether a paper's sentences hold: comparisons over seeds, confidence intervals, verdicts.

A claim stands for comparisons. Each comparison is a difference with bounds: a measure of one method
minus that of another in the same setting, or the growth of that difference along partitions,
protocols or methods. Runs of a seed share everything but the method, so differences are taken seed
by seed. Student's interval of their mean decides (a paired t-test at the level LEVEL):

    holds           the intervals of all comparisons lie within the bounds; no correction for their
                    number is needed, because all of them must hold
    does not hold   the interval of some comparison lies outside; with k comparisons its level is
                    LEVEL / k (Bonferroni)
    right direction, smaller (or larger)
                    the sentence gives the size of a gain; it does not hold, but there is a gain,
                    because the interval lies above 0
    equal by design the study says why the two cannot differ, and they do not
    undecided       neither; more seeds can decide

With a `share`, a claim holds if more than that share of its k comparisons hold: at least m of them.
It does not hold if k - m + 1 of them do not. Some comparisons can be on the right side by chance,
so the level is LEVEL / (k - m + 1) for `holds` and LEVEL / m for `does not hold`: the partial
conjunction test of Benjamini and Heller (Biometrics 2008) with Bonferroni's bound. Without a share
m is k, which gives the two levels above.

If a difference equals a bound in every seed, the test cannot decide. The claim says by its `tie`
what this means: "holds" for a claim that a part is useless, "does not hold" for a claim that it
helps. Without `tie` the comparison stays undecided.

The paper's own evidence is the differences of its printed means. If not enough of them are within
the bounds, the sentence is not consistent with its own table as we read it; narrowly, if at least
NEARLY of them are. A comparison with a method that the paper does not print, such as a placebo, has
no such evidence.
"""

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from fedgrid import claim as claims
from fedgrid.analysis import choice
from fedgrid.analysis.inference import LEVEL, find_half
from fedgrid.analysis.measures import SETTING, measure_all
from fedgrid.analysis.readable import write_name, write_steps
from fedgrid.analysis.scores import WAYS
from fedgrid.claim import Claim
from fedgrid.partitions import write_label
from fedgrid.runtime.names import known, listed
from fedgrid.study.protocol import runs_of_block
from fedgrid.study.records import Study

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
SMALLER, LARGER = "right direction, smaller", "right direction, larger"
EQUAL = "equal by design"
SOFTENED = (EQUAL, SMALLER, LARGER)  # verdicts of comparisons that do not hold, for a known reason
CONSISTENT, PARTLY = "consistent", "consistent, but only a part is printed"
CONTRADICTED = "not consistent with its own table as we read it"
NARROWLY = f"narrowly {CONTRADICTED}"
AGAINST = (CONTRADICTED, NARROWLY)
NEARLY = 0.9  # share of the printed comparisons
DECIMALS = 8  # of differences: more are errors of the subtraction
ROBUST, DEPENDS = "robust", "depends on the metric"
MANY = 1000  # more seeds than one can run
JUDGED = ("difference", "low", "high", "p", "seeds", "seeds_needed", "verdict")
COMPARED = ["measure", "method", "over", "protocol", "dataset", "partition"]
DECIDING = [*COMPARED, "difference", "low", "high", "p", "seeds", "seeds_needed"]
EFFECT = ["difference", "low", "high"]
BY = "verdict_"  # before the metric, in columns of verdicts with another metric


# -- comparisons ----------------------------------------------------------------------------------


def compute_differences(claim: Claim, values: pd.DataFrame) -> pd.DataFrame:
    """Return a row per comparison and seed: the measure of `method` minus that of `over`.

    Without `over` it is the measure itself, and with `along` its growth along an axis.
    """
    values = values[values["measure"].isin(claims.measures(claim))]
    for axis in ("protocol", "dataset", "partition"):
        if axis in claim:
            values = values[values[axis].isin(listed(claim[axis]))]
    ours = values[values["method"].isin(listed(claim["method"]))]
    if "over" in claim and len(ours):
        wanted = pd.DataFrame(list_pairs(claim), columns=["method", "over"])
        pairs = ours.merge(values.rename(columns={"method": "over"}), on=SETTING)
        pairs = pairs.merge(wanted, on=["method", "over"])
        ours = pairs.assign(value=(pairs["value_x"] - pairs["value_y"]).round(DECIMALS))
    else:
        ours = ours.assign(over="")
    ours = ours[[*SETTING, "method", "over", "value"]]
    for axis, names in claim.get("along", {}).items():
        ours = compute_growth(ours, axis, names)
    return ours


def list_pairs(claim: Claim) -> list[tuple[str, str]]:
    """Return each method of a claim with each that the claim compares it with."""
    return [(method, over) for method, names in claims.others(claim).items() for over in names]


def list_possible(claim: Claim, runs: pd.DataFrame | None, tuned: bool) -> set[tuple]:
    """Return the comparisons of a claim for which `runs` has both sides, as values of COMPARED.

    Only the names of the runs count, not their results. A claim that is not about runs has none.
    The protocols of `tuned` runs are candidates, and count as one if the claim names none.
    """
    if runs is None or not claims.needs_runs(claim):
        return set()
    runs = runs.assign(protocol="") if tuned and "protocol" not in claim else runs
    named = runs[[*SETTING[1:], "method"]].drop_duplicates()
    parts = [named.assign(measure=measure, value=0.0) for measure in claims.measures(claim)]
    values = pd.concat(parts)
    return {*compute_differences(claim, values)[COMPARED].itertuples(index=False, name=None)}


def count_missing(
    study: Study, wanted: pd.DataFrame | None, runs: pd.DataFrame | None, tuned: bool = False
) -> dict[int, int]:
    """Return by claim how many comparisons need a run that is in `wanted` and not in `runs`.

    Both tables have the names of runs. Without `wanted` nothing is missing. `tuned` runs are those
    of which the best protocol is chosen.
    """
    return {
        number: len(list_possible(claim, wanted, tuned) - list_possible(claim, runs, tuned))
        for number, claim in number_claims(study, None)
    }


def compute_growth(table: pd.DataFrame, axis: str, along: list[str]) -> pd.DataFrame:
    """Return the growth of the value from each name on an axis to the next one present."""
    keys = [name for name in table.columns if name not in (axis, "value")]
    chosen = table[table[axis].isin(along)]
    chosen = chosen.sort_values(axis, key=lambda names: names.map(along.index), kind="stable")
    before = chosen.groupby(keys, sort=False)[[axis, "value"]].shift()
    is_known = np.isfinite(chosen["value"] + before["value"])
    grown = (chosen["value"] - before["value"]).where(is_known)
    steps = chosen.assign(**{axis: before[axis] + " to " + chosen[axis], "value": grown})
    return steps[before[axis].notna()].reset_index(drop=True)


def confidence_interval(sample: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Return Student's two-sided confidence interval of the mean; infinite for one value."""
    if len(sample) < 2:
        return -np.inf, np.inf
    if (sample == sample[0]).all():
        return sample[0], sample[0]
    return find_interval(tuple(sample.tolist()), level)


@cache  # a page judges the same differences with several levels and bounds
def find_interval(sample: tuple[float, ...], level: float) -> tuple[float, float]:
    bounds = stats.ttest_1samp(sample, 0).confidence_interval(1 - level)
    return float(bounds.low), float(bounds.high)


def p_value(sample: np.ndarray, bound: float) -> float:
    """Return p of the paired t-test that the mean difference is `bound`; 1 for one value."""
    if len(sample) < 2:
        return 1.0
    if (sample == sample[0]).all():
        return float(sample[0] == bound)
    return float(stats.ttest_1samp(sample, bound).pvalue)


def least_holding(comparisons: int, share: float | None) -> int:
    """Return how many comparisons must hold for the whole claim to hold."""
    return comparisons if share is None else int(np.floor(share * comparisons)) + 1


def correct_levels(comparisons: int, share: float | None = None) -> tuple[float, float]:
    """Return the corrected levels of one comparison: for `holds`, and for `does not hold`."""
    needed = least_holding(comparisons, share)
    return LEVEL / (comparisons - needed + 1), LEVEL / needed


def seeds_needed(
    sample: np.ndarray, bounds: tuple[float, float], at: tuple[float, float] = (LEVEL, LEVEL)
) -> float:
    """Estimate how many seeds would decide, with the mean and deviation of the seeds so far.

    It is the least n whose interval reaches no bound, and infinite above MANY; NaN for one seed.
    `at` are the levels for `holds` and `does not hold`.
    """
    inside = bounds[0] <= sample.mean() <= bounds[1]
    level = at[0] if inside else at[1]
    if len(sample) < 2 or not np.isfinite(sample).all():
        return np.nan
    room = min(abs(sample.mean() - bound) for bound in bounds if np.isfinite(bound))
    n = np.arange(2, MANY + 1)
    enough = n[find_half(sample.std(ddof=1), n, level) < room]
    return float(enough[0]) if len(enough) else np.inf


def compare_claim(claim: Claim, values: pd.DataFrame, missing: int = 0) -> pd.DataFrame:
    """Judge each comparison of a claim: mean difference, interval, p, seeds and verdict.

    `missing` comparisons have no runs, but the correction for several tests counts them.

    If all runs of the claim's method diverged and none of the other, the claim's method is worse.
    If only the other method diverged, the comparison is undecided: with another learning rate it
    might not have. It is also undecided if only some seeds diverged, or runs of both methods.
    """
    tie = claim.get("tie", UNDECIDED)
    names = [*SETTING[:-1], "method", "over"]
    groups = list(compute_differences(claim, values).groupby(names, sort=False))
    at = correct_levels(max(len(groups) + missing, 1), claim.get("share"))
    rows = []
    for key, group in groups:
        row, sample = dict(zip(names, key, strict=True)), group["value"].to_numpy()
        row |= judge_sample(sample, claims.find_bounds(claim), at, tie)
        rows.append(row | {"verdict": soften_verdict(claim, row, sample, at)})
    return pd.DataFrame(rows, columns=[*names, *JUDGED])


def soften_verdict(claim: Claim, row: dict, sample: np.ndarray, at: tuple[float, float]) -> str:
    """Return the verdict of a row, in finer words where it does not hold for a known reason."""
    if row["method"] in claim.get("equal", {}) and (sample == 0).all():
        return EQUAL
    direction = claims.find_direction(claim)
    if row["verdict"] != FAILS or not direction:
        return row["verdict"]
    if judge_interval(direction * sample, (0, np.inf), at) != HOLDS:
        return FAILS
    within = direction * np.array(claims.find_bounds(claim))
    return SMALLER if direction * sample.mean() < within.min() else LARGER


def judge_sample(
    sample: np.ndarray, bounds: tuple[float, float], at: tuple[float, float], tie: str
) -> dict:
    """Judge one comparison by its differences, one per seed.

    `at` are the levels for `holds` and `does not hold`. If every difference equals the same bound,
    the verdict is `tie`.
    """
    if np.isinf(sample).any() and (sample != sample[0]).any():  # some seeds diverged
        sample = np.full_like(sample, np.nan)
    low, high = confidence_interval(sample)
    nearest = min(filter(np.isfinite, bounds), key=lambda bound: abs(sample.mean() - bound))
    verdict = UNDECIDED if np.isposinf(sample).any() else judge_interval(sample, bounds, at)
    verdict = tie if low == high and np.isfinite(low) and low in bounds else verdict
    needed = seeds_needed(sample, bounds, at) if verdict == UNDECIDED else len(sample)
    numbers = sample.mean(), low, high, p_value(sample, nearest), len(sample), needed
    return dict(zip(JUDGED, (*numbers, verdict), strict=True))


def judge_interval(sample: np.ndarray, bounds: tuple[float, float], at: tuple[float, float]) -> str:
    """Say whether the interval of the mean lies inside the bounds, outside, or across one."""
    low, high = confidence_interval(sample, at[0])
    if (low > bounds[0] or np.isinf(bounds[0])) and (high < bounds[1] or np.isinf(bounds[1])):
        return HOLDS
    low, high = confidence_interval(sample, at[1])
    return FAILS if high < bounds[0] or low > bounds[1] else UNDECIDED


# -- claims ---------------------------------------------------------------------------------------


def number_claims(study: Study, claim: int | None) -> list[tuple[int, Claim]]:
    """Return the study's claims, or one of them, with their numbers; the first is 1."""
    numbered = [*enumerate(study.get("claims", []), start=1)]
    return numbered if claim is None else [pair for pair in numbered if pair[0] == claim]


def combine_verdicts(comparisons: pd.DataFrame, share: float | None, missing: int = 0) -> str:
    """Combine the verdicts of a claim's comparisons into the verdict of the claim.

    `missing` comparisons have no runs and count as undecided. If a claim does not hold only because
    of comparisons with a finer word, that word is its verdict.
    """
    total, counts = len(comparisons) + missing, comparisons["verdict"].value_counts()
    needed = least_holding(total, share)
    if not total or counts.get(HOLDS, 0) >= needed:
        return HOLDS if total else UNDECIDED
    failed = counts.reindex([FAILS, *SOFTENED], fill_value=0)
    if failed[FAILS] > total - needed:
        return FAILS
    words = [word for word in SOFTENED if failed[word]]
    return words[0] if failed.sum() > total - needed else UNDECIDED


def judge_claim(claim: Claim, values: pd.DataFrame, missing: int = 0) -> tuple[pd.DataFrame, str]:
    """Return the comparisons of a claim, of which `missing` have no runs, and its verdict."""
    comparisons = compare_claim(claim, values, missing)
    return comparisons, combine_verdicts(comparisons, claim.get("share"), missing)


def find_deciding(comparisons: pd.DataFrame, said: str) -> dict:
    """Pick the comparison that explains a claim's verdict `said`, and return its numbers.

    It has the same verdict, if any comparison has. Of those that fail, it is the one with the least
    p. Of undecided ones, it is the one that needs the most seeds; a comparison of a single pair
    comes first. Of those that hold, it is the one with the largest p. A comparison without a finite
    difference, because runs diverged, is picked only if no other has its verdict.
    """
    if comparisons.empty:
        return dict.fromkeys(DECIDING, np.nan)
    failed = comparisons["verdict"].isin([FAILS, *SOFTENED])
    order = {
        "differs": comparisons["verdict"] != said,
        "rank": comparisons["verdict"].map({UNDECIDED: 1, HOLDS: 2}).fillna(0),
        "diverged": ~np.isfinite(comparisons["difference"]),
        "needed": -comparisons["seeds_needed"].mask(failed, 0).fillna(np.inf),
        "unlikely": comparisons["p"].where(failed, -comparisons["p"]),
    }
    ordered = comparisons.assign(**order).sort_values([*order], kind="stable")
    return ordered[DECIDING].iloc[0].to_dict()


def judge_printed(claim: Claim, values: pd.DataFrame, study: Study) -> dict:
    """Judge a claim by the paper's own printed means: how many comparisons agree with it."""
    gaps = compute_differences(claim, values)
    if gaps.empty:
        return {"published": "no numbers are printed", "published_verdict": ""}
    inside = gaps["value"].round(DECIMALS).between(*claims.find_bounds(claim))
    enough = inside.sum() >= least_holding(len(gaps), claim.get("share"))
    agrees = CONSISTENT if is_printed_whole(claim, gaps) else PARTLY
    differs = NARROWLY if inside.mean() >= NEARLY else CONTRADICTED
    many = "comparison" if len(gaps) == 1 else "comparisons"
    text = f"{inside.sum()} of {len(gaps)} {many}: {describe_differences(gaps, study)}"
    return {"published": text, "published_verdict": agrees if enough else differs}


def is_printed_whole(claim: Claim, gaps: pd.DataFrame) -> bool:
    """Whether the paper prints numbers for every pair of methods that a claim compares."""
    if "over" not in claim or "method" in claim.get("along", {}):
        return True
    return {*list_pairs(claim)} <= {*zip(gaps["method"], gaps["over"], strict=True)}


def describe_differences(gaps: pd.DataFrame, study: Study) -> str:
    """Write the smallest and the largest finite difference, each with its setting, or the one."""
    gaps = gaps[np.isfinite(gaps["value"])]
    if gaps.empty:
        return "none has two numbers"
    ends = gaps.loc[[*dict.fromkeys((gaps["value"].idxmin(), gaps["value"].idxmax()))]]
    return " to ".join(
        f"{row.value:+.2f} ({write_setting(row, study)})" for row in ends.itertuples()
    )


def write_setting(row, study: Study) -> str:
    """Write where a difference is printed: `over FedAvg, CIFAR-10, alpha=0.05`."""
    over = f"over {write_name(study, row.over)}" if row.over else ""
    where = write_name(study, row.dataset), write_steps(write_label, row.partition)
    return ", ".join(filter(None, (over, *where)))


# -- claims by metric: whether a verdict depends on how runs are scored ---------------------------


def measure_by_way(
    study: Study,
    sources: Mapping[str, pd.DataFrame | None],
    best: dict | None,
    ways: str | list[str] | None,
    wanted: pd.DataFrame | None,
) -> tuple[dict[str, pd.DataFrame], dict[int, int]]:
    """Return what claims compare, by way to score runs, and by claim how many comparisons lack one.

    The first way is "", that of the runs' protocols. `best` keeps the same runs for every way.
    A comparison lacks a run that `wanted` names and `sources` have not.
    """
    runs, settings = sources.get("runs"), sources.get("settings")
    choose = choice.make_chooser(runs, settings, best)
    every = "", *other_metrics(runs, ways)
    values = {way: measure_all(study, sources, choose, way) for way in every}
    named = choice.name_as_chosen(runs, settings, best)
    return values, count_missing(study, wanted, named, bool(best))


def list_wanted(grid: list[dict] | None) -> pd.DataFrame | None:
    """Return a row with the names of each run of the blocks `grid`; None without blocks."""
    names = [run for block in grid or [] for run in runs_of_block(block)]
    return pd.DataFrame(names) if names else None


def other_metrics(runs: pd.DataFrame | None, metrics: str | list[str] | None) -> list[str]:
    """Return `metrics` without the one by which all runs are scored anyway."""
    own = [] if runs is None else [*runs["metric"].unique()]
    asked = [known("way to score a run", name, WAYS) for name in listed(metrics)]
    return [name for name in dict.fromkeys(asked) if own != [name]]


def add_changes(table: pd.DataFrame, own: str, others: Iterable[str]) -> pd.DataFrame:
    """Add the column `changes`: whether another metric gives another verdict than `own` has."""
    verdicts = table[[own, *(f"{BY}{metric}" for metric in others)]]
    return table.assign(changes=verdicts.nunique(axis="columns") > 1)


def show_by_metric(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns for readers about other metrics: the verdicts, and `changes` in words.

    There are none if no other metric was asked for.
    """
    shown = table[[name for name in table if name.startswith(BY)]]
    shown = shown.rename(columns=lambda name: name.removeprefix(BY))
    if "changes" in table:
        shown = shown.assign(robust=table["changes"].map({True: DEPENDS, False: ROBUST}))
    return shown


def describe_changes(table: pd.DataFrame, rows: str) -> str:
    """Return a sentence about verdicts with other metrics; empty if there are none."""
    by_metric = [name.removeprefix(BY) for name in table if name.startswith(BY)]
    if not by_metric:
        return ""
    return (
        f" Runs were also scored in another way ({', '.join(by_metric)}): for "
        f"{table['changes'].sum()} of {len(table)} {rows} our verdict depends on it."
    )
