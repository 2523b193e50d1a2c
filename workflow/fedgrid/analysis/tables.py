"""Lay out tables for readers, and write their cells, headings and captions."""

import re
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedgrid.analysis import metrics
from fedgrid.analysis.inference import find_half
from fedgrid.analysis.scores import OWN
from fedgrid.partitions import parse_name, write_label
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.paths import UNTESTED

AXES = ("method", "dataset", "partition", "protocol")  # that name a row
ACCURACY = "{mean:.2f} ± {std:.2f}"  # the text of a cell
DECIMALS = {True: 2, False: 3}  # of a cell, by whether its number is in percent
# What may follow the mean in a cell: its text, and the words of a caption.
SPREADS = {
    "deviation": (" ± {{std:.{0}f}}", "mean ± standard deviation over seeds"),
    "interval": (" [{{low:.{0}f}}, {{high:.{0}f}}]", "mean with its 95 % interval over seeds"),
}
MOST = 4  # decimals, because tables have no more
LOST = "{diverged:g}/{seeds:g} diverged"  # the text of a cell with runs that diverged


def add_alpha(table: pd.DataFrame) -> pd.DataFrame:
    """Add the Dirichlet concentration of every partition that has one, beside its name."""
    table, drawn = table.copy(), table["partition"].map(parse_name)
    alpha = [float(number) if kind == "dirichlet" else np.nan for kind, number in drawn]
    table.insert(table.columns.get_loc("partition") + 1, "alpha", alpha)
    return table


def lay_out(
    table: pd.DataFrame, form: str = ACCURACY, lost: str = LOST, index: str = "method"
) -> pd.DataFrame:
    """Lay out a table: a row per `index`, a column per dataset and partition, cells as texts.

    `form` is the text of a cell, and `lost` that of a cell with runs that diverged.
    """
    named = table.assign(
        cell=write_cells(table, form, lost), partition=table["partition"].map(write_label)
    )
    axes = [name for name in ("method", "protocol", "dataset", "partition") if name != index]
    columns = [name for name in axes if is_in_heading(named, name)]
    rows, order = named[index].unique(), named.set_index(columns).index.unique()
    cells = named.pivot(index=index, columns=columns, values="cell")
    return cells.reindex(index=rows, columns=order)


def write_cells(table: pd.DataFrame, form: str = ACCURACY, lost: str = LOST) -> list[str]:
    """Write the cells of a table; one of fewer or more seeds than most says how many it has."""
    usual = table["seeds"].mode().max()
    return [
        text + write_seed_count(facts["seeds"]) * bool(odd and text and not facts["diverged"])
        for facts in table.to_dict("records")
        for text, odd in [(write_cell(facts, form, lost), facts["seeds"] != usual)]
    ]


def write_cell(facts: Mapping, form: str = ACCURACY, lost: str = LOST) -> str:
    """Write a cell; a missing deviation is left out, and a missing mean gives an empty text."""
    if "{low" in form:
        half = find_half(facts["std"], facts["seeds"])
        facts = {**facts, "low": facts["mean"] - half, "high": facts["mean"] + half}
    text = (lost if facts["diverged"] else form).format(**facts)
    return re.sub(r"^nan$", "", re.sub(r" ± nan| \[nan, nan\]", "", text))  # of one seed


def write_seed_count(seeds: float) -> str:
    """Return the number of seeds of a cell, to be written after it: ` (2 seeds)`."""
    return "" if np.isnan(seeds) else f" ({seeds:.0f} seed{'s' if seeds != 1 else ''})"


def write_means(facts: pd.DataFrame, differ: pd.Series, forms: Sequence[str] = ()) -> pd.Series:
    """Write a cell of each row; where seeds `differ` from those beside it, their number follows."""
    rows = zip(facts.to_dict("records"), forms or [ACCURACY] * len(facts), strict=True)
    texts = pd.Series([write_cell(row, form) for row, form in rows], facts.index)
    return texts + facts["seeds"].map(write_seed_count).where(differ, "")


def write_interval(mean: float, low: float, high: float, sign: str = "", digits: int = 2) -> str:
    """Return a mean with its interval as a text; one seed has no interval."""
    if np.isnan(mean):
        return ""
    bounds = f" [{low:.{digits}f}, {high:.{digits}f}]" if np.isfinite(low) else ""
    return f"{mean:{sign}.{digits}f}{bounds}"


def write_intervals(
    table: pd.DataFrame, name: str, p: str = "", digits: Sequence[int] = ()
) -> pd.Series:
    """Write differences with their intervals, and p of another column; empty where there is none.

    The ends are the columns `<name>_low` and `<name>_high`; `digits` of a row are 2 by default.
    """
    rows = table[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False)
    texts = [
        write_interval(mean, low, high, "+", many)
        for (mean, low, high), many in zip(rows, digits or [2] * len(table), strict=True)
    ]
    beside = ["" if pd.isna(chance) else f", p = {chance:.2g}" for chance in table[p]] if p else ""
    return pd.Series(texts, table.index, dtype=object) + beside


def write_seed_differences(runs: pd.DataFrame, value: str) -> str:
    """Return a difference of every seed as a text: `0: +1.23, 1: -0.4, 2: diverged`.

    A missing value is that of a run that diverged.
    """
    ordered = runs.sort_values("seed", kind="stable")
    return ", ".join(
        f"{seed}: " + ("diverged" if np.isnan(number) else f"{number:+.4g}")
        for seed, number in zip(ordered["seed"], ordered[value], strict=True)
    )


def is_in_heading(table: pd.DataFrame, name: str) -> bool:
    """Whether an axis is in the heading: methods and protocols only if a dataset has several."""
    several = bool((table.groupby("dataset")[name].nunique() > 1).any())
    return several or name in ("dataset", "partition")


