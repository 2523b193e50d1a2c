"""Accuracy of methods, after the last round, smoothed; speed-up over one of them; published values.

The speed-up is FedLMD's (section 5.3), as the mean over seeds. Let the reference method have its
best accuracy first after round T, and let another method have at least that accuracy first after
round T'. The speed-up of the other method is T / T', and 1 if it never reaches that accuracy or not
sooner.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis import figures, tables
from fedgrid.analysis.measures import compute_speedups
from fedgrid.analysis.published import STD, join_published, join_reference, list_sources
from fedgrid.analysis.scores import CELL, mean_over_seeds, score_runs
from fedgrid.partitions import write_label
from fedgrid.report._texts import write_numbers
from fedgrid.study.records import Study

OPTIONS = {"over": "method"}  # what they name (study/options.py)
FAILED = "Failed"  # the speed-up of a run that diverged


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    over: str = "fedavg",
    decimals: int | None = None,
    spread: str = "deviation",
) -> pd.DataFrame:
    """Return a row per method and setting: percent over seeds, speed-up, published values."""
    tables.check_form(decimals, spread)
    scores = score_runs(runs).merge(compute_speedups(runs, over), on=[*CELL, "seed"])
    table = mean_over_seeds(scores, CELL)
    for name in ("final", "smoothed", "speedup"):
        table[name] = mean_over_seeds(scores, CELL, name)["mean"]
    ended = scores[scores["diverged"]].groupby(CELL)["ended"].min().rename("diverged_at")
    table = table.merge(ended, how="left", on=CELL)
    table = join_published(table, study).drop(columns="published_std")
    table = join_reference(table, study)
    table = table.assign(scale=scale, over=over)
    table["difference"] = table["mean"] - table["published"]
    table["smoothed_difference"] = table["smoothed"] - table["published"]
    figures.add_labels(table, study, ("method", "protocol", "dataset", "over"))
    return table.round(4)


def wide(
    table: pd.DataFrame, decimals: int | None = None, spread: str = "deviation"
) -> pd.DataFrame:
    """Return rows per method: ours with its speed-up, last and smoothed, kept and published.

    The options `decimals` and `spread` are those of `table`, for our cells.
    """
    form = tables.choose_form(table, decimals, spread)
    columns = ["dataset_label", "partition"]
    if tables.is_in_heading(table, "protocol"):
        columns.append("protocol_label")
    texts = {
        "ours": table.assign(cell=tables.write_cells(table, form)).apply(write_ours, axis=1),
        "last round": write_numbers(table["final"], "{:.2f}"),
        "smoothed": write_numbers(table["smoothed"], "{:.2f}")
        + write_numbers(table["smoothed_difference"], " ({:+.2f})"),
        "reference": write_numbers(table["reference"], "{:.2f}"),
        "published": write_numbers(table["published"], "{:.2f}")
        + table.apply(write_speedup, axis=1),
    }
    for name in list_sources(table):
        theirs = table.assign(mean=table[name], std=table[f"{name}{STD}"], diverged=0)
        texts[name] = [tables.write_cell(row) for row in theirs.to_dict("records")]
    long = pd.concat(table.assign(what=what, cell=text) for what, text in texts.items())
    long = long[long["cell"] != ""].rename(columns={"method_label": "method_"})
    methods, order = table["method_label"].unique(), table.set_index(columns).index.unique()
    cells = long.pivot(index=["method_", "what"], columns=columns, values="cell")
    rows = [(m, what) for m in methods for what in texts if (m, what) in cells.index]
    cells = cells.reindex(index=pd.MultiIndex.from_tuples(rows), columns=order).fillna("")
    named = [name.removesuffix("_label") for name in columns]
    return cells.rename_axis(columns=named).rename(columns=write_label)


def ranked(row: tuple, column: tuple) -> bool:
    return row[-1] == "ours"


def write_ours(row: pd.Series) -> str:
    if row["diverged"]:
        some = f"{row['diverged']:g} of {row['seeds']:g} " if row["seeds"] > 1 else ""
        return f"{some}diverged at {row['diverged_at']:g} ({FAILED})"
    return row["cell"] + ("" if np.isnan(row["speedup"]) else f" ({row['speedup']:.2f}x)")


def write_speedup(row: pd.Series) -> str:
    """Write a printed speed-up; nothing without a printed accuracy."""
    speedup = row["published_speedup"]
    if pd.isna(row["published"]) or pd.isna(speedup):
        return ""
    return f" ({speedup})" if isinstance(speedup, str) else f" ({speedup:.2f}x)"


def caption(table: pd.DataFrame, spread: str = "deviation") -> str:
    over = tables.join_values(table, "over_label")
    known = bool(table["published"].notna().any())
    beside = ["the accuracy after the last round", "its last moving average"]
    beside[-1] += " (and the difference to the published value)" * known
    beside += ["that of the runs kept with the study"] * bool(table["reference"].notna().any())
    beside += ["the published values"] * known
    return (
        f"The {tables.describe_score(table)} in percent, {tables.SPREADS[spread][1]} (and how many "
        f"times sooner it is as good as {over}'s best); beside it {' and '.join(beside)}: "
        f"{tables.describe_scope(table)}."
    )
