"""The score of a run, means over seeds, and differences between runs of the same seed.

A score is of one metric, a column of the runs' metrics, and the protocol's `metric` decides how it
is taken: the mean of the evaluations in the last `tail` rounds, the best evaluation, or the last
moving average. The way `tail_epochs` counts `tail` in local epochs or steps, of which a round has
`local`, instead of rounds. The evaluation of round 0, before any training, begins the moving
average, and counts for nothing else: a longer tail than the run is the whole run. If a run has
validation data, its best evaluation is that of the round with the highest validation accuracy, the
first of several; for a metric of clients' own models this accuracy is theirs, if the run has it.
Otherwise it is the highest value; of a column whose name ends with `loss` or `error` it is the
lowest. Rounds in which the column is empty do not count.

Scores of fedgrid's own shares are in percent; all other columns are scored as they were recorded
(`analysis/metrics.py`).

A run that diverged has no score, and so a mean over seeds that includes it is missing. A run
without the metric has no score either, but does not count as diverged.
"""

from typing import Any

import numpy as np
import pandas as pd

from fedgrid.analysis.metrics import find_model, in_percent, lower_is_better, validation_of
from fedgrid.federation import cohorts
from fedgrid.runtime.names import NothingToDrawError, UsageError, known
from fedgrid.study.paths import SUMMED, UNTESTED

