"""Which methods of a screening are confirmed: the best by mean rank, their placebos, and controls.

In each cell, a dataset, partition and setting, methods are ranked by their mean score on test
data, and the `keep` methods with the best mean rank over cells are confirmed. With them are their
placebos and the families in `always`, which have no rank. `fedgrid choose` writes these down, and
blocks of grids with `chosen:` run them again with seeds of their own, because the best of many
methods looks better on the runs that chose it than it is.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis import choice, figures, metrics, tables
from fedgrid.partitions import write_label
from fedgrid.report._texts import write_numbers
from fedgrid.runtime.names import in_words, known, listed, registered
from fedgrid.study.records import Study

OPTIONS = {"over": "field", "metric": "metric"}  # what they name (study/options.py)
CELL = ["dataset", "partition", "setting"]
BEST, PLACEBO, ALWAYS, NOT = "among the best", "its method is confirmed", "always", ""


def draw(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    study: Study,
    scale: str,
    over: str | list[str] | None = None,
    metric: str = "accuracy",
    keep: int = 12,
    placebos: dict[str, str] | None = None,
    always: list[str] | None = None,
) -> pd.DataFrame:
    """Return a row per family and cell, in the order of mean ranks, with whether it is confirmed.

    `over` has the fields of the protocol that were tuned; `placebos` names a placebo's family for
    that of a method. All families are known names of methods.
    """
    of_method, first = placebos or {}, listed(always)
    for name in (*of_method, *of_method.values(), *first):
        for part in name.split("+"):
            known("method in `placebos` or `always`", part, registered("methods"))
    best = choice.choose_candidates(
        runs, settings, listed(over), metric, metrics.validation_of(metric)
    )
    facts = [*choice.CANDIDATE, "chosen", "tried_with"]
    table = choice.average_chosen(best, facts, metric)
    table = add_ranks(table, metric, {*of_method.values(), *first})
    table = add_reason(table, keep, of_method, first)
    figures.add_labels(table, study, ("family", "dataset"))
    return table.assign(of=metric, scale=scale).round(4)


def add_ranks(table: pd.DataFrame, metric: str, unranked: set[str]) -> pd.DataFrame:
    ranked = table[~table["family"].isin(unranked)]
    ascending = metrics.lower_is_better(metric)
    ranks = ranked.groupby(CELL)["mean"].rank(ascending=ascending, na_option="bottom")
    mean = ranks.groupby(ranked["family"]).mean()
    table = table.assign(rank=ranks, mean_rank=table["family"].map(mean))
    return table.sort_values("mean_rank", kind="stable", na_position="last", ignore_index=True)


def add_reason(
    table: pd.DataFrame, keep: int, placebos: dict[str, str], always: list[str]
) -> pd.DataFrame:
    ranked = table.dropna(subset="mean_rank")["family"].drop_duplicates()
    reasons = dict.fromkeys(always, ALWAYS)
    reasons |= {placebos[name]: PLACEBO for name in [*ranked[:keep], *always] if name in placebos}
    reasons |= dict.fromkeys(ranked[:keep], BEST)
    why = [reasons.get(name, NOT) for name in table["family"]]
    return table.assign(why=why, confirm=[reason != NOT for reason in why])


def wide(table: pd.DataFrame) -> pd.DataFrame:
    head = table.drop_duplicates("family").set_index("family")
    shown = {"mean rank": write_numbers(head["mean_rank"], "{:.2f}")}
    for (_, partition, _), rows in table.groupby(CELL, sort=False):
        texts = [tables.write_cell(row, "{mean:.2f}") for row in rows.to_dict("records")]
        name = f"{rows['dataset_label'].iloc[0]}, {write_label(partition)}"
        shown[name] = pd.Series(texts, rows["family"].to_numpy())
    found = pd.DataFrame(shown | {"confirmed": head["why"]}, head.index).fillna("")
    return found.set_axis(head["family_label"]).rename_axis("method")


def caption(table: pd.DataFrame) -> str:
    best = table.loc[table["why"] == BEST, "family_label"].unique()
    seeds = np.unique(table["seeds"]).tolist()
    return (
        f"The {tables.describe_score(table)} of the screened methods, means over "
        f"{in_words([*map(str, seeds)])} seeds, {tables.join_values(table, 'scale')} scale. To "
        f"be confirmed with other seeds, by mean rank: {in_words([*best])}; with them their "
        "placebos and the controls."
    )