def has_several(table: pd.DataFrame) -> bool:
    return bool(table["protocol"].nunique() > 1)


def name_rows(table: pd.DataFrame, several: bool, axes: Sequence[str] = AXES) -> pd.DataFrame:
    """Return a column of names for each axis; the protocol's only if there are `several`."""
    labels = {axis: f"{axis}_label" for axis in axes if several or axis != "protocol"}
    named = table.assign(partition_label=table["partition"].map(write_label))
    return named[[*labels.values()]].set_axis([*labels], axis="columns")


def join_values(table: pd.DataFrame, name: str) -> str:
    """Join the different values of a column for a sentence: `2 or 3`."""
    values = dict.fromkeys(table[name].dropna())
    return " or ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)


COUNTED = {
    "best": "{best} {words} over all rounds",
    "smoothed": "last moving average of the {words}",
    "tail": "mean {words} of the last {tail} rounds",
    "last": "{words} after the last round",
    "validated-test": "{words} of the round with the best validation accuracy (validation data: a "
    "part of the test set)",
    "validated-clients": "{words} of the round with the best validation accuracy (validation data: "
    "a part of the clients' data)",
    "validated-unknown": "{words} of the round with the best validation accuracy",
}


def write_axis_label(table: pd.DataFrame) -> str:
    """Return the label of an axis for the table's metric, in lines of about 24 characters."""
    metric = find_metric(table)
    return textwrap.fill(metrics.describe_metric(metric) + metrics.write_unit(metric), 24)


def check_form(decimals: int | None, spread: str) -> None:
    """Raise a UsageError for options of a table's cells that have no meaning."""
    known("value of `spread`", spread, SPREADS)
    if not (decimals is None or (type(decimals) is int and 0 <= decimals <= MOST)):
        raise UsageError(f"`decimals` is {decimals}: write a whole number from 0 to {MOST}")


def choose_form(table: pd.DataFrame, decimals: int | None = None, spread: str = "deviation") -> str:
    """Return the form of a cell for the table's metric."""
    return write_form(find_metric(table), decimals, spread)


def write_form(metric: str, decimals: int | None = None, spread: str = "deviation") -> str:
    """Return the form of a cell: with so many decimals, or as many as the metric has."""
    many = DECIMALS[metrics.in_percent(metric)] if decimals is None else decimals
    return f"{{mean:.{many}f}}{SPREADS[spread][0].format(many)}"


def describe_score_and_unit(table: pd.DataFrame) -> str:
    return describe_score(table) + " in percent" * metrics.in_percent(find_metric(table))


def find_metric(table: pd.DataFrame) -> str:
    """Return the metric of a table by its column `of`, which tables of accuracies do not have."""
    return table["of"].iloc[0] if "of" in table and len(table) else "accuracy"


def describe_score(table: pd.DataFrame) -> str:
    """Describe how the runs of a product were scored: `best test accuracy over all rounds`."""
    metric, tail = find_metric(table), join_values(table, "tail")
    facts = {
        "words": metrics.describe_metric(metric),
        "tail": tail,
        "best": "lowest" if metrics.lower_is_better(metric) else "best",
    }
    ways = table["metric"].dropna().replace({"tail": "last"} if tail == "1" else {})
    counted = " or ".join(COUNTED[way].format(**facts) for way in ways.unique())
    return counted + describe_untested(table, metric)


def describe_untested(table: pd.DataFrame, metric: str) -> str:
    """Say how many clients have no part in a metric over clients; empty if all have."""
    if UNTESTED not in table or not metrics.OF_CLIENTS.match(metric):
        return ""
    return f" (without the {join_values(table, UNTESTED)} clients that have no test samples)"


def describe_scope(table: pd.DataFrame) -> str:
    """Describe the runs of a product for its caption: seeds, rounds and scale."""
    seeds, rounds, scale = (join_values(table, name) for name in ("seeds", "rounds", "scale"))
    return f"{seeds} seed{'s' * (seeds != '1')}, {rounds} rounds, {scale} scale"


def describe_explained(shares: pd.Series) -> str:
    """Say how much of their images' variance autoencoders explain, over the seeds of each map.

    The index has the names of the maps. A missing share is of a map that no autoencoder made.
    """
    ranges = shares.dropna().groupby(level=0, sort=False).agg(["min", "max"])
    known = []
    for name, *ends in ranges.round(2).itertuples():
        written = dict.fromkeys(f"{end + 0:.2f}" for end in ends)  # -0.0 + 0 is 0.0
        known.append(f"{name} {' to '.join(written)}")
    said = "Share of the images' variance that the autoencoders explain (as good as the mean "
    return f" {said}colour: 0, all: 1), over seeds: {', '.join(known)}." if known else ""


def describe_spread(table: pd.DataFrame) -> str:
    """Say of what numbers in a figure are the mean, for its caption; empty for one seed."""
    return ", mean and standard deviation over seeds" * bool((table["seeds"] > 1).any())


def describe_empty(table: pd.DataFrame) -> str:
    """Write a sentence about methods whose server has no accuracy; empty if there are none.

    Only a table of accuracies with the columns `method`, `mean` and `diverged` gets one.
    """
    if not {"method", "mean", "diverged"} <= {*table} or {"of", "what"} & {*table}:
        return ""
    empty = table["mean"].isna() & (table["diverged"] == 0)
    names = [*table.loc[empty, "method"].drop_duplicates()]
    if not names:
        return ""
    return (
        f" The server has no accuracy with {', '.join(names)}, because clients keep a part of the "
        f"model: `with: {{metric: {OWN}}}` shows that of clients' own models, also with "
        "`draw: table`."
    )
