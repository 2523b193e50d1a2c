"""Whether a paper's sentences hold: comparisons over seeds, their confidence intervals, a verdict.

A claim stands for comparisons, each a difference with bounds: a measure of one method minus that of
another in the same setting, or the growth of that difference along partitions, protocols or
methods. Runs of a seed share everything but the method, so differences are taken seed by seed, and
Student's interval of their mean decides (a paired t-test at the level LEVEL):

    holds           every comparison's interval lies within the bounds; this asks all of them at
                    once, so no correction for their number is due
    does not hold   some comparison's interval lies outside; with k comparisons its level is
                    LEVEL / k (Bonferroni)
    undecided       neither: more seeds would tell

With a `share`, holds means that more than that share of the comparisons do, and does not hold that
too many do not. The paper's own evidence are the differences of its printed means.
"""

import numpy as np
import pandas as pd
from scipy import stats

from fedgrid import comparisons, tables
from fedgrid.names import listed

LEVEL = 0.05
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CONTRADICTED = "contradicted by the paper's own table"
MANY = 1000  # seeds that nobody will run
STATISTICS = {
    "median": np.median,
    "mean": np.mean,
    "box": tables.spread,
}  # box: quartile to quartile
SETTING = ["measure", "protocol", "dataset", "partition", "seed"]


# -- measures: a row per (measure, method, dataset, partition, seed) -----------------------------


def accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """What runs count with, in percent; one that diverged with minus infinity: nothing is worse."""
    means = tables.scores(runs).rename(columns={"accuracy": "value"})
    means["value"] = means["value"].mask(means["diverged"], -np.inf)
    return means.assign(measure="accuracy")[[*SETTING, "method", "value"]]


def speedups(runs: pd.DataFrame, over: str = "fedavg") -> pd.DataFrame:
    """How many times sooner runs are as good as the other method gets; as above if one diverged."""
    found = comparisons.speedups(runs, over).rename(columns={"speedup": "value"})
    gone = runs.groupby([*tables.CELL, "seed"])["diverged"].any().rename("gone").reset_index()
    found = found.merge(gone, on=[*tables.CELL, "seed"])
    found["value"] = found["value"].mask(found["gone"], -np.inf)
    return found.assign(measure="speed-up")[[*SETTING, "method", "value"]]


def steadiness(runs: pd.DataFrame) -> pd.DataFrame:
    """Minus the points by which accuracies move between evaluations; as above if one diverged."""
    percent = runs.assign(percent=100 * runs["accuracy"]).sort_values("round", kind="stable")
    found = percent.groupby([*tables.CELL, "seed"], sort=False).agg(
        value=("percent", lambda of: -of.diff().abs().mean()), gone=("diverged", "any")
    ).reset_index()  # fmt: skip
    found["value"] = found["value"].mask(found["gone"], -np.inf)
    return found.assign(measure="steadiness")[[*SETTING, "method", "value"]]


