"""Measure runs, printed tables and saliency maps, for claims to compare.

Every function returns rows with measure, protocol, dataset, partition, seed, method and value. A
run that diverged has the value minus infinity, so that it loses every comparison; its coefficients
are missing.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from fedgrid import claim as claims
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
from fedgrid.analysis.speedups import compute_speedups
from fedgrid.study.records import Study

SETTING = ["measure", "protocol", "dataset", "partition", "seed"]
NOTHING = pd.DataFrame(columns=[*SETTING, "method", "value"]).astype({"value": float})
EARLY = 0.25  # share of the rounds that counts as the start of a run
SCORED = {"accuracy": "accuracy", "personal accuracy": OWN}  # measures that are scores of runs
STATISTICS: dict[str, Callable[..., float]] = {
    "median": np.median,
    "mean": np.mean,
    "box": interquartile_range,
}  # box: quartile to quartile


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
        score_runs(runs, column).set_index([*CELL, "seed"])[column] for column in (first, *second)
    ]
    value = scores[0] - scores[1] if second else scores[0]
    table = value.rename("value").reset_index().assign(measure=measure)
    return table[[*SETTING, "method", "value"]]


def find_optima(interpolation: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Find the alpha or beta at which the clients of a run have the best mean accuracy.

    If several points are equally good, the value is their mean.
    """
    keys = [*CELL, "seed"]
    mean = interpolation["mean"].round(10)
    best = interpolation[mean == mean.groupby([interpolation[k] for k in keys]).transform("max")]
    table = best.groupby(keys, sort=False)[axis].mean().rename("value").reset_index()
    return table.assign(measure=f"best {axis}")[[*SETTING, "method", "value"]]


def measure_speedups(runs: pd.DataFrame, over: str = "fedavg") -> pd.DataFrame:
    """Return by which factor runs reach the best accuracy of `over` sooner."""
    table = compute_speedups(runs, over).rename(columns={"speedup": "value"})
    gone = runs.groupby([*CELL, "seed"])["diverged"].any().rename("gone").reset_index()
    table = table.merge(gone, on=[*CELL, "seed"])
    table["value"] = table["value"].mask(table["gone"], -np.inf)
    return table.assign(measure="speed-up")[[*SETTING, "method", "value"]]


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


MEASURES = {  # by name: the metric by which runs are chosen, and the function that measures them
    "accuracy": ("accuracy", measure_accuracies),
    "speed-up": ("accuracy", measure_speedups),
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
    """Return median, mean and interquartile range of the images' scores, by map and encoder's seed.

    A map that does not depend on the seed has the same values for all seeds.
    """
    rows = []
    for (encoder, layer, seed), part in scores.groupby(["encoder", "layer", "seed"], sort=False):
        for score in ("ssim", "cosine", "euclidean"):
            for name, statistic in STATISTICS.items():
                rows.append((f"{score} {name}", f"{encoder}-{layer}", seed, statistic(part[score])))
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
) -> pd.DataFrame:
    """Measure everything that the study's claims compare; `scores` are of the fidelity experiment.

    `choose` keeps the best runs by the metric of a measure. `way`, a key of `scores.WAYS`, replaces
    the way in which the runs' protocols say to score them.
    """
    runs = runs if runs is None or way is None else score_by(runs, way)
    asked = {"accuracy"}.union(*map(claims.measures, study.get("claims", [])))
    tables = (
        [] if runs is None else [measure_runs(name, runs, choose) for name in order_measures(asked)]
    )
    tables += [] if scores is None else [measure_similarities(scores)]
    if interpolation is not None:
        points = choose(interpolation, OWN)
        tables += [
            find_optima(points, axis) for axis in ("alpha", "beta") if f"best {axis}" in asked
        ]
    return pd.concat([measured for measured in tables if len(measured)] or [NOTHING])


def order_measures(asked: set[str]) -> list[str]:
    """Return the measures of runs among those asked for, in a fixed order."""
    return [*filter(asked.__contains__, MEASURES), *sorted(filter(claims.is_coefficient, asked))]


def measure_runs(name: str, runs: pd.DataFrame, choose: Chooser) -> pd.DataFrame:
    """Measure those runs that have the measure's metric, or diverged.

    A method whose server has no complete model has no accuracy, and is left out.
    """
    by, measure = MEASURES.get(name) or (OWN, partial(measure_coefficient, measure=name))
    if by not in runs or runs[by].isna().all():
        return NOTHING
    return measure(select_scored(choose(runs, by), by))
