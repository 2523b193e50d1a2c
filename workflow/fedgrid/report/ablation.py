"""Variants of a method, each compared with a reference, seed by seed."""

import pandas as pd

from fedgrid.analysis import tables, verdicts
from fedgrid.analysis.scores import SETTING, mean_over_seeds, pair_runs, score_runs
from fedgrid.study.records import Study

OPTIONS = {"reference": "method"}  # what they name (study/options.py)
KEYS = ["method", *SETTING]


def draw(runs: pd.DataFrame, study: Study, scale: str, reference: str) -> pd.DataFrame:
    """Return a row per variant and setting: its accuracy, and the difference to the reference.

    Accuracies are in percent, differences in points with 95 % intervals over seeds. The effective
    number of clients, 1 / sum a_k^2 of the weights a_k, is averaged over the rounds of a run.
    """
    means = score_runs(runs)
    table = mean_over_seeds(means, KEYS)
    clients = runs.groupby(KEYS, sort=False)["effective_clients"].mean().reset_index()
    others = [name for name in table["method"].unique() if name != reference]
    pairs = pair_runs(means, reference, others or [reference])
    gaps = pairs.assign(gap=-pairs["accuracy"]).groupby(["over", *SETTING], sort=False)
    differences = pd.DataFrame(
        [
            (*key, values.mean(skipna=False), *verdicts.confidence_interval(values.to_numpy()))
            for key, values in gaps["gap"]
        ],
        columns=[*KEYS, "difference", "low", "high"],
    )
    table = table.merge(clients, on=KEYS).merge(differences, how="left", on=KEYS)
    table = table.assign(reference=reference, scale=scale)
    numbers = ("mean", "std", "difference", "low", "high", "effective_clients")
    return tables.add_alpha(table).round(dict.fromkeys(numbers, 4))


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per variant, a column per dataset and partition: accuracy and difference."""
    accuracy = tables.lay_out(table)
    known = table.assign(diverged=0)
    gap = tables.lay_out(known, "{difference:+.2f} [{low:.2f}, {high:.2f}]", "").replace(
        r"\+?nan \[nan, nan\]", "", regex=True
    )
    clients = tables.lay_out(known, "{effective_clients:.1f}", "")
    parts = {
        "accuracy (%)": accuracy,
        "difference [95 % interval]": gap,
        "effective clients": clients,
    }
    return pd.concat(parts, axis=1)


def caption(table: pd.DataFrame) -> str:
    """Describe the numbers."""
    return (
        f"Test accuracy, mean ± standard deviation over seeds of the mean of the last "
        f"{tables.join_values(table, 'tail')} rounds, the difference to "
        f"{tables.join_values(table, 'reference')} by pairs of runs, and effective clients in a "
        f"round: {tables.describe_scope(table)}."
    )
