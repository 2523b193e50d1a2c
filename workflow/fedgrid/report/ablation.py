"""Variants of a method, each compared with a reference, seed by seed."""

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.analysis.scores import SETTING, mean_over_seeds, pair_runs, score_runs
from fedgrid.report.gains import PAIRS, average_with_intervals, write_gain
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
    pairs["accuracy"] *= -1
    gaps = average_with_intervals(pairs, ["over", *SETTING])
    gaps = gaps.rename(columns={"over": "method", "mean": "difference"})
    table = table.merge(clients, on=KEYS).merge(gaps, how="left", on=KEYS)
    table = table.assign(reference=reference, scale=scale)
    numbers = ("mean", "std", "difference", "low", "high", "effective_clients")
    return tables.add_alpha(table).round(dict.fromkeys(numbers, 4))


def wide(table: pd.DataFrame) -> pd.DataFrame:
    columns = table[["difference", "low", "high", PAIRS, "seeds"]].itertuples(index=False)
    known = table.assign(gap=[write_gain(*row) for row in columns], diverged=0, seeds=1)
    parts = {
        "accuracy (%)": tables.lay_out(table),
        "difference [95 % interval]": tables.lay_out(known, "{gap}", ""),
        "effective clients": tables.lay_out(known, "{effective_clients:.1f}", ""),
    }
    return pd.concat(parts, axis=1)


def caption(table: pd.DataFrame) -> str:
    return (
        f"The {tables.describe_score_and_unit(table)}, mean ± standard deviation over seeds, the "
        f"difference to {tables.join_values(table, 'reference')} by pairs of runs, and effective "
        f"clients in a round: {tables.describe_scope(table)}."
    )
