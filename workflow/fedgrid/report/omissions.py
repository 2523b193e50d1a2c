"""What a comparison of methods says if one part of its rule is left out.

By the whole rule a method is better than the baseline if its tries are chosen on validation data,
its mean over seeds is higher, by a test that is corrected by Holm for the number of methods
(`report/ranks.py`), and it is better than its placebo, if it has one: the whole interval of their
difference is above 0. A run's score is the mean of its evaluations in the last `tail` rounds.

Each row leaves out one part, and has the methods that are better then. With one seed there is no
test, and a method is better if its score is higher. Only cells with several seeds are compared.
"""

from collections.abc import Iterator
from functools import partial

import pandas as pd

from fedgrid.analysis import figures, metrics, tables
from fedgrid.analysis.scores import score_by
from fedgrid.analysis.verdicts import LEVEL
from fedgrid.partitions import write_label
from fedgrid.report import ranks
from fedgrid.runtime.names import NothingToDrawError
from fedgrid.study.records import Study

OPTIONS = {"over": "field", "metric": "metric"}  # what they name (study/options.py)
WHOLE, BASELINE = "nothing", "fedavg"
CELL = ["dataset", "partition"]


def draw(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    study: Study,
    scale: str,
    over: str | list[str] | None = None,
    metric: str = "accuracy",
    baseline: str = BASELINE,
    placebos: dict[str, str] | None = None,
    tail: int | None = None,
) -> pd.DataFrame:
    """Return a row per cell and part that is left out: the methods that are better without it.

    `tail` replaces that of the runs' protocols; the other options are those of `ranks`.
    """
    runs = runs if tail is None else runs.assign(metric="tail", tail=tail)
    rank = partial(
        ranks.draw, settings=settings, study=study, scale=scale, over=over, metric=metric,
        baseline=baseline, placebos=placebos,
    )  # fmt: skip
    rows = [
        {"dataset": dataset, "partition": partition, "seeds": here["seed"].nunique(), **row}
        for (dataset, partition), here in runs.groupby(CELL, sort=False)
        if here["seed"].nunique() > 1
        for row in compare_cell(here, rank, metric, baseline)
    ]
    if not rows:
        raise NothingToDrawError("no cell of these runs has several seeds: name several in `seed`")
    table = pd.DataFrame(rows)
    for name in ("better_methods", "more", "fewer"):
        labels = [[figures.label(study, one, "method") for one in some] for some in table[name]]
        table[name] = [*map(", ".join, labels)]
    return table.assign(of=metric, tail=tables.join_values(runs, "tail"), scale=scale)


def compare_cell(here: pd.DataFrame, rank, metric: str, baseline: str) -> Iterator[dict]:
    table = rank(here)
    whole = find_better(table)
    others = int(table["rank"].notna().sum()) - 1  # without the baseline
    for part, found in [(WHOLE, whole), *find_without(here, table, rank, metric, baseline)]:
        more = [name for name in found if name not in whole]
        fewer = [name for name in whole if name not in found]
        better = {"left_out": part, "better": len(found), "better_methods": found}
        yield {"others": others, **better, "more": more, "fewer": fewer}


def find_without(
    here: pd.DataFrame, table: pd.DataFrame, rank, metric: str, baseline: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield each part that is left out, with the methods that are better without it."""
    yield "all evaluations but the last", find_better(rank(score_by(here, "final")))
    by = metrics.validation_of(metric)
    yield "the choice on validation data", find_better(rank(here.assign(**{by: here[metric]})))
    alike = keep_common_tries(here, baseline)
    if len(alike) < len(here):
        yield "tries that others do not have", find_better(rank(alike))
    yield "the correction for many methods", find_better(table, p="p")
    yield "the placebos", find_better(table, placebo=False)
    for seed, of_seed in here.groupby("seed"):
        yield f"all seeds but {seed}", find_better(rank(of_seed), p="", placebo=False)


def find_better(table: pd.DataFrame, p: str = "p_holm", placebo: bool = True) -> list[str]:
    """Return the families that are better than the baseline, by the test of the column `p`."""
    better = table["rank"].notna() & (table["gain"] > 0)
    if p:
        better &= table[p] < LEVEL
    if placebo:
        better &= table["beyond_placebo"].isna() | (table["beyond_placebo_low"] > 0)
    return [*table.loc[better, "family"]]


def keep_common_tries(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Leave out the baseline's runs by protocols that not every other tuned method has."""
    tried = runs.groupby("method")["protocol"].agg(set)
    fewest = min(tried.drop(baseline), key=len)
    return runs[(runs["method"] != baseline) | runs["protocol"].isin(fewest)]


def wide(table: pd.DataFrame) -> pd.DataFrame:
    names = ["dataset", "partition", "left_out", "better", "more", "fewer"]
    shown = table[names].astype(object).fillna("")
    shown["partition"] = shown["partition"].map(write_label)
    return shown.set_index(["dataset", "partition", "left_out"])


def caption(table: pd.DataFrame) -> str:
    return (
        f"Methods that are better than the baseline if a part of the rule is left out: how many, "
        f"which more and which fewer than by the whole rule (nothing left out). Scores are the "
        f"mean {metrics.describe_metric(table['of'].iloc[0])} of the last {table['tail'].iloc[0]} "
        f"rounds; {table['seeds'].max()} seeds, {table['scale'].iloc[0]} scale."
    )
