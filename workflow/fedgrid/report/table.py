"""A table of a metric: mean and standard deviation over seeds, by chosen rows and columns.

Rows and columns are axes of the runs (AXES), or fields of protocols and methods such as `lr` or
`mu`, which are read from the source `settings`. All runs of a cell must have the same method,
dataset, partition and protocol, so that its mean is over seeds only. With the option `best`, the
chosen values are in a table below. The option `decimals` is how many a cell has, and `spread` what
stands beside a mean: the `deviation` over seeds, or its 95 % `interval`.
"""

from collections.abc import Sequence

import pandas as pd

from fedgrid.analysis import fields, figures, metrics, tables
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs
from fedgrid.partitions import write_label
from fedgrid.runtime.names import UsageError, known, listed
from fedgrid.study.records import Study

# What they name (study/options.py).
OPTIONS = {"rows": "axis", "columns": "axis", "metric": "metric"}
AXES = ("protocol", "method", "dataset", "partition", "seed")
LABELLED = ("protocol", "method", "dataset")  # axes whose names have labels in a study
Names = str | list[str]
ROWS: Names = "method"
COLUMNS: Names = ["dataset", "partition"]


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    settings: pd.DataFrame | None = None,
    rows: Names = ROWS,
    columns: Names = COLUMNS,
    metric: str = "accuracy",
    decimals: int | None = None,
    spread: str = "deviation",
) -> pd.DataFrame:
    """Return a row per cell: mean and deviation over seeds, seeds, and how many runs diverged."""
    tables.check_form(decimals, spread)
    names = check_names(listed(rows), listed(columns))
    scores = score_runs(runs, metric)
    scores = scores.assign(**{name: select_values(name, scores, settings) for name in names})
    for axis in (axis for axis in CELL if axis not in names):
        if (scores.groupby(names)[axis].nunique() > 1).any():
            raise UsageError(
                f"a cell of the table has runs of more than one {axis}: name `{axis}`, or a field "
                "in which they differ, in `rows` or `columns`"
            )
    table = mean_over_seeds(scores, names, metric)
    figures.add_labels(table, study, [name for name in names if name in LABELLED])
    return table.assign(scale=scale).round({"mean": 4, "std": 4})


def check_names(rows: list[str], columns: list[str]) -> list[str]:
    names = [*rows, *columns]
    if not rows:
        raise UsageError("`rows` of the table is empty: name an axis, such as method")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"`{twice[0]}` is twice in `rows` and `columns` of the table: name it once"
        )
    return names


def select_values(name: str, scores: pd.DataFrame, settings: pd.DataFrame | None) -> pd.Series:
    if name in AXES:
        return scores[name]
    if settings is None:
        known("axis (a field needs the source `settings`)", name, AXES)
    every = fields.select_runs(fields.read_fields(settings), scores)
    known("row or column", name, {*AXES, *every, *(whole.partition(".")[2] for whole in every)})
    selected = fields.select_field(every, name).fillna(fields.ABSENT)
    return selected.set_axis(scores.index)


def wide(
    table: pd.DataFrame,
    rows: Names = ROWS,
    columns: Names = COLUMNS,
    decimals: int | None = None,
    spread: str = "deviation",
) -> pd.DataFrame:
    cells = tables.write_cells(table, tables.choose_form(table, decimals, spread))
    return lay_out(table, cells, rows, columns)


def below(table: pd.DataFrame, rows: Names = ROWS, columns: Names = COLUMNS) -> pd.DataFrame | None:
    """Return the chosen values of each cell, if runs were chosen."""
    if "chosen" not in table:
        return None
    return lay_out(table, table["chosen"].astype(object).fillna(""), rows, columns)


def lay_out(table: pd.DataFrame, cells: Sequence, rows: Names, columns: Names) -> pd.DataFrame:
    index, heads = listed(rows), listed(columns) or ["metric"]
    texts = pd.DataFrame({name: write_values(table, name) for name in [*index, *heads]})
    shown = texts.assign(cell=cells).pivot(index=index, columns=heads, values="cell")
    row, head = order_names(texts, index), order_names(texts, heads)
    return shown.reindex(index=row, columns=head).fillna("")


def ranked(row: tuple, column: tuple) -> bool:
    return True


def write_values(table: pd.DataFrame, name: str) -> pd.Series:
    if name == "metric":
        return pd.Series(metrics.describe_metric(tables.find_metric(table)), table.index)
    values = table[f"{name}_label" if name in LABELLED else name].map(fields.write_value)
    return values.map(write_label) if name == "partition" else values


def order_names(texts: pd.DataFrame, names: list[str]) -> pd.Index:
    ranks = {name: fields.order_values(texts[name]).index for name in names}
    present = texts[names].drop_duplicates()
    present = present.sort_values(names, key=lambda column: column.map(ranks[column.name]))
    return present.set_index(names).index


def caption(table: pd.DataFrame, spread: str = "deviation") -> str:
    if "seed" in table:
        table = table.assign(seeds=table["seed"].nunique())
    score, over = tables.describe_score_and_unit(table), tables.SPREADS[spread][1]
    chosen = " The table below has the chosen values." * ("chosen" in table)
    return f"The {score}, {over}: {tables.describe_scope(table)}.{chosen}"
