"""Choose the best of candidates that differ in tuned fields only, such as the learning rate.

Candidates are methods or protocols with the same seeds. The one with the best mean score over seeds
is chosen; of equal ones the first. A candidate with a diverged run is chosen only if all candidates
have one.

A product's option `best` keeps, for every method, dataset and partition, the best of the protocols
that differ in the fields `over` only. Its rows then have the name of the first of these protocols
without the values of these fields, and two more columns: the chosen values, and the metric by which
they were chosen. With `methods` the methods of a family, which differ in hyper-parameters only, are
candidates, too. Then the rows have the family's name.
"""

import re
from collections.abc import Callable, Collection
from functools import cache

import numpy as np
import pandas as pd

from fedgrid.analysis import fields, metrics
from fedgrid.analysis.scores import CELL, RUN, mean_over_seeds, score_runs
from fedgrid.runtime.names import UsageError, known, listed

CANDIDATE = ["method", "protocol"]
GROUP = ["family", "dataset", "partition", "setting"]  # whose candidates are compared
SHOWN = ["family", "setting"]  # the names of method and protocol that the kept rows get
# The values, of how many candidates, what decided, which values of the protocol were tried, in
# which of these fields the chosen value is the lowest or the highest, and the seeds.
CHOSEN = ["chosen", "candidates", "deciding_score", "tried", "at_end", "tried_with"]
CHOICE = ["chosen", "chosen_by"]  # columns of the rows that were kept

# Returns the rows of a table that belong to the runs that are best by a metric.
Chooser = Callable[[pd.DataFrame, str], pd.DataFrame]


# -- candidates -----------------------------------------------------------------------------------


def is_protocol_field(name: str) -> bool:
    return name.startswith("protocol.")


def find_settings(scores: pd.DataFrame, every: pd.DataFrame, tuned: list[str]) -> dict[str, str]:
    """Group protocols that differ in tuned fields only.

    A group has the name of its first protocol without the tuned values: `p` for `p-lr0.1`. Names
    with tuned values are grouped by this name, and others by the values of all other fields: two
    protocols that differ by `by_method` have the same fields for some methods. Without tuned fields
    of protocols, every protocol is a group of its own.
    """
    tuned = [name for name in tuned if is_protocol_field(name)]
    if not tuned:
        return {name: name for name in scores["protocol"]}
    fixed = [name for name in every if is_protocol_field(name) and name not in tuned]
    first = scores.drop_duplicates("protocol")
    own = fields.select_runs(every, first)
    values = [*map(tuple, own[fixed].fillna("").to_numpy())]
    bare = [*map(leave_out, first["protocol"], own[tuned].to_dict("records"))]
    rows = [*zip(first["protocol"], values, bare, strict=True)]
    with_values = {name for protocol, _, name in rows if name != protocol}
    known_as: dict[tuple, str] = {}
    for _, value, name in sorted(rows, key=lambda row: row[2] not in with_values):
        known_as.setdefault(value, name)
    return {
        protocol: name if name in with_values else known_as[value] for protocol, value, name in rows
    }


def leave_out(protocol: str, values: dict[str, str]) -> str:
    """Return a protocol's name without these values of its fields (`study/variants.py`)."""
    for whole, value in values.items():
        part = re.escape(f"-{whole.removeprefix('protocol.')}{value}")
        protocol = re.sub(f"{part}(?=-|$)", "", protocol)
    return protocol


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


# -- the best candidate of each family ------------------------------------------------------------


def choose_candidates(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    over: list[str],
    metric: str,
    deciding: str,
    alone: Collection[str] = (),
) -> pd.DataFrame:
    """Return the runs of the best candidate of each family, dataset, partition and setting.

    They have their score by `metric`, and the columns of GROUP and CHOSEN. The candidates of a
    family are its methods, and protocols that differ only in the fields `over`; the metric
    `deciding` compares them. A method in `alone` is a family of its own.
    """
    scores = score_runs(runs, metric)
    scores["deciding_score"] = score_runs(runs, deciding)[deciding]
    refuse_undecided(scores, deciding, "leave these methods out, or choose by another metric")
    every, tuned = add_groups(scores, settings, over, methods=True, alone=alone)
    lowest = metrics.lower_is_better(deciding)
    groups = scores.groupby(GROUP, sort=False)
    return pd.concat([keep_best_candidate(group, every, tuned, lowest) for _, group in groups])


def average_chosen(best: pd.DataFrame, facts: list[str], metric: str) -> pd.DataFrame:
    """Return a row per group of `choose_candidates`: facts of its choice, and means over seeds."""
    return pd.DataFrame([
        runs[[*GROUP, *facts]].iloc[0].to_dict()
        | mean_over_seeds(runs, CANDIDATE, metric).iloc[0].to_dict()
        for _, runs in best.groupby(GROUP, sort=False)
    ])  # fmt: skip


def choose_best(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    over: str | list[str] | None,
    by: str,
    methods: bool = False,
) -> pd.DataFrame:
    """Return a row for the best candidate by `by` of each method, dataset, partition and setting.

    With `methods` it is that of each family. A method or family that lacks the metric has no row.
    """
    scores = score_runs(runs, by)
    scores["deciding_score"] = scores[by]
    every, tuned = add_groups(scores, settings, listed(over), methods)
    scores = drop_without_metric(scores)
    refuse_undecided(scores, by, "let all protocols of a method evaluate it")
    lowest, always = metrics.lower_is_better(by), {*filter(is_protocol_field, tuned)}
    rows = [
        keep_best_candidate(group, every, tuned, lowest, always).iloc[0]
        for _, group in scores.groupby(GROUP, sort=False)
    ]
    return pd.DataFrame(rows, columns=[*CELL, *SHOWN, "chosen"]).assign(chosen_by=by)


