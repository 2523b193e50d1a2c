"""Measure runs, printed tables and saliency maps, for claims to compare.

Every function returns rows with measure, protocol, dataset, partition, seed, method and value. A
run that diverged has the value minus infinity, so that it loses every comparison; its coefficients
are missing.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from fedgrid import claim as claims
from fedgrid.analysis import boxes, mixtures
from fedgrid.analysis.choice import Chooser
from fedgrid.analysis.published import list_published_cells
from fedgrid.analysis.scores import (
    CELL,
    OWN,
    interquartile_range,
    score_by,
    score_runs,
    select_scored,
)
from fedgrid.analysis.speedups import compute_log_speedups, compute_speedups
from fedgrid.study.records import Study

SETTING = ["measure", "protocol", "dataset", "partition", "seed"]
NOTHING = pd.DataFrame(columns=[*SETTING, "method", "value"]).astype({"value": float})
EARLY = 0.25  # share of the rounds that counts as the start of a run
COUNTED = ("flops_per_sample", "flops_around", "flops_before")  # if the protocol asks for them
SCORED = {"accuracy": "accuracy", "personal accuracy": OWN}  # measures that are scores of runs
STATISTICS: dict[str, Callable[..., float]] = {
    "median": np.median,
    "mean": np.mean,
    "box": interquartile_range,  # from quartile to quartile
    "deviation": np.std,
    "whiskers": boxes.measure_whiskers,
    "outliers": boxes.count_outliers,
    "low outliers": boxes.count_low_outliers,
    "spread of outliers": boxes.measure_outliers,
}
EXPLAINED = "explained"  # by the autoencoder of a map, as a share of the variance


# -- of runs --------------------------------------------------------------------------------------


def measure_accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs' scores in percent; minus infinity for a run that diverged."""
    return measure_scores(runs, "accuracy", "accuracy")


def measure_personal_accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of the mean accuracy of clients' own models, in percent."""
    return measure_scores(runs, OWN, "personal accuracy")


def measure_scores(runs: pd.DataFrame, metric: str, measure: str) -> pd.DataFrame:
    """Score runs by a metric, and name the result as a measure."""
    means = score_runs(runs, metric).rename(columns={metric: "value"})
    means["value"] = means["value"].mask(means["diverged"], -np.inf)
    return means.assign(measure=measure)[[*SETTING, "method", "value"]]


