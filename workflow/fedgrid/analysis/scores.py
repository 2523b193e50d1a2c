"""The score of a run, means over seeds, and differences between runs of the same seed.

The protocol's metric decides the score, an accuracy in percent: the mean of the evaluations in the
last `tail` rounds, the best evaluation, or the last moving average. A run that diverged has no
score, and the mean over seeds with such a run is missing, too.
"""

import numpy as np
import pandas as pd

from fedgrid.runtime.names import UsageError

SETTING = ["protocol", "dataset", "partition"]
CELL = ["method", "dataset", "partition", "protocol"]
SMOOTHING = 0.6  # what a moving average keeps of itself; FedNTD's authors say they report this


def score_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per run, in percent: its score, its last accuracy, and the smoothed one.

    `runs` has a row per run and evaluation, accuracy in 0..1, as `fedgrid.collect` writes it. A run
    that diverged has no accuracies; `ended` is the round after which it diverged.
    """
    in_tail = (runs["round"] > runs["rounds"] - runs["tail"]) | runs["diverged"]
    whole = runs.assign(counted=runs["accuracy"].where(in_tail))
    found = whole.groupby([*CELL, "seed"], sort=False).agg(
        mean=("counted", "mean"),
        best=("accuracy", "max"),
        final=("accuracy", "last"),
        smoothed=("accuracy", smoothed),
        ended=("round", "last"),
        diverged=("diverged", "any"),
        metric=("metric", "first"),
        rounds=("rounds", "first"),
        tail=("tail", "first"),
    )
    counts = found.pop("mean").mask(found["metric"] == "best", found.pop("best"))
    found.insert(0, "accuracy", counts.mask(found["metric"] == "smoothed", found["smoothed"]))
    percents = ["accuracy", "final", "smoothed"]
    found[percents] = (100 * found[percents]).mask(found["diverged"])
    return found.reset_index()


def smoothed(accuracies: pd.Series) -> float:
    """Return the last exponential moving average of the evaluations, started at the first."""
    return accuracies.ewm(alpha=1 - SMOOTHING, adjust=False).mean().iloc[-1]


def mean_over_seeds(means: pd.DataFrame, by: list[str], value: str = "accuracy") -> pd.DataFrame:
    """Return mean, sample standard deviation and number of seeds of `value` by group of runs."""
    return means.groupby(by, sort=False).agg(
        mean=(value, whole_mean),
        std=(value, lambda a: a.std(skipna=False)),
        seeds=("seed", "nunique"),
        diverged=("diverged", "sum"),
        rounds=("rounds", "first"),
        metric=("metric", "first"),
        tail=("tail", "first"),
    ).reset_index()  # fmt: skip


def pair_runs(means: pd.DataFrame, method: str, over: list[str]) -> pd.DataFrame:
    """Return a row per setting, seed and other method: accuracy of `method` minus the other's.

    Differences are in percentage points. Runs of a seed share partition, cohorts and initial
    weights, so they form pairs. UsageError if there are no such pairs.
    """
    keys = [*SETTING, "seed"]
    ours = means.loc[means["method"] == method, [*keys, "accuracy", "diverged"]]
    theirs = means[means["method"].isin(over)].rename(columns={"method": "over"})
    pairs = theirs.merge(ours, on=keys, suffixes=("", "_ours"))
    if pairs.empty:
        there = ", ".join(means["method"].unique())
        raise UsageError(
            f"this needs runs of {method} and of {' or '.join(over)}, but the runs are of {there}"
        )
    difference = pairs["accuracy_ours"] - pairs["accuracy"]
    return pairs.assign(accuracy=difference, diverged=pairs["diverged"] | pairs["diverged_ours"])


def whole_mean(values: pd.Series) -> float:
    """Return the mean; missing if any value is missing."""
    return values.mean(skipna=False)


def spread(values: pd.Series) -> float:
    """Return the interquartile range."""
    return float(np.subtract(*np.percentile(values, [75, 25])))
