"""Measure runs, printed tables and saliency maps, for claims to compare.

Every function returns rows with measure, protocol, dataset, partition, seed, method and value. A
run that diverged has the value minus infinity, so that it loses every comparison; its coefficients
are missing.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgrid import claim as claims
from fedgrid.analysis import mixtures
from fedgrid.analysis.choice import Chooser
from fedgrid.analysis.published import list_published_cells
from fedgrid.analysis.scores import OWN, RUN, score_by, score_runs, select_scored
from fedgrid.study.records import Study

SETTING = ["measure", "protocol", "dataset", "partition", "seed"]
NOTHING = pd.DataFrame(columns=[*SETTING, "method", "value"]).astype({"value": float})
REACH = 1.5  # of whiskers, in heights of the box
EARLY = 0.25  # share of the rounds that counts as the start of a run
COUNTED = ("flops_per_sample", "flops_around", "flops_before")  # if the protocol asks for them
SCORED = {"accuracy": "accuracy", "personal accuracy": OWN}  # measures that are scores of runs
EXPLAINED = "explained"  # by the autoencoder of a map, as a share of the variance


# -- of runs --------------------------------------------------------------------------------------


def as_measure(table: pd.DataFrame, measure: str, runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Name the column `value` as a measure; minus infinity for those of `runs` that diverged."""
    if runs is not None:
        gone = runs.groupby(RUN)["diverged"].any().rename("gone").reset_index()
        table = table.merge(gone, on=RUN)
        table["value"] = table["value"].mask(table["gone"], -np.inf)
    return table.assign(measure=measure)[[*SETTING, "method", "value"]]


def measure_scores(runs: pd.DataFrame, metric: str, measure: str) -> pd.DataFrame:
    return as_measure(score_runs(runs, metric).rename(columns={metric: "value"}), measure, runs)


