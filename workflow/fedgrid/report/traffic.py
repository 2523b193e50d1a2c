"""What travels in a round, and until a method is as accurate as the baseline.

A run's summary has the bytes that go to and come from one client in a round (`engine/traffic.py`).
They are multiplied by the clients of a round. They are too high for methods that send each client a
model of its own (FedPAC, FedAMP). With `runs`, a target is reached: an accuracy in percent, or by
default the baseline's mean score in the same setting. A run reaches it in its first evaluated round
with at least this accuracy. A method whose runs do not all reach it has no number of rounds.
"""

import pandas as pd

from fedgrid.analysis import figures, metrics, tables
from fedgrid.analysis.scores import CELL, RUN, list_cohort_sizes, score_runs, strict_mean
from fedgrid.report._texts import write_numbers
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.records import Study

OPTIONS = {"baseline": "method", "metric": "metric"}  # what they name (study/options.py)
SETTING = ["dataset", "partition", "protocol"]
MEGABYTE = 1e6


def draw(
    seconds: pd.DataFrame,
    study: Study,
    scale: str,
    runs: pd.DataFrame | None = None,
    target: float | None = None,
    baseline: str = "fedavg",
    metric: str = "accuracy",
) -> pd.DataFrame:
    """Return a row per method and setting: megabytes of a round and, with `runs`, to a target."""
    if missing := {"bytes_down", "bytes_up"} - {*seconds}:
        raise UsageError(
            f"the summaries of these runs lack {' and '.join(sorted(missing))}, as those of "
            "earlier versions do: train them again"
        )
    moved = seconds[[*RUN, "bytes_down", "bytes_up"]].assign(cohort=list_cohort_sizes(seconds))
    if runs is None:
        moved = moved.assign(target=float("nan"), rounds_to_target=float("nan"))
    else:
        known("method of these runs", baseline, [*runs["method"].unique()])
        targets = find_targets(runs, baseline, metric, target)
        moved = runs.merge(targets, on=SETTING).pipe(find_rounds, metric).merge(moved, on=RUN)
    table = summarise(moved)
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return table.assign(of=metric, scale=scale).round(4)


def find_targets(
    runs: pd.DataFrame, baseline: str, metric: str, target: float | None
) -> pd.DataFrame:
    """Return the target of each setting, in percent for shares."""
    if target is not None:
        return runs[SETTING].drop_duplicates().assign(target=target)
    scores = score_runs(runs[runs["method"] == baseline], metric)
    means = scores.groupby(SETTING, sort=False)[metric].agg(strict_mean)
    return means.rename("target").reset_index()


def find_rounds(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a row per run: its target, and the first evaluated round that reaches it."""
    values = (100 if metrics.in_percent(metric) else 1) * runs[metric]
    lower = metrics.lower_is_better(metric)
    there = values <= runs["target"] if lower else values >= runs["target"]
    first = runs["round"].where(there).groupby([runs[name] for name in RUN], sort=False).min()
    targets = runs.groupby(RUN, sort=False)["target"].first()
    return pd.DataFrame({"target": targets, "rounds_to_target": first}).reset_index()


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    both = runs["bytes_down"] + runs["bytes_up"]
    runs = runs.assign(
        down=runs["bytes_down"] * runs["cohort"] / MEGABYTE,
        up=runs["bytes_up"] * runs["cohort"] / MEGABYTE,
        to_target=both * runs["cohort"] * runs["rounds_to_target"] / MEGABYTE,
    )
    names = ["down", "up", "target", "rounds_to_target", "to_target"]
    groups = runs.groupby(CELL, sort=False)
    table = groups[names].agg(strict_mean)
    return table.assign(seeds=groups["seed"].nunique()).reset_index()


def wide(table: pd.DataFrame) -> pd.DataFrame:
    columns = {"down": "MB down, a round", "up": "MB up, a round"}
    if has_target(table):
        columns |= {"target": "target", "rounds_to_target": "rounds to it", "to_target": "MB to it"}
    shown = tables.name_rows(table, tables.has_several(table))
    for name, head in columns.items():
        shown[head] = write_numbers(table[name], "{:.2f}" if name == "target" else "{:.4g}")
    return shown.set_index("method")


def has_target(table: pd.DataFrame) -> bool:
    return bool(table["target"].notna().any())


def caption(table: pd.DataFrame) -> str:
    words = metrics.describe_metric(table["of"].iloc[0])
    until = f", and until the {words} reaches the target" * has_target(table)
    lost = " Nothing is there where a run does not reach it." * has_target(table)
    return (
        f"Megabytes that travel between the server and all clients of a round{until}, means over "
        f"seeds: {tables.join_values(table, 'scale')} scale.{lost}"
    )