def add_groups(
    scores: pd.DataFrame,
    settings: pd.DataFrame,
    over: list[str],
    methods: bool,
    alone: Collection[str] = (),
) -> tuple[pd.DataFrame, list[str]]:
    """Add the columns SHOWN to scores; return the fields of their runs, and those that are tuned.

    With `methods` a family has all methods of the same files, and otherwise one method, as those in
    `alone` always do.
    """
    every = fields.select_runs(fields.read_fields(settings), scores)
    of_protocol = [name.removeprefix("protocol.") for name in every if is_protocol_field(name)]
    whole = [f"protocol.{known('field of these protocols', name, of_protocol)}" for name in over]
    tuned = [n for n in every if n in whole or (methods and not is_protocol_field(n))]
    families = fields.find_families(settings) if methods else {}
    families |= {name: name for name in alone}
    scores["family"] = [families.get(name, name) for name in scores["method"]]
    scores["setting"] = scores["protocol"].map(find_settings(scores, every, tuned))
    return every, tuned


def keep_best_candidate(
    runs: pd.DataFrame,
    every: pd.DataFrame,
    tuned: list[str],
    lowest: bool,
    always: Collection[str] = (),
) -> pd.DataFrame:
    """Return the runs of a group's best candidate, with the columns CHOSEN.

    The values that were chosen are those of the tuned fields in which candidates differ, and of the
    fields in `always`.
    """
    refuse_other_seeds(runs)
    decides = mean_over_seeds(runs, CANDIDATE, "deciding_score")["mean"].round(10)
    best = 0 if decides.isna().all() else decides.idxmin() if lowest else decides.idxmax()
    values = fields.select_runs(every, runs)
    differing = {*fields.find_differing(values), *always}
    texts = fields.write_fields(values, [n for n in tuned if n in differing]).to_numpy()
    winner = runs[CANDIDATE].drop_duplicates().iloc[best]
    at = (runs[CANDIDATE] == winner).all(axis=1)
    tried = describe_tried(values, [*filter(is_protocol_field, tuned)], at.to_numpy())
    seeds = " ".join(map(str, sorted({*runs["seed"]})))
    facts = texts[at][0], len(decides), decides[best], *tried, seeds
    return runs[at].assign(**dict(zip(CHOSEN, facts, strict=True)))


def describe_tried(values: pd.DataFrame, tuned: list[str], at: np.ndarray) -> tuple[str, str]:
    """Write the numbers tried of each tuned field, `lr: 0.1, 0.2`; and where the best is at an end.

    `at` marks the runs of the best candidate.
    """
    tried, ends = [], []
    for name in tuned:
        numbers = pd.to_numeric(values[name], errors="coerce")
        texts = [f"{number:.12g}" for number in sorted({*numbers.dropna()})]
        field = name.removeprefix("protocol.")
        tried += [f"{field}: {', '.join(texts)}"] * bool(texts)
        if len(texts) > 1 and numbers[at].iloc[0] in (numbers.min(), numbers.max()):
            ends.append(field)
    return "; ".join(tried), ", ".join(ends)


def drop_without_metric(scores: pd.DataFrame) -> pd.DataFrame:
    """Leave out the groups of runs in which no run has the metric."""
    lacks = scores["deciding_score"].isna() & ~scores["diverged"]
    keys = [scores[name] for name in GROUP]
    any_score = scores["deciding_score"].notna().groupby(keys).transform("any")
    return scores[any_score | ~lacks.groupby(keys).transform("any")]


def check_validation(runs: pd.DataFrame, deciding: str, otherwise: str = "") -> None:
    """Raise a UsageError if no run has the score on validation data that decides."""
    if deciding not in runs or runs[deciding].isna().all():
        own = metrics.find_model(deciding) == metrics.OWN
        clients = " with `validation_from: clients`" * own
        raise UsageError(
            f"the best candidate is chosen on validation data by `{deciding}`, and these runs have "
            f"none: set `validation` in the protocol{clients}{otherwise}"
        )


# -- the rows of the best -------------------------------------------------------------------------


def keep_chosen(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of the chosen runs, and add columns with the values that were chosen.

    All of them get the names of their family and of their candidates' setting. They are in the
    order of `chosen`, so that the order of methods does not depend on the choice.
    """
    kept = chosen[[*CELL, *SHOWN, *CHOICE]].merge(table, on=CELL)
    named = kept.assign(method=kept["family"], protocol=kept["setting"])
    return named[[*table, *CHOICE]]


def name_as_chosen(
    runs: pd.DataFrame | None, settings: pd.DataFrame | None, best: dict | None
) -> pd.DataFrame | None:
    """Return runs under the names that those have which `best` keeps: family and setting."""
    if runs is None or settings is None or not best:
        return runs
    names = runs[RUN].drop_duplicates()
    add_groups(names, settings, listed(best.get("over")), best.get("methods", False))
    known_as = {
        axis: dict(zip(names[axis], names[shown], strict=True))
        for axis, shown in (("method", "family"), ("protocol", "setting"))
    }
    return runs.replace(known_as)


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
    of_others = metrics.find_model(by) != metrics.find_model(right)
    if by.startswith(metrics.VALIDATION) and of_others:
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


def describe_choice(best: dict | None) -> str:
    """Write the sentence of a caption that says how runs were chosen; empty without `best`."""
    if not best:
        return ""
    own = ["hyper-parameters"] * best.get("methods", False)
    over, by = " and ".join([*listed(best.get("over")), *own]), best.get("by", "each number itself")
    on_test = "; chosen on the test data, so it is too good"
    data = "" if by.startswith(metrics.VALIDATION) else on_test
    return f"Of each method, the best {over} by {metrics.describe_metric(by)}{data}."
