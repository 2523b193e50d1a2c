"""Test accuracy by method, dataset and partition, beside the values of FedSLS's table 1.

A run's score is the mean accuracy of the evaluations in its last `tail` rounds ("the average
accuracy over the last 200"). A cell is the mean over seeds and the sample standard deviation. A
cell with a diverged run has no mean; it says how many runs diverged.
"""

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.analysis.published import join_published
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """Return a row per cell: percent over seeds, published values and differences if any."""
    table = tables.with_alpha(mean_over_seeds(score_runs(runs), CELL))
    table = join_published(table, study).drop(columns="published_speedup")
    table = table.assign(scale=scale, difference=table["mean"] - table["published"])
    return table.round(dict.fromkeys(("mean", "std", "difference"), 4))


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's layout: a row per method, a column per dataset and partition."""
    return tables.wide(table)


def caption(table: pd.DataFrame) -> str:
    """Describe the numbers."""
    of = f"mean ± standard deviation of the mean of the last {tables.each(table, 'tail')} rounds"
    return f"Test accuracy in percent, {of}: {tables.scope(table)}."