def measure_coefficient(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Score a logged coefficient, or the difference of two, such as alpha_0 - alpha_1."""
    first, *second = measure.removeprefix(claims.COEFFICIENT).split(" - ")
    if not {first, *second} <= {*runs} or runs[[first, *second]].isna().all(axis=None):
        return NOTHING
    scores = [
        score_runs(select_scored(runs, column), column).set_index(RUN)[column]
        for column in (first, *second)
    ]
    value = scores[0] - scores[1] if second else scores[0]
    return as_measure(value.rename("value").reset_index(), measure)


def find_optima(interpolation: pd.DataFrame, axis: str) -> pd.Series:
    """Find the alpha or beta at which the clients of a run have the best mean accuracy.

    If several points are equally good, the value is their mean.
    """
    points = mixtures.select_features(interpolation)
    mean = points["mean"].round(10)
    best = points[mean == mean.groupby([points[name] for name in RUN]).transform("max")]
    return best.groupby(RUN, sort=False)[axis].mean()


def measure_mixtures(interpolation: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure of mixtures of the shared and the private models of runs."""
    kind, _, of = measure.partition(" ")
    if kind == "best":
        values = find_optima(interpolation, of)
    else:
        values = mixtures.count_kept(interpolation, of.removeprefix("at "))
    return as_measure(values.rename("value").reset_index(), measure)


def measure_speedups(runs: pd.DataFrame) -> pd.DataFrame:
    """Return by which factor runs reach the best accuracy of `claims.OVER` sooner."""
    table = compute_speedups(runs, claims.OVER).rename(columns={"speedup": "value"})
    return as_measure(table, claims.SPEED_UP, runs)


def measure_log_speedups(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the natural logarithm of T' / T, or of T' / R (`find_rounds`), unlike 1 at least."""
    reached = find_rounds(runs, claims.OVER)
    ratio = reached["goal_round"] / reached["reached_round"].fillna(reached["rounds"])
    table = reached.assign(value=np.log(ratio.where(reached["known"])))
    return as_measure(table, claims.LOG_SPEED_UP, runs)


def compute_speedups(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return a row per run: how many times sooner it is as good as `over` at best (FedLMD, 5.3).

    It is missing if there is no run of `over`, or either run diverged or has no accuracy.
    """
    reached = find_rounds(runs, over)
    ratio = (reached["goal_round"] / reached["reached_round"]).fillna(1).clip(lower=1)
    return reached[RUN].assign(speedup=ratio.where(reached["known"]))


def find_rounds(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return a row per run: the rounds T and T', all rounds, and whether its speed-up is known.

    Let `over` have its best accuracy first in round T', and a run be as good first in round T. The
    speed-up is T' / T, and 1 if this is less than 1 or the run is never as good. So it does not
    tell a slower run from an equal one. The logarithm of T' / T is below 0 for a slower one. There
    a run that is not as good in any of its R rounds has log(T' / R), the least that the measure can
    be. This is too good for it, because it needs more than R rounds.
    """
    keys = SETTING[1:]
    rounds = runs[runs["round"] > 0]
    other = rounds[rounds["method"] == over]
    best_first = other.sort_values(["accuracy", "round"], ascending=[False, True])
    goal = best_first.groupby(keys, as_index=False).agg(
        goal=("accuracy", "first"), goal_round=("round", "first"),
        other_diverged=("diverged", "any"),
    )  # fmt: skip
    every = rounds.merge(goal, on=keys, how="left")
    reached_round = every["round"].where(every["accuracy"] >= every["goal"])
    reached = every.assign(reached_round=reached_round).groupby(RUN, sort=False).agg(
        reached_round=("reached_round", "min"), goal_round=("goal_round", "first"),
        goal=("goal", "first"), rounds=("rounds", "first"),
        diverged=("diverged", "any"), other_diverged=("other_diverged", "first"),
        best=("accuracy", "max"),
    ).reset_index()  # fmt: skip
    has_accuracy = reached[["goal", "best"]].notna().all(axis=1)
    known = has_accuracy & ~reached["diverged"] & (reached["other_diverged"] == 0)
    return reached.assign(known=known)


def measure_steadiness(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the negative mean change between evaluations: a steadier run has a higher value."""
    percent = runs.assign(value=100 * runs["accuracy"]).sort_values("round", kind="stable")
    values = percent.groupby(RUN, sort=False)["value"]
    table = values.agg(lambda of: -of.diff().abs().mean()).reset_index()
    return as_measure(table, "steadiness", runs)


def measure_early_accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy in percent of the first quarter of the rounds, without round 0.

    Faster convergence gives a higher value.
    """
    early = runs[(runs["round"] > 0) & (runs["round"] <= EARLY * runs["rounds"])]
    mean = 100 * early.groupby(RUN, sort=False)["accuracy"].mean()
    return as_measure(mean.rename("value").reset_index(), "early accuracy", runs)


def measure_costs(costs: pd.DataFrame) -> pd.DataFrame:
    """Return what runs compute and send, in percent of what `claims.OVER` does in a round.

    Operations are those of a client, in a round and before the first one; traffic goes both ways.
    The run of `claims.OVER` has the same protocol, data set, partition and seed.
    """
    counts = costs.reindex(columns=[*COUNTED, "samples_per_round", "bytes_down", "bytes_up"])
    steps, around, before, samples, down, up = counts.to_numpy(float).T
    client, traffic = steps * samples + around, down + up
    measured = [
        (claims.OPERATIONS, client, client),
        (claims.BEFORE, before, client),
        (claims.TRAFFIC, traffic, traffic),
    ]
    table = pd.concat(
        costs.assign(measure=measure, value=100 * value, of=of) for measure, value, of in measured
    )
    base = table.loc[table["method"] == claims.OVER, [*SETTING, "of"]]
    both = table.drop(columns="of").merge(base, on=SETTING)
    both["value"] = both["value"] / both["of"]
    return both.loc[both["value"].notna(), [*SETTING, "method", "value"]]


def measure_unevenness(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return how far the server's predictions are from all classes alike, in percent.

    It is the least share of the test images that would have to be predicted as other classes, the
    mean over the second half of the rounds.
    """
    late = predictions[predictions["round"] > predictions["rounds"] / 2]
    keys = [*RUN, "round"]
    counts = late.groupby(keys, sort=False)["predicted"]
    away = (late["predicted"] / counts.transform("sum") - 1 / counts.transform("size")).abs() / 2
    each = away.groupby([late[name] for name in keys], sort=False).sum()
    table = (100 * each.groupby(level=RUN, sort=False).mean()).rename("value").reset_index()
    return as_measure(table, claims.UNEVENNESS)


# By name: the metric by which runs are chosen, and the function that measures them.
MEASURES: dict[str, tuple[str, Callable[..., pd.DataFrame]]] = {
    "accuracy": ("accuracy", partial(measure_scores, metric="accuracy", measure="accuracy")),
    claims.SPEED_UP: ("accuracy", measure_speedups),
    claims.LOG_SPEED_UP: ("accuracy", measure_log_speedups),
    "steadiness": ("accuracy", measure_steadiness),
    "early accuracy": ("accuracy", measure_early_accuracies),
    "personal accuracy": (OWN, partial(measure_scores, metric=OWN, measure="personal accuracy")),
}


# -- of printed tables, and of maps ---------------------------------------------------------------


def measure_printed(study: Study) -> pd.DataFrame:
    """Return the printed numbers as values of one seed and of the protocol `paper`.

    A word instead of a speed-up says that the method failed, and counts as minus infinity.
    """
    cells = list_published_cells(study).assign(seed=0)
    cells["protocol"] = ("paper " + cells["as_protocol"]).str.strip()
    faster = cells["published_speedup"]
    number = pd.to_numeric(faster, errors="coerce").fillna(-np.inf).where(faster.notna())
    accuracy = cells.assign(measure="accuracy", value=cells["published"])
    both = pd.concat([accuracy, cells.assign(measure="speed-up", value=number)])
    return both[both["value"].notna()][[*SETTING, "method", "value"]]


class Box(NamedTuple):
    """Tukey's box: quartiles, and outliers beyond whiskers of at most REACH times its height.

    FedSLS's section 4.3 compares similarities by boxes, whiskers and outliers.
    """

    low: float
    median: float
    high: float
    inside: Any  # the values within reach of the whiskers, as an array
    outliers: Any


def find_box(values) -> Box:
    values = np.asarray(values)
    low, median, high = np.percentile(values, [25, 50, 75])
    reach = REACH * (high - low)
    near = (values >= low - reach) & (values <= high + reach)
    return Box(low, median, high, values[near], values[~near])


def describe_values(values) -> dict[str, float]:
    """Return statistics of values by name; counts of outliers are shares in percent.

    Without outliers, the share of them that lie below the box is missing, and their spread is 0.
    """
    box = find_box(values)
    out = box.outliers
    return {
        "median": np.median(values),
        "mean": np.mean(values),
        "box": box.high - box.low,  # from quartile to quartile
        "deviation": np.std(values),
        "whiskers": float(np.ptp(box.inside)),  # from the end of one to the end of the other
        "outliers": 100 * len(out) / len(values),
        "low outliers": 100 * float(np.mean(out < box.low)) if len(out) else np.nan,
        "spread of outliers": float(np.ptp(out)) if len(out) else 0.0,
    }


def measure_similarities(scores: pd.DataFrame) -> pd.DataFrame:
    """Return statistics of the images' scores, and EXPLAINED, by map and encoder's seed.

    A map that does not depend on the seed has the same values for all seeds.
    """
    rows = []
    for (encoder, layer, seed), part in scores.groupby(["encoder", "layer", "seed"]):
        for score in ("ssim", "cosine", "euclidean"):
            for name, value in describe_values(part[score]).items():
                rows.append((f"{score} {name}", f"{encoder}-{layer}", seed, value))
        share = part[EXPLAINED].iloc[0] if EXPLAINED in part else np.nan
        rows.append((EXPLAINED, f"{encoder}-{layer}", seed, share))
    table = pd.DataFrame(rows, columns=["measure", "method", "seed", "value"])
    once = table.groupby("method")["seed"].transform("nunique") == 1
    again = table[once].drop(columns="seed").merge(table[["seed"]].drop_duplicates(), how="cross")
    return pd.concat([table[~once], again]).assign(protocol="", dataset="all", partition="")


# -- of a study -----------------------------------------------------------------------------------


# By the name of a source beside `runs`; the scores are of the fidelity experiment.
OF_SOURCES = {
    "scores": measure_similarities,
    "costs": measure_costs,
    "predictions": measure_unevenness,
}


def measure_all(
    study: Study,
    sources: Mapping[str, pd.DataFrame | None],
    choose: Chooser = lambda table, by: table,
    way: str = "",
) -> pd.DataFrame:
    """Measure everything that the study's claims compare.

    `sources` are tables by name: `runs`, `interpolation`, and those of OF_SOURCES. `choose` keeps
    the best runs by the metric of a measure. `way`, a key of `scores.WAYS`, replaces the way in
    which the runs' protocols say to score them.
    """
    asked = {"accuracy"}.union(*map(claims.measures, study.get("claims", [])))
    present = {name: table for name, table in sources.items() if table is not None}
    tables = []
    if "runs" in present:
        runs = score_by(present["runs"], way) if way else present["runs"]
        names = [*MEASURES, *sorted(filter(claims.is_coefficient, asked))]
        tables += [measure_runs(name, runs, choose) for name in names if name in asked]
    tables += [measure(present[name]) for name, measure in OF_SOURCES.items() if name in present]
    if "interpolation" in present:
        points = choose(present["interpolation"], OWN)
        of_points = claims.OF_KIND["interpolation"]
        tables += [measure_mixtures(points, name) for name in of_points if name in asked]
    return pd.concat([measured for measured in tables if len(measured)] or [NOTHING])


def measure_runs(name: str, runs: pd.DataFrame, choose: Chooser) -> pd.DataFrame:
    """Measure those runs that have the measure's metric, or diverged.

    A method whose server has no complete model has no accuracy, and is left out.
    """
    by = OWN if OWN in runs else "accuracy"  # of what a method logs
    by, measure = MEASURES.get(name) or (by, partial(measure_coefficient, measure=name))
    if by not in runs or runs[by].isna().all():
        return NOTHING
    return measure(select_scored(choose(runs, by), by))
