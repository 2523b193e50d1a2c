"""Choose the best of candidates that differ in tuned fields only, such as the learning rate.

Candidates are methods or protocols with the same seeds. The one with the best mean score over seeds
is chosen; of equal ones the first. A candidate with a diverged run is chosen only if all candidates
have one.

A product's option `best` keeps, for every method, dataset and partition, the best of the protocols
that differ in the fields `over` only. Its rows then have the name of the first of these protocols,
and two more columns: the chosen values, and the metric by which they were chosen. With `methods`
the methods of a family, which differ in hyper-parameters only, are candidates, too. Then the rows
have the family's name.
"""

from collections.abc import Callable
from functools import cache

import pandas as pd

from fedgrid.analysis import fields, metrics
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs
from fedgrid.runtime.names import UsageError, known, listed

CANDIDATE = ["method", "protocol"]
GROUP = ["family", "dataset", "partition", "setting"]  # whose candidates are compared
SHOWN = ["family", "setting"]  # the names of method and protocol that the kept rows get
CHOICE = ["chosen", "chosen_by"]  # columns of the rows that were kept

# Returns the rows of a table that belong to the runs that are best by a metric.
Chooser = Callable[[pd.DataFrame, str], pd.DataFrame]


# -- candidates -----------------------------------------------------------------------------------


def tuned_fields(every: pd.DataFrame, over: list[str]) -> list[str]:
    """Return the columns of the fields in which candidates may differ."""
    of_protocol = [name.removeprefix("protocol.") for name in every if is_protocol_field(name)]
    for name in over:
        known("field of these protocols", name, of_protocol)
    return [n for n in every if not is_protocol_field(n) or n.removeprefix("protocol.") in over]


def is_protocol_field(name: str) -> bool:
    """Whether a column is a field of the protocol."""
    return name.startswith("protocol.")


def find_settings(scores: pd.DataFrame, every: pd.DataFrame, tuned: list[str]) -> dict[str, str]:
    """Group protocols that differ in tuned fields only; each group has its first protocol's name.

    Without tuned fields of protocols, every protocol is a group of its own.
    """
    if not any(map(is_protocol_field, tuned)):
        return {name: name for name in scores["protocol"]}
    fixed = [name for name in every if is_protocol_field(name) and name not in tuned]
    first = scores.drop_duplicates("protocol")
    values = fields.select_runs(every, first)[fixed].fillna("").itertuples(index=False, name=None)
    known_as: dict[tuple, str] = {}
    pairs = zip(first["protocol"], values, strict=True)
    return {protocol: known_as.setdefault(value, protocol) for protocol, value in pairs}


def rank_candidates(runs: pd.DataFrame, lowest: bool) -> tuple[pd.Series, int]:
    """Return the mean deciding score of every candidate in `runs`, and the index of the best."""
    refuse_other_seeds(runs)
    decides = mean_over_seeds(runs, CANDIDATE, "deciding_score")["mean"].round(10)
    return decides, 0 if decides.isna().all() else decides.idxmin() if lowest else decides.idxmax()


def refuse_other_seeds(runs: pd.DataFrame) -> None:
    """Raise a UsageError if a candidate has other seeds than the first."""
    seeds = runs.groupby(CANDIDATE, sort=False)["seed"].agg(lambda numbers: tuple(sorted(numbers)))
    if odd := [" ".join(name) for name, numbers in seeds.items() if numbers != seeds.iloc[0]]:
        raise UsageError(
            f"candidates are compared with the same seeds, but {odd[0]} has other seeds than "
            f"{' '.join(seeds.index[0])}: run both with the same seeds"
        )


def refuse_undecided(scores: pd.DataFrame, deciding: str, advice: str) -> None:
    """Raise a UsageError if a run has no score to choose by, and did not diverge."""
    without = scores.loc[scores["deciding_score"].isna() & ~scores["diverged"], "method"]
    if len(without):
        raise UsageError(
            f"the best candidate is chosen by `{deciding}`, and the runs of "
            f"{', '.join(without.unique())} have none: {advice}"
        )


# -- the best candidate of each method or family --------------------------------------------------


