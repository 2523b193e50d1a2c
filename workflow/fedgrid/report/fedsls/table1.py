"""Test accuracy by method, dataset and partition, beside the values of FedSLS's table 1.

The paper's score is "the average accuracy over the last 200 epochs", and its 2,000 rounds are
20,000 epochs. With `tail: rounds` these epochs are rounds, and with `tail: epochs` they are local
epochs, of which a round has ten. A run's score is what its protocol says (`analysis/scores.py`). A
cell is the mean over seeds and the sample standard deviation, or by the options `decimals` and
`spread` as in `table`. A cell with a diverged run has no mean; it says how many runs diverged.
"""

import pandas as pd

from fedgrid.analysis import tables
from fedgrid.analysis.published import STD, join_published, list_sources
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_by, score_runs
from fedgrid.study.records import Study

OPTIONS = {"tail": "tail"}  # what they name (study/options.py)
OURS = "ours"


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    tail: str = "rounds",
    decimals: int | None = None,
    spread: str = "deviation",
) -> pd.DataFrame:
    """Return a row per cell: percent over seeds, published values and differences if any.

    `tail` says what a protocol's `tail` counts: `rounds`, or local `epochs`.
    """
    tables.check_form(decimals, spread)
    runs = runs if tail == "rounds" else score_by(runs, f"tail_{tail}")
    table = tables.add_alpha(mean_over_seeds(score_runs(runs), CELL))
    table = join_published(table, study).drop(columns="published_speedup")
    table = table.assign(scale=scale, difference=table["mean"] - table["published"])
    return table.round(dict.fromkeys(("mean", "std", "difference"), 4))


def wide(
    table: pd.DataFrame, decimals: int | None = None, spread: str = "deviation"
) -> pd.DataFrame:
    """Return the paper's layout: a row per method, a column per dataset and partition.

    If any of these is published, the published values stand beside ours, source by source.
    """
    ours = tables.lay_out(table, tables.choose_form(table, decimals, spread))
    printed = {"published": "published_std"} | {
        name: f"{name}{STD}" for name in list_sources(table)
    }
    printed = {mean: std for mean, std in printed.items() if table[mean].notna().any()}
    if not printed:
        return ours
    known, form = table.assign(diverged=0, seeds=1), tables.choose_form(table, decimals)
    parts = {OURS: ours} | {
        mean: tables.lay_out(known.assign(mean=table[mean], std=table[std]), form).fillna("")
        for mean, std in printed.items()
    }
    both = pd.concat(parts, axis=1).reorder_levels([*range(1, ours.columns.nlevels + 1), 0], axis=1)
    order = [(*column, part) for column in ours.columns for part in parts]
    shown = [column for column in order if (both[column] != "").any()]
    return both[shown].rename_axis(columns=[*ours.columns.names, None])


def ranked(row: tuple, column: tuple) -> bool:
    """Whether a cell is compared with those below and above it: ours, not the published ones."""
    return not column[-1].startswith("published")


def caption(table: pd.DataFrame, spread: str = "deviation") -> str:
    over = tables.SPREADS[spread][1]
    return f"The {tables.describe_score_and_unit(table)}, {over}: {tables.describe_scope(table)}."
