"""Test accuracy by method, dataset and partition, beside the values of FedSLS's table 1.

A run counts with the mean accuracy of the evaluations in its last `tail` rounds ("the average
accuracy over the last 200"). A cell is the mean over seeds and the sample standard deviation. A
cell with a diverged run has no mean; it says how many diverged.
"""

import pandas as pd

from fedgrid import tables


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per cell: percent, over seeds; published values and differences where there are any."""
    table = tables.with_alpha(tables.over_seeds(tables.scores(runs), tables.CELL))
    table = tables.beside_published(table, study).drop(columns="published_speedup")
    table = table.assign(scale=scale, difference=table["mean"] - table["published"])
    return table.round(dict.fromkeys(("mean", "std", "difference"), 4))


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """As in the paper: a row per method, a column per dataset and partition."""
    return tables.wide(table)


def caption(table: pd.DataFrame) -> str:
    """What the numbers are."""
    of = f"mean ± standard deviation of the mean of the last {tables.each(table, 'tail')} rounds"
    return f"Test accuracy in percent, {of}: {tables.scope(table)}."
