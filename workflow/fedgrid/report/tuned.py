"""The best hyper-parameters of each family of methods, chosen on validation data, and their score.

Methods of a family are combined from the same files. The candidates of a family, on a dataset and
partition, are its methods. With `over`, protocols that differ only in these fields are candidates,
too. The candidate with the best mean validation score over seeds is chosen; of equal ones the
first. The validation score measures the same models as the score that is shown:
`validation_own_mean` clients' own models, `validation_accuracy` and `validation_loss` the server's.
A candidate with a diverged run is chosen only if all candidates have one. The options `decimals`
and `spread` are those of `table`.
"""

import pandas as pd

from fedgrid.analysis import choice, figures, metrics, tables
from fedgrid.partitions import write_label
from fedgrid.report._texts import write_numbers
from fedgrid.runtime.names import known, listed
from fedgrid.study.records import Study

OPTIONS = {"over": "field", "metric": "metric"}  # what they name (study/options.py)
VALIDATION, TEST = "validation", "test"  # the data on which candidates can be compared


def draw(
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    study: Study,
    scale: str,
    over: str | list[str] | None = None,
    metric: str = "accuracy",
    chosen_on: str = VALIDATION,
    decimals: int | None = None,
    spread: str = "deviation",
) -> pd.DataFrame:
    """Return a row per family, dataset, partition and setting: the chosen values and their score.

    `over` has fields of the protocol that were tuned, too. `chosen_on: test` chooses by the score
    itself.
    """
    tables.check_form(decimals, spread)
    known("value of `chosen_on`", chosen_on, (VALIDATION, TEST))
    deciding = metric if chosen_on == TEST else metrics.validation_of(metric)
    if chosen_on == VALIDATION:
        otherwise = ", or `with: {chosen_on: test}`, which the table will say"
        choice.check_validation(runs, deciding, otherwise)
    best = choice.choose_candidates(runs, settings, listed(over), metric, deciding)
    table = choice.average_chosen(best, choice.CHOSEN, metric)
    figures.add_labels(table, study, ("family", "dataset"))
    table["setting_label"] = [figures.label(study, name, "protocol") for name in table["setting"]]
    table = table.assign(chosen_on=chosen_on, deciding_metric=deciding, scale=scale)
    return table.round({"mean": 4, "std": 4, "deciding_score": 4})


def wide(
    table: pd.DataFrame, decimals: int | None = None, spread: str = "deviation"
) -> pd.DataFrame:
    """Return a row per setting and method, so that the best of each setting can be marked."""
    several = table["setting"].nunique() > 1
    shown = pd.DataFrame({
        "dataset": table["dataset_label"], "partition": table["partition"].map(write_label),
        **({"setting": table["setting_label"]} if several else {}),
        "method": table["family_label"],
    })  # fmt: skip
    index = [*shown]
    shown = shown.assign(chosen=table["chosen"], candidates=table["candidates"])
    if (table["chosen_on"] != TEST).all():
        deciding = table["deciding_metric"].iloc[0]
        form = "{:.2f}" if metrics.in_percent(deciding) else "{:.4g}"
        shown[write_head(deciding)] = write_numbers(table["deciding_score"], form)
    form = tables.choose_form(table, decimals, spread)
    cells = [tables.write_cell(facts, form) for facts in table.to_dict("records")]
    shown[write_head(tables.find_metric(table))] = cells
    return shown.astype(object).fillna("").set_index(index)


def write_head(metric: str) -> str:
    return metrics.describe_metric(metric) + metrics.write_unit(metric)


def ranked(row: tuple, column: tuple, metric: str = "accuracy") -> bool:
    return column[-1] == write_head(metric)


def caption(table: pd.DataFrame, spread: str = "deviation") -> str:
    score = f"The {tables.describe_score_and_unit(table)}, {tables.SPREADS[spread][1]}"
    if (table["chosen_on"] == TEST).any():
        return (
            f"{score}, of the best candidate of each method: {tables.describe_scope(table)}. The "
            "candidates were chosen on the test data by this score, so it is too good."
        )
    deciding = metrics.describe_metric(table["deciding_metric"].iloc[0])
    chosen = f"of the candidate of each method with the best mean {deciding}"
    said = f"{score}, {chosen}: {tables.describe_scope(table)}."
    ends = table["at_end"].astype(object).fillna("")  # a table read from a file has no empty texts
    if at_end := (ends != "").sum():
        fields = " or ".join(sorted({*", ".join(ends).split(", ")} - {""}))
        said += f" {at_end} of {len(table)} choices have the lowest or the highest {fields} that "
        said += "was tried, so a better one may be beyond it."
    return said