OWN = "own_mean"  # the mean over clients of the accuracy of their own models
SETTING = ["protocol", "dataset", "partition"]
CELL = ["method", "dataset", "partition", "protocol"]
RUN = [*CELL, "seed"]
SMOOTHING = 0.6  # what a moving average keeps of itself; FedNTD's authors say they report this
WAYS: dict[str, dict[str, Any]] = {  # to score a run
    **{name: {"metric": name} for name in ("tail", "best", "smoothed")},
    "final": {"metric": "tail", "tail": 1},
    "tail_epochs": {"metric": "tail", "tail": lambda runs: -(-runs["tail"] // runs["local"])},
}
FACTS = {*RUN, *SUMMED, UNTESTED, "client_test", "validation", "validation_from", "round"}
FACTS |= {"diverged"}


def score_runs(runs: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Score every run by a metric: a row has its score, its last value and its moving average.

    `runs` has a row per run and evaluation, shares in 0..1, as `fedgrid collect` writes it. A run
    that diverged has no score; `ended` is the round after which it diverged. The column `metric`
    says how the score was taken; if validation data decided, it also says where these come from.
    """
    check_metric(runs, metric)
    value = runs[metric]
    whole = runs.assign(
        value=value,
        trained=value.where(runs["round"] > 0),
        counted=value.where(find_tail(runs)),
        chosen=value.where(find_chosen_rounds(runs, metric)),
        tail=runs[["tail", "rounds"]].min(axis="columns"),
    )
    scores = whole.groupby(RUN, sort=False).agg(
        mean=("counted", "mean"),
        best=("trained", "min" if lower_is_better(metric) else "max"),
        chosen=("chosen", "first"),
        final=("value", "last"),
        smoothed=("value", last_moving_average),
        ended=("round", "last"),
        diverged=("diverged", "any"),
        metric=("metric", "first"),
        rounds=("rounds", "first"),
        tail=("tail", "first"),
        **{name: (name, "first") for name in (UNTESTED,) if name in runs},
    )
    best = scores.pop("chosen").fillna(scores.pop("best"))
    counts = scores.pop("mean").mask(scores["metric"] == "best", best)
    scores.insert(0, metric, counts.mask(scores["metric"] == "smoothed", scores["smoothed"]))
    numbers, scale = [metric, "final", "smoothed"], 100 if in_percent(metric) else 1
    scores[numbers] = (scale * scores[numbers]).mask(scores["diverged"])
    return add_metric_name(add_origin(scores, whole).reset_index(), metric)


def find_tail(runs: pd.DataFrame) -> pd.Series:
    """Mark the evaluations in the last `tail` rounds of each run, without that of round 0."""
    return (runs["round"] > runs["rounds"] - runs["tail"]) & (runs["round"] > 0)


def score_by(runs: pd.DataFrame, way: str) -> pd.DataFrame:
    """Have runs scored in another way than their protocols say.

    `final` takes the last round, and `tail_epochs` reads `tail` as a number of local epochs.
    UsageError for a `way` that is not in WAYS.
    """
    return runs.assign(**WAYS[known("way to score a run", way, WAYS)])


def check_metric(runs: pd.DataFrame, metric: str) -> None:
    """Raise a UsageError with the nearest names if no run has a value in the column `of`."""
    recorded = {*runs.select_dtypes("number").dropna(axis="columns", how="all").columns} - FACTS
    if metric == "accuracy" and metric not in recorded and OWN in recorded:
        raise UsageError(
            "these runs have no accuracy of the server's model, because clients keep a part of it: "
            f"write `with: {{metric: {OWN}}}` for clients' own models, and `draw: table` if the "
            "product has no option `metric`"
        )
    known("metric of these runs", metric, recorded)


def find_chosen_rounds(runs: pd.DataFrame, metric: str) -> pd.Series:
    """Mark the evaluation of each run with the best validation accuracy, the first if equal.

    Only rounds of training with a value of the metric are considered. A run without validation data
    has none.
    """
    if "validation_accuracy" not in runs:
        return pd.Series(False, runs.index)
    keys = [runs[name] for name in RUN]
    validated = runs["validation_accuracy"]
    if find_model(metric) and (by := validation_of(metric)) in runs:
        has = runs[by].notna().groupby(keys).transform("any")
        validated = runs[by].where(has, validated)
    validated = validated.where(runs[metric].notna() & (runs["round"] > 0))
    best = validated.groupby(keys).transform("max")
    first = runs["round"].where(validated == best).groupby(keys).transform("min")
    return runs["round"] == first


def add_origin(scores: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Write into the column `metric` where validation data come from, such as `validated-test`."""
    groups = runs.groupby(RUN, sort=False)
    validated = groups["chosen"].count() > 0
    origin = groups["validation_from"].first() if "validation_from" in runs else "unknown"
    words = "validated-" + pd.Series(origin, scores.index, dtype=object).fillna("unknown")
    decided = validated & (scores["metric"] == "best")
    return scores.assign(metric=scores["metric"].mask(decided, words))


def add_metric_name(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Add the metric's name as the column `of`, except to a table of accuracies."""
    return table if metric == "accuracy" else table.assign(of=metric)


def last_moving_average(values: pd.Series) -> float:
    """Return the last exponential moving average of the evaluations, started at the first."""
    present = values.dropna()
    return np.nan if present.empty else moving_average(present).iloc[-1]


def moving_average(values: pd.Series) -> pd.Series:
    """Return the exponential moving average after every evaluation, started at the first."""
    return values.ewm(alpha=1 - SMOOTHING, adjust=False).mean()


SCORED = ("metric", "tail", UNTESTED)  # columns that say how runs were scored
FROM_RUNS = ("rounds", "of", *SCORED)  # columns that the runs of a group share


def mean_over_seeds(means: pd.DataFrame, by: list[str], value: str = "accuracy") -> pd.DataFrame:
    """Return mean, sample standard deviation and number of seeds of `value` by group of runs."""
    facts = [name for name in FROM_RUNS if name in means and name not in by]
    return means.groupby(by, sort=False).agg(
        mean=(value, strict_mean),
        std=(value, lambda a: a.std(skipna=False)),
        seeds=("seed", "nunique"),
        diverged=("diverged", "sum"),
        **{name: (name, "first") for name in facts},
    ).reset_index()  # fmt: skip


def select_scored(runs: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Return the rows of those runs that have a value of the metric, or diverged."""
    has = runs[metric].notna().groupby([runs[name] for name in RUN]).transform("any")
    return runs[has | runs["diverged"]]


def pair_runs(means: pd.DataFrame, method: str, over: list[str]) -> pd.DataFrame:
    """Return a row per setting, seed and other method: accuracy of `method` minus the other's.

    Differences are in percentage points. Runs of a seed share partition, cohorts and initial
    weights, so they form pairs. NothingToDrawError if there are no such pairs.
    """
    pairs = subtract_runs(means, method, over)
    if pairs.empty:
        methods = ", ".join(means["method"].unique())
        raise NothingToDrawError(
            f"this needs runs of {method} and of {' or '.join(over)}, but the runs are of {methods}"
        )
    return pairs


def subtract_runs(means: pd.DataFrame, method: str, over: list[str]) -> pd.DataFrame:
    """Return the rows of `pair_runs`; there are none if no setting has a pair."""
    keys = [*SETTING, "seed"]
    ours = means.loc[means["method"] == method, [*keys, "accuracy", "diverged"]]
    theirs = means[means["method"].isin(over)].rename(columns={"method": "over"})
    pairs = theirs.merge(ours, on=keys, suffixes=("", "_ours"))
    difference = pairs["accuracy_ours"] - pairs["accuracy"]
    return pairs.assign(accuracy=difference, diverged=pairs["diverged"] | pairs["diverged_ours"])


def list_cohort_sizes(runs: pd.DataFrame) -> list[int]:
    """Return how many clients take part in a round, for every row of `runs`."""
    columns = runs[["clients", "participation", "sampler"]].itertuples(index=False)
    return [cohorts.size(int(clients), *others) for clients, *others in columns]


def strict_mean(values: pd.Series) -> float:
    """Return the mean; missing if any value is missing."""
    return values.mean(skipna=False)