def choose_best(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    over: str | list[str] | None,
    by: str,
    methods: bool = False,
) -> pd.DataFrame:
    """Choose, for each method, dataset, partition and setting, the protocol with the best `by`.

    With `methods`, for each family the method, too. A row has the chosen method and protocol, and
    the tuned values. A method or family that lacks the metric has no row.
    """
    scores = score_runs(runs, by)
    scores["deciding_score"] = scores[by]
    every = fields.select_runs(fields.read_fields(settings), scores)
    tuned = [
        name for name in tuned_fields(every, listed(over)) if methods or is_protocol_field(name)
    ]
    scores["setting"] = scores["protocol"].map(find_settings(scores, every, tuned))
    families = fields.find_families(settings) if methods else {}
    scores["family"] = [families.get(name, name) for name in scores["method"]]
    scores = drop_without_metric(scores)
    refuse_undecided(scores, by, "let all protocols of a method evaluate it")
    lowest = metrics.lower_is_better(by)
    rows = [
        best_candidate(group, every, tuned, lowest)
        for _, group in scores.groupby(GROUP, sort=False)
    ]
    return pd.DataFrame(rows, columns=[*CELL, *SHOWN, "chosen"]).assign(chosen_by=by)


def drop_without_metric(scores: pd.DataFrame) -> pd.DataFrame:
    """Leave out the groups of runs in which no run has the metric."""
    lacks = scores["deciding_score"].isna() & ~scores["diverged"]
    keys = [scores[name] for name in GROUP]
    any_score = scores["deciding_score"].notna().groupby(keys).transform("any")
    return scores[any_score | ~lacks.groupby(keys).transform("any")]


def best_candidate(runs: pd.DataFrame, every: pd.DataFrame, tuned: list[str], lowest: bool) -> dict:
    """Return the row of a group: its best candidate, and the values of the tuned fields.

    Of hyper-parameters only those are written in which the candidates differ.
    """
    _, best = rank_candidates(runs, lowest)
    first = runs.drop_duplicates(CANDIDATE).iloc[[best]]
    differing = {*fields.find_differing(fields.select_runs(every, runs))}
    shown = [name for name in tuned if is_protocol_field(name) or name in differing]
    (values,) = fields.write_fields(fields.select_runs(every, first), shown)
    return first[[*CELL, *SHOWN]].iloc[0].to_dict() | {"chosen": values}


def keep_chosen(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the chosen runs, and add columns with the values that were chosen.

    All of them get the names of their family and of the first candidate's protocol. They are in the
    order of `chosen`, so that the order of methods does not depend on the choice.
    """
    kept = chosen[[*CELL, *SHOWN, *CHOICE]].merge(table, on=CELL)
    named = kept.assign(method=kept["family"], protocol=kept["setting"])
    return named[[*table, *CHOICE]]


def add_choice(table: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """Add the columns CHOICE of the chosen runs `kept` to a product's table with a row per method.

    The rows are matched by those axes of CELL that the table has. If these do not identify one
    choice, nothing is added.
    """
    if "method" not in table or {*CHOICE} & {*table} or not {*CHOICE} <= {*kept}:
        return table
    axes = [axis for axis in CELL if axis in table]
    choices = kept[[*axes, *CHOICE]].drop_duplicates()
    return table if choices[axes].duplicated().any() else table.merge(choices, how="left", on=axes)


def check_best(metric: str, best: dict) -> None:
    """Raise a UsageError if `best` chooses by other models than those that `metric` measures.

    For example, runs for a table of clients' own models must not be chosen by the server's model.
    """
    by, right = best["by"], metrics.validation_of(metric)
    if by.startswith(metrics.VALIDATION) and metrics.is_own(by) != metrics.is_own(right):
        raise UsageError(
            f"`best` chooses by `{by}`, and the product shows `{metric}`, which is of other "
            f"models: write `by: {right}`"
        )


def make_chooser(
    runs: pd.DataFrame | None, settings: pd.DataFrame | None, best: dict | None
) -> Chooser:
    """Return a function that keeps the rows of the best runs, given a table and a metric.

    Without `best` it keeps all rows. If `best` has `by`, that metric is used instead of the given.
    """
    if not best:
        return lambda table, by: table

    @cache
    def chosen(by: str) -> pd.DataFrame:
        if runs is None or settings is None:
            raise UsageError("`best` reads runs and their fields: name the sources runs, settings")
        return choose_best(runs, settings, best.get("over"), by, best.get("methods", False))

    return lambda table, by: keep_chosen(table, chosen(best.get("by", by)))


def describe_choice(best: dict | None, by: str = "each number itself") -> str:
    """Write the sentence of a caption that says how runs were chosen; empty without `best`."""
    if not best:
        return ""
    own = ["hyper-parameters"] * best.get("methods", False)
    over, by = " and ".join([*listed(best.get("over")), *own]), best.get("by", by)
    chosen = f"Of each method, the best {over} by {metrics.describe_metric(by)}"
    data = (
        "" if by.startswith(metrics.VALIDATION) else "; chosen on the test data, so it is too good"
    )
    return f"{chosen}{data}."