def measured(runs: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """All that the claims can speak of."""
    return pd.concat([accuracies(runs), similarities(scores)])


def published(study: dict) -> pd.DataFrame:
    """The printed numbers, as if they were of one seed and, in the main setting, of `paper`.

    A word in place of a speed-up says that the method failed: nothing is worse.
    """
    cells = tables.published_cells(study).assign(seed=0)
    cells["protocol"] = ("paper " + cells["as_protocol"]).str.strip()
    faster = cells["published_speedup"]
    number = pd.to_numeric(faster, errors="coerce").fillna(-np.inf).where(faster.notna())
    accuracy = cells.assign(measure="accuracy", value=cells["published"])
    both = pd.concat([accuracy, cells.assign(measure="speed-up", value=number)])
    return both[both["value"].notna()][[*SETTING, "method", "value"]]


def similarities(scores: pd.DataFrame) -> pd.DataFrame:
    """Median, mean and box of every score over all images, by map and encoder's seed.

    A map that depends on no seed, and so has only one, is the same for all seeds.
    """
    rows = []
    for (encoder, layer, seed), of in scores.groupby(["encoder", "layer", "seed"], sort=False):
        for score in ("ssim", "cosine", "euclidean"):
            for name, statistic in STATISTICS.items():
                rows.append((f"{score} {name}", f"{encoder}-{layer}", seed, statistic(of[score])))
    table = pd.DataFrame(rows, columns=["measure", "method", "seed", "value"])
    once = table.groupby("method")["seed"].transform("nunique") == 1
    again = table[once].drop(columns="seed").merge(table[["seed"]].drop_duplicates(), how="cross")
    return pd.concat([table[~once], again]).assign(protocol="", dataset="all", partition="")


# -- comparisons ----------------------------------------------------------------------------------


def differences(claim: dict, values: pd.DataFrame) -> pd.DataFrame:
    """A row per comparison and seed, with its value."""
    values = values[values["measure"].isin(listed(claim.get("measure", "accuracy")))]
    for axis in ("protocol", "dataset", "partition"):
        if axis in claim:
            values = values[values[axis].isin(listed(claim[axis]))]
    ours = values[values["method"].isin(listed(claim["method"]))]
    if "over" in claim:
        others = values[values["method"].isin(listed(claim["over"]))]
        pairs = ours.merge(others.rename(columns={"method": "over"}), on=SETTING)
        ours = pairs.assign(value=pairs["value_x"] - pairs["value_y"])
    else:
        ours = ours.assign(over="")
    ours = ours[[*SETTING, "method", "over", "value"]]
    for axis, names in claim.get("along", {}).items():
        ours = growth(ours, axis, names)
    return ours


def growth(table: pd.DataFrame, axis: str, along: list[str]) -> pd.DataFrame:
    """What the value grows by from each name on an axis to the next of those that there are."""
    keys = [name for name in table.columns if name not in (axis, "value")]
    there = table[table[axis].isin(along)]
    there = there.sort_values(axis, key=lambda names: names.map(along.index), kind="stable")
    before = there.groupby(keys, sort=False)[[axis, "value"]].shift()
    grown = (there["value"] - before["value"]).where(np.isfinite(there["value"] + before["value"]))
    steps = there.assign(**{axis: before[axis] + " to " + there[axis], "value": grown})
    return steps[before[axis].notna()].reset_index(drop=True)


def interval(sample: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Student's two-sided confidence interval of the mean; infinite for fewer than two."""
    if len(sample) < 2:
        return -np.inf, np.inf
    if (sample == sample[0]).all():
        return sample[0], sample[0]
    half = stats.t.ppf(1 - level / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    return sample.mean() - half, sample.mean() + half


def p_value(sample: np.ndarray, bound: float) -> float:
    """Of the paired t-test that the mean difference is `bound`; 1 for fewer than two."""
    if len(sample) < 2:
        return 1.0
    if (sample == sample[0]).all():
        return float(sample[0] == bound)
    return float(stats.ttest_1samp(sample, bound).pvalue)


def seeds_needed(sample: np.ndarray, bounds: tuple[float, float], comparisons: int = 1) -> float:
    """How many seeds would decide, if mean and deviation stayed what they are; missing for one.

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


def compare(claim: dict, values: pd.DataFrame) -> pd.DataFrame:
    """A row per comparison: mean difference, interval, p, seeds, seeds needed and verdict.

    Where all seeds of one method diverged and none of the other's, that decides; where some did,
    or both methods', nothing is decided.
    """
    bounds = claim.get("least", -np.inf), claim.get("most", np.inf)
    names = [*SETTING[:-1], "method", "over"]
    groups = list(differences(claim, values).groupby(names, sort=False))
    rows = [
        dict(zip(names, key, strict=True)) | judged(of["value"].to_numpy(), bounds, len(groups))
        for key, of in groups
    ]
    found = list(judged(np.zeros(1), bounds, 1))
    return pd.DataFrame(rows, columns=[*names, *found])


def judged(sample: np.ndarray, bounds: tuple[float, float], comparisons: int) -> dict:
    """One comparison among several."""
    if np.isinf(sample).any() and (sample != sample[0]).any():  # some seeds diverged
        sample = np.full_like(sample, np.nan)
    low, high = interval(sample)
    least, most = interval(sample, LEVEL / comparisons)
    nearest = min(filter(np.isfinite, bounds), key=lambda bound: abs(sample.mean() - bound))
    above, below = low > bounds[0] or np.isinf(bounds[0]), high < bounds[1] or np.isinf(bounds[1])
    outside = most < bounds[0] or least > bounds[1]
    verdict = HOLDS if above and below else FAILS if outside else UNDECIDED
    needed = seeds_needed(sample, bounds, comparisons) if verdict == UNDECIDED else len(sample)
    return {
        "difference": sample.mean(), "low": low, "high": high, "p": p_value(sample, nearest),
        "seeds": len(sample), "seeds_needed": needed, "verdict": verdict,
    }  # fmt: skip


# -- claims ---------------------------------------------------------------------------------------


def verdict(comparisons: pd.DataFrame, share: float | None) -> str:
    """What the comparisons of a claim say together."""
    total, found = len(comparisons), comparisons["verdict"].value_counts()
    held, failed = found.get(HOLDS, 0), found.get(FAILS, 0)
    needed = total if share is None else int(np.floor(share * total)) + 1
    if total and held >= needed:
        return HOLDS
    return FAILS if failed > total - needed and total else UNDECIDED


def printed(claim: dict, values: pd.DataFrame) -> dict:
    """What the paper's table says of a claim: how many comparisons of printed means agree."""
    gaps = differences(claim, values)
    if gaps.empty:
        return {"published": "no numbers are printed", "published_verdict": ""}
    inside = gaps["value"].between(claim.get("least", -np.inf), claim.get("most", np.inf))
    share = claim.get("share")
    enough = inside.all() if share is None else inside.mean() > share
    text = f"{inside.sum()} of {len(gaps)} comparisons, {described(gaps)}"
    return {"published": text, "published_verdict": "consistent" if enough else CONTRADICTED}


def described(gaps: pd.DataFrame) -> str:
    """The smallest and the largest of the finite differences, and where they are."""
    gaps = gaps[np.isfinite(gaps["value"])]
    if gaps.empty:
        return "none of which has two numbers"
    ends = gaps.loc[[gaps["value"].idxmin(), gaps["value"].idxmax()]]
    return " to ".join(
        f"{row.value:+.2f} ({' '.join(filter(None, (row.dataset, row.partition, row.over)))})"
        for row in ends.itertuples()
    )
