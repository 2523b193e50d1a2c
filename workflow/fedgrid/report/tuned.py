"""The best hyper-parameters of each family of methods, chosen on validation data, and their score.

Methods of a family are combined from the same files. The candidates of a family, on a dataset and
partition, are its methods. With `over`, protocols that differ only in these fields are candidates,
too. The candidate with the best mean validation accuracy over seeds is chosen, or the first of
several. A candidate with a diverged run is chosen only if all candidates have one.
"""

import pandas as pd

from fedgrid.analysis import fields, figures, metrics, tables
from fedgrid.analysis.scores import mean_over_seeds, score_runs
from fedgrid.partitions import write_label
from fedgrid.runtime.names import UsageError, known, listed

VALIDATION, TEST = "validation", "test"  # the data on which candidates can be compared
MEASURE = "validation_accuracy"
GROUP = ["family", "dataset", "partition", "setting"]  # whose candidates are compared
CANDIDATE = ["method", "protocol"]


def draw(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    study: dict,
    scale: str,
    over: str | list[str] | None = None,
    metric: str = "accuracy",
    chosen_on: str = VALIDATION,
) -> pd.DataFrame:
    """Return a row per family, dataset, partition and setting: the chosen values and their score.

    `over` has fields of the protocol that were tuned, too. `chosen_on: test` chooses by the score
    itself.
    """
    known("value of `chosen_on`", chosen_on, (VALIDATION, TEST))
    if chosen_on == VALIDATION:
        check_validation(runs)
    scores, deciding = score_runs(runs, metric), metric if chosen_on == TEST else MEASURE
    every = fields.select_runs(fields.read_fields(settings), scores)
    scores["deciding_score"] = score_runs(runs, deciding)[deciding]
    refuse_undecided(scores, deciding)
    scores["family"] = scores["method"].map(fields.families(settings))
    tuned = tuned_fields(every, listed(over))
    scores["setting"] = scores["protocol"].map(settings_of(scores, every, tuned))
    lowest, groups = metrics.lower_is_better(deciding), scores.groupby(GROUP, sort=False)
    table = pd.DataFrame([choose(of, every, tuned, metric, lowest) for _, of in groups])
    for axis, name in {"method": "family", "dataset": "dataset", "protocol": "setting"}.items():
        table[f"{name}_label"] = [figures.label(study, one, axis) for one in table[name]]
    table = table.assign(chosen_on=chosen_on, deciding_metric=deciding, scale=scale)
    return table.round({"mean": 4, "std": 4, "deciding_score": 4})


def check_validation(runs: pd.DataFrame) -> None:
    """Raise a UsageError if there is no run with validation data."""
    if MEASURE not in runs or runs[MEASURE].isna().all():
        raise UsageError(
            "tuned chooses on validation data, and these runs have none: set `validation` in the "
            "protocol, or `with: {chosen_on: test}`, which the table will say"
        )


def refuse_undecided(scores: pd.DataFrame, deciding: str) -> None:
    """Raise a UsageError if a run has no score to choose by, and did not diverge."""
    without = scores.loc[scores["deciding_score"].isna() & ~scores["diverged"], "method"]
    if len(without):
        raise UsageError(
            f"tuned chooses by `{deciding}`, and the runs of {', '.join(without.unique())} have "
            "none: leave these methods out, or choose in another way (`chosen_on`, `metric`)"
        )


def tuned_fields(every: pd.DataFrame, over: list[str]) -> list[str]:
    """Return the columns of the fields in which candidates may differ."""
    of_protocol = [name.removeprefix("protocol.") for name in every if is_of_protocol(name)]
    for name in over:
        known("field of these protocols", name, of_protocol)
    return [n for n in every if not is_of_protocol(n) or n.removeprefix("protocol.") in over]


def is_of_protocol(name: str) -> bool:
    """Whether a column is a field of the protocol."""
    return name.startswith("protocol.")


def settings_of(scores: pd.DataFrame, every: pd.DataFrame, tuned: list[str]) -> dict[str, str]:
    """Return the setting of every protocol: the first protocol that differs in tuned fields only.

    Without tuned fields of protocols, every protocol is a setting of its own.
    """
    if not any(map(is_of_protocol, tuned)):
        return {name: name for name in scores["protocol"]}
    fixed = [name for name in every if is_of_protocol(name) and name not in tuned]
    first = scores.drop_duplicates("protocol")
    values = fields.select_runs(every, first)[fixed].fillna("").itertuples(index=False, name=None)
    known_as: dict[tuple, str] = {}
    pairs = zip(first["protocol"], values, strict=True)
    return {protocol: known_as.setdefault(value, protocol) for protocol, value in pairs}


def choose(
    runs: pd.DataFrame, every: pd.DataFrame, tuned: list[str], metric: str, lowest: bool
) -> dict:
    """Return the row of a group: the chosen candidate, its values and its score."""
    refuse_other_seeds(runs)
    candidates = mean_over_seeds(runs, CANDIDATE, metric)
    decides = mean_over_seeds(runs, CANDIDATE, "deciding_score")["mean"].round(10)
    best = 0 if decides.isna().all() else decides.idxmin() if lowest else decides.idxmax()
    values = fields.select_runs(every, runs)
    differing = [name for name in fields.differing(values) if name in tuned]
    texts = fields.write_fields(values, differing).to_numpy()
    found = candidates.loc[best]
    at = (runs[CANDIDATE] == found[CANDIDATE]).all(axis=1)
    about = {"chosen": texts[at][0], "candidates": len(candidates), "deciding_score": decides[best]}
    return runs[GROUP].iloc[0].to_dict() | about | found.to_dict()


def refuse_other_seeds(runs: pd.DataFrame) -> None:
    """Raise a UsageError if a candidate has other seeds than the first."""
    seeds = runs.groupby(CANDIDATE, sort=False)["seed"].agg(lambda of: tuple(sorted(of)))
    if odd := [" ".join(name) for name, of in seeds.items() if of != seeds.iloc[0]]:
        raise UsageError(
            f"tuned compares candidates with the same seeds, but {odd[0]} has other seeds than "
            f"{' '.join(seeds.index[0])}: run both with the same seeds"
        )


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per family and setting: chosen values, number of candidates, both scores."""
    form, score = tables.form(table), tables.metric_of(table)
    shown = pd.DataFrame({
        "method": table["family_label"], "dataset": table["dataset_label"],
        "partition": table["partition"].map(write_label), "protocol": table["setting_label"],
        "chosen": table["chosen"], "candidates": table["candidates"],
        "validation accuracy (%)": table["deciding_score"].map("{:.2f}".format, na_action="ignore"),
        metrics.words(score) + metrics.unit(score):
            [tables.cell(facts, form) for facts in table.to_dict("records")],
    })  # fmt: skip
    several = table["setting"].nunique() > 1
    on_test = (table["chosen_on"] == TEST).any()
    hidden = ["protocol"] * (not several) + ["validation accuracy (%)"] * bool(on_test)
    return shown.drop(columns=hidden).astype(object).fillna("").set_index("method")


def caption(table: pd.DataFrame) -> str:
    """Describe the numbers, and say on which data the candidates were compared."""
    score = f"The {tables.in_words(table)}, mean ± standard deviation over seeds"
    if (table["chosen_on"] == TEST).any():
        return (
            f"{score}, of the best candidate of each method: {tables.scope(table)}. The candidates "
            "were chosen on the test data by this score, so it is too good."
        )
    chosen = "of the candidate of each method with the best mean validation accuracy"
    return f"{score}, {chosen}: {tables.scope(table)}."
