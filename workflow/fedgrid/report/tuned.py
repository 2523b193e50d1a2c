"""The best hyper-parameters of each family of methods, chosen on validation data, and their score.

Methods of a family are combined from the same files. The candidates of a family, on a dataset and
partition, are its methods. With `over`, protocols that differ only in these fields are candidates,
too. The candidate with the best mean validation score over seeds is chosen; of equal ones the
first. The validation score measures the same models as the score that is shown:
`validation_own_mean` clients' own models, `validation_accuracy` and `validation_loss` the server's.
A candidate with a diverged run is chosen only if all candidates have one.
"""

import pandas as pd

from fedgrid.analysis import choice, fields, figures, metrics, tables
from fedgrid.analysis.scores import mean_over_seeds, score_runs
from fedgrid.partitions import write_label
from fedgrid.runtime.names import UsageError, known, listed
from fedgrid.study.records import Study

OPTIONS = {"over": "field", "metric": "metric"}  # what they name (study/options.py)
VALIDATION, TEST = "validation", "test"  # the data on which candidates can be compared
ADVICE = "leave these methods out, or choose in another way (`chosen_on`, `metric`)"
GROUP = ["family", "dataset", "partition", "setting"]  # whose candidates are compared


def draw(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    study: Study,
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
    deciding = metric if chosen_on == TEST else metrics.validation_of(metric)
    if chosen_on == VALIDATION:
        check_validation(runs, deciding)
    scores = score_runs(runs, metric)
    every = fields.select_runs(fields.read_fields(settings), scores)
    scores["deciding_score"] = score_runs(runs, deciding)[deciding]
    choice.refuse_undecided(scores, deciding, ADVICE)
    scores["family"] = scores["method"].map(fields.find_families(settings))
    tuned = choice.tuned_fields(every, listed(over))
    scores["setting"] = scores["protocol"].map(choice.find_settings(scores, every, tuned))
    lowest, groups = metrics.lower_is_better(deciding), scores.groupby(GROUP, sort=False)
    table = pd.DataFrame(
        [choose_candidate(group, every, tuned, metric, lowest) for _, group in groups]
    )
    for axis, name in {"method": "family", "dataset": "dataset", "protocol": "setting"}.items():
        table[f"{name}_label"] = [figures.label(study, value, axis) for value in table[name]]
    table = table.assign(chosen_on=chosen_on, deciding_metric=deciding, scale=scale)
    return table.round({"mean": 4, "std": 4, "deciding_score": 4})


def check_validation(runs: pd.DataFrame, deciding: str) -> None:
    """Raise a UsageError if no run has the score on validation data that decides."""
    if deciding not in runs or runs[deciding].isna().all():
        clients = " with `validation_from: clients`" * metrics.is_own(deciding)
        raise UsageError(
            f"tuned chooses on validation data by `{deciding}`, and these runs have none: set "
            f"`validation` in the protocol{clients}, or `with: {{chosen_on: test}}`, which the "
            "table will say"
        )


def choose_candidate(
    runs: pd.DataFrame, every: pd.DataFrame, tuned: list[str], metric: str, lowest: bool
) -> dict:
    """Choose the best candidate of a group; return its row with its values and its score."""
    candidates = mean_over_seeds(runs, choice.CANDIDATE, metric)
    decides, best = choice.rank_candidates(runs, lowest)
    values = fields.select_runs(every, runs)
    differing = [name for name in fields.find_differing(values) if name in tuned]
    texts = fields.write_fields(values, differing).to_numpy()
    winner = candidates.loc[best]
    at = (runs[choice.CANDIDATE] == winner[choice.CANDIDATE]).all(axis=1)
    facts = {"chosen": texts[at][0], "candidates": len(candidates), "deciding_score": decides[best]}
    return runs[GROUP].iloc[0].to_dict() | facts | winner.to_dict()


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per family and setting: chosen values, number of candidates, both scores."""
    form, score = tables.choose_form(table), tables.find_metric(table)
    on_test = (table["chosen_on"] == TEST).any()
    shown = pd.DataFrame({
        "method": table["family_label"], "dataset": table["dataset_label"],
        "partition": table["partition"].map(write_label), "protocol": table["setting_label"],
        "chosen": table["chosen"], "candidates": table["candidates"],
        **({} if on_test else write_deciding_scores(table)),
        metrics.describe_metric(score) + metrics.write_unit(score):
            [tables.write_cell(facts, form) for facts in table.to_dict("records")],
    })  # fmt: skip
    several = table["setting"].nunique() > 1
    shown = shown if several else shown.drop(columns="protocol")
    return shown.astype(object).fillna("").set_index("method")


def write_deciding_scores(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Write the scores by which the candidates were chosen, under the metric's name."""
    deciding = table["deciding_metric"].iloc[0]
    form = "{:.2f}" if metrics.in_percent(deciding) else "{:.4g}"
    texts = table["deciding_score"].map(form.format, na_action="ignore")
    return {metrics.describe_metric(deciding) + metrics.write_unit(deciding): texts}


def caption(table: pd.DataFrame) -> str:
    """Describe the numbers, and say on which data the candidates were compared."""
    score = f"The {tables.describe_score_and_unit(table)}, mean ± standard deviation over seeds"
    if (table["chosen_on"] == TEST).any():
        return (
            f"{score}, of the best candidate of each method: {tables.describe_scope(table)}. The "
            "candidates were chosen on the test data by this score, so it is too good."
        )
    deciding = metrics.describe_metric(table["deciding_metric"].iloc[0])
    chosen = f"of the candidate of each method with the best mean {deciding}"
    return f"{score}, {chosen}: {tables.describe_scope(table)}."