def measure_coefficient(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Score a logged coefficient, or the difference of two, such as alpha_0 - alpha_1."""
    first, *second = measure.removeprefix(claims.COEFFICIENT).split(" - ")
    if not {first, *second} <= {*runs} or runs[[first, *second]].isna().all(axis=None):
        return NOTHING
    scores = [
        score_runs(select_scored(runs, column), column).set_index([*CELL, "seed"])[column]
        for column in (first, *second)
    ]
    value = scores[0] - scores[1] if second else scores[0]
    table = value.rename("value").reset_index().assign(measure=measure)
    return table[[*SETTING, "method", "value"]]


def find_optima(interpolation: pd.DataFrame, axis: str) -> pd.Series:
    """Find the alpha or beta at which the clients of a run have the best mean accuracy.

    If several points are equally good, the value is their mean.
    """
    keys, points = [*CELL, "seed"], mixtures.select_features(interpolation)
    mean = points["mean"].round(10)
    best = points[mean == mean.groupby([points[k] for k in keys]).transform("max")]
    return best.groupby(keys, sort=False)[axis].mean()


def measure_mixtures(interpolation: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure of mixtures of the shared and the private models of runs."""
    kind, _, of = measure.partition(" ")
    if kind == "best":
        values = find_optima(interpolation, of)
    else:
        values = mixtures.count_kept(interpolation, of.removeprefix("at "))
    table = values.rename("value").reset_index().assign(measure=measure)
    return table[[*SETTING, "method", "value"]]


def measure_speedups(runs: pd.DataFrame, over: str = "fedavg") -> pd.DataFrame:
    """Return by which factor runs reach the best accuracy of `over` sooner."""
    table = compute_speedups(runs, over).rename(columns={"speedup": "value"})
    return name_speedups(table, runs, claims.SPEED_UP)


def measure_log_speedups(runs: pd.DataFrame, over: str = "fedavg") -> pd.DataFrame:
    """Return the logarithm of this factor, which is below 0 for a run that is later."""
    table = compute_log_speedups(runs, over).rename(columns={"log_speedup": "value"})
    return name_speedups(table, runs, claims.LOG_SPEED_UP)


def name_speedups(table: pd.DataFrame, runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Name speed-ups as a measure; minus infinity for a run that diverged."""
    gone = runs.groupby([*CELL, "seed"])["diverged"].any().rename("gone").reset_index()
    table = table.merge(gone, on=[*CELL, "seed"])
    table["value"] = table["value"].mask(table["gone"], -np.inf)
    return table.assign(measure=measure)[[*SETTING, "method", "value"]]


def measure_steadiness(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the negative mean change between evaluations: a steadier run has a higher value."""
    percent = runs.assign(percent=100 * runs["accuracy"]).sort_values("round", kind="stable")
    table = percent.groupby([*CELL, "seed"], sort=False).agg(
        value=("percent", lambda values: -values.diff().abs().mean()), gone=("diverged", "any")
    ).reset_index()  # fmt: skip
    table["value"] = table["value"].mask(table["gone"], -np.inf)
    return table.assign(measure="steadiness")[[*SETTING, "method", "value"]]


def measure_early_accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy in percent of the first quarter of the rounds, without round 0.

    Faster convergence gives a higher value.
    """
    early = runs[(runs["round"] > 0) & (runs["round"] <= EARLY * runs["rounds"])]
    table = early.groupby([*CELL, "seed"], sort=False)["accuracy"].mean().rename("value")
    gone = runs.groupby([*CELL, "seed"])["diverged"].any().rename("gone")
    table = pd.concat([100 * table, gone], axis=1, join="inner").reset_index()
    table["value"] = table["value"].mask(table["gone"], -np.inf)
    return table.assign(measure="early accuracy")[[*SETTING, "method", "value"]]


def measure_costs(costs: pd.DataFrame) -> list[pd.DataFrame]:
    """Return what runs compute and send, in percent of what `claims.OVER` does in a round.

    Operations are those of a client, in a round and before the first one; traffic goes both ways.
    """
    counts = costs.reindex(columns=[*COUNTED, "samples_per_round", "bytes_down", "bytes_up"])
    steps, around, before, samples, down, up = counts.to_numpy(float).T
    client, traffic = steps * samples + around, down + up
    measured = [
        (claims.OPERATIONS, client, client),
        (claims.BEFORE, before, client),
        (claims.TRAFFIC, traffic, traffic),
    ]
    return [share_of_base(costs, *given) for given in measured]


def share_of_base(
    costs: pd.DataFrame, measure: str, value: np.ndarray, of: np.ndarray
) -> pd.DataFrame:
    """Return `value` in percent of `of` of the run of `claims.OVER` with the same names."""
    table = costs.assign(measure=measure, value=100 * value, of=of)
    base = table.loc[table["method"] == claims.OVER, [*SETTING, "of"]]
    both = table.drop(columns="of").merge(base, on=SETTING)
    both["value"] = both["value"] / both["of"]
    return both[both["value"].notna()][[*SETTING, "method", "value"]]


def measure_unevenness(predictions: pd.DataFrame) -> list[pd.DataFrame]:
    """Return how far the server's predictions are from all classes alike, in percent.

    It is the least share of the test images that would have to be predicted as other classes, the
    mean over the second half of the rounds.
    """
    late = predictions[predictions["round"] > predictions["rounds"] / 2]
    keys = [*CELL, "seed"]
    counts = late.groupby([*keys, "round"], sort=False)["predicted"]
    away = (late["predicted"] / counts.transform("sum") - 1 / counts.transform("size")).abs() / 2
    each = away.groupby([late[name] for name in (*keys, "round")], sort=False).sum()
    table = (100 * each.groupby(level=keys, sort=False).mean()).rename("value").reset_index()
    return [table.assign(measure=claims.UNEVENNESS)[[*SETTING, "method", "value"]]]


OF_SOURCES = {"costs": measure_costs, "predictions": measure_unevenness}  # beside runs
MEASURES = {  # by name: the metric by which runs are chosen, and the function that measures them
    "accuracy": ("accuracy", measure_accuracies),
    claims.SPEED_UP: ("accuracy", measure_speedups),
    claims.LOG_SPEED_UP: ("accuracy", measure_log_speedups),
    "steadiness": ("accuracy", measure_steadiness),
    "early accuracy": ("accuracy", measure_early_accuracies),
    "personal accuracy": (OWN, measure_personal_accuracies),
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


def measure_similarities(scores: pd.DataFrame) -> pd.DataFrame:
    """Return STATISTICS of the images' scores, and EXPLAINED, by map and encoder's seed.

    A map that does not depend on the seed has the same values for all seeds.
    """
    rows = []
    for (encoder, layer, seed), part in scores.groupby(["encoder", "layer", "seed"]):
        for score in ("ssim", "cosine", "euclidean"):
            for name, statistic in STATISTICS.items():
                rows.append((f"{score} {name}", f"{encoder}-{layer}", seed, statistic(part[score])))
        share = part[EXPLAINED].iloc[0] if EXPLAINED in part else np.nan
        rows.append((EXPLAINED, f"{encoder}-{layer}", seed, share))
    table = pd.DataFrame(rows, columns=["measure", "method", "seed", "value"])
    once = table.groupby("method")["seed"].transform("nunique") == 1
    again = table[once].drop(columns="seed").merge(table[["seed"]].drop_duplicates(), how="cross")
    return pd.concat([table[~once], again]).assign(protocol="", dataset="all", partition="")


# -- of a study -----------------------------------------------------------------------------------


def measure_all(
    study: Study,
    runs: pd.DataFrame | None,
    scores: pd.DataFrame | None = None,
    interpolation: pd.DataFrame | None = None,
    choose: Chooser = lambda table, by: table,
    way: str | None = None,
    more: Mapping[str, pd.DataFrame | None] | None = None,
) -> pd.DataFrame:
    """Measure everything that the study's claims compare; `scores` are of the fidelity experiment.

    `choose` keeps the best runs by the metric of a measure. `way`, a key of `scores.WAYS`, replaces
    the way in which the runs' protocols say to score them. `more` has the tables of OF_SOURCES.
    """
    runs = runs if runs is None or way is None else score_by(runs, way)
    asked = {"accuracy"}.union(*map(claims.measures, study.get("claims", [])))
    tables = (
        [] if runs is None else [measure_runs(name, runs, choose) for name in order_measures(asked)]
    )
    tables += [] if scores is None else [measure_similarities(scores)]
    for name, table in (more or {}).items():
        tables += [] if table is None else OF_SOURCES[name](table)
    if interpolation is not None:
        points = choose(interpolation, OWN)
        tables += [
            measure_mixtures(points, name)
            for name in claims.OF_KIND["interpolation"]
            if name in asked
        ]
    return pd.concat([measured for measured in tables if len(measured)] or [NOTHING])


def order_measures(asked: set[str]) -> list[str]:
    """Return the measures of runs among those asked for, in a fixed order."""
    return [*filter(asked.__contains__, MEASURES), *sorted(filter(claims.is_coefficient, asked))]


def measure_runs(name: str, runs: pd.DataFrame, choose: Chooser) -> pd.DataFrame:
    """Measure those runs that have the measure's metric, or diverged.

    A method whose server has no complete model has no accuracy, and is left out.
    """
    by = OWN if OWN in runs else "accuracy"  # of what a method logs
    by, measure = MEASURES.get(name) or (by, partial(measure_coefficient, measure=name))
    if by not in runs or runs[by].isna().all():
        return NOTHING
    return measure(select_scored(choose(runs, by), by))
