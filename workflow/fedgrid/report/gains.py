"""The gain of a part that is added to methods, the gain of its placebo, and the printed values.

The option `suffix` names the part: with `+norm`, each method X with runs of X+norm has rows. The
option `placebo` is the suffix of the same part without its mechanism. A gain speaks for the part
only if the placebo does not have it. `printed` names a published table of the study. Its data sets
without runs get rows, too, so that runs of a smaller scale stand beside what the paper prints.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis import figures, gains, tables
from fedgrid.analysis.scores import CELL, SETTING, mean_over_seeds, score_runs
from fedgrid.report._rows import name_rows
from fedgrid.runtime.names import known
from fedgrid.study.records import Study

AXES = ("dataset", "partition", "protocol", "method")
# What they name (study/options.py).
OPTIONS = {"suffix": "ending", "placebo": "ending", "printed": "published"}


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    suffix: str,
    placebo: str | None = None,
    printed: str | None = None,
) -> pd.DataFrame:
    """Return a row per original method and setting: both accuracies, gains and printed values.

    Accuracies are in percent, gains in points with 95 % intervals over seeds.
    """
    scores = score_runs(runs)
    table = join_means(scores, gains.name_pairs(scores["method"], suffix))
    if placebo:
        pairs = gains.name_pairs(scores["method"], placebo, needed=False)
        theirs = gains.compute_gains(scores, pairs)
        names = {name: f"placebo_{name}" for name in (*gains.GAIN, gains.PAIRS)}
        table = table.merge(theirs.rename(columns=names), how="left", on=CELL)
    table = gains.join_printed(table, study, suffix)
    more = list_printed_only(study, printed, suffix, table["dataset"])
    table = pd.concat([table, more], ignore_index=True)
    for name in ("original", "changed", "gain"):
        table[f"{name}_difference"] = table[name] - table[f"printed_{name}"]
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return tables.add_alpha(table.assign(scale=scale)).round(4)


def join_means(scores: pd.DataFrame, pairs: dict[str, str]) -> pd.DataFrame:
    """Join each original and its method with the suffix: means, deviations and the gain."""
    means = mean_over_seeds(scores, CELL)
    original = means[means["method"].isin(pairs)]
    original = original.rename(columns={"mean": "original", "std": "original_std"})
    back = {changed: original for original, changed in pairs.items()}
    changed = means[means["method"].isin(back)].replace({"method": back})
    changed = changed.rename(columns={"mean": "changed", "std": "changed_std"})
    changed = changed[[*CELL, "changed", "changed_std", "diverged", "seeds"]]
    table = original.merge(changed, on=CELL, suffixes=("", "_changed"))
    return table.merge(gains.compute_gains(scores, pairs), on=CELL)


def list_printed_only(
    study: Study, name: str | None, suffix: str, datasets: pd.Series
) -> pd.DataFrame:
    """List the cells of a printed table whose data set has no runs."""
    published = study.get("published", {})
    asked = {name: published[known("published table", name, published)]} if name else {}
    cells = gains.list_printed_pairs({**study, "published": asked}, suffix)
    cells = cells[~cells["dataset"].isin(datasets)]
    order = cells.groupby(SETTING, sort=False).ngroup().argsort(kind="stable")
    return cells.iloc[order]


def wide(table: pd.DataFrame, suffix: str, placebo: str | None = None) -> pd.DataFrame:
    columns = {
        "original": write_accuracies(table, "original", ""),
        f"with {suffix}": write_accuracies(table, "changed", "_changed"),
        "gain [95 %]": write_gains(table, ""),
    }
    if placebo:
        columns[f"gain of {placebo} [95 %]"] = write_gains(table, "placebo_")
    heads = {"original": "original", "changed": f"with {suffix}", "gain": "gain"}
    for name, head in heads.items():
        form = "{:+.2f}" if name == "gain" else "{:.2f}"
        columns[f"printed {head}"] = write_numbers(table[f"printed_{name}"], form)
    for name, head in heads.items():
        columns[f"ours - printed, {head}"] = write_numbers(table[f"{name}_difference"], "{:+.2f}")
    names = name_rows(table, tables.is_in_heading(table, "protocol"), AXES)
    filled = {name: texts for name, texts in columns.items() if texts.any()}
    return names.assign(**filled).set_index([*names])


def write_accuracies(table: pd.DataFrame, name: str, suffix: str) -> pd.Series:
    """Write mean and deviation over seeds, or how many runs diverged.

    If the original and the changed method have different numbers of seeds, the number follows.
    `suffix` ends the names of the columns `diverged` and `seeds`.
    """
    columns = {name: "mean", f"{name}_std": "std"}
    columns |= {f"diverged{suffix}": "diverged", f"seeds{suffix}": "seeds"}
    facts = table[[*columns]].rename(columns=columns).fillna({"diverged": 0})
    texts = pd.Series([tables.write_cell(row) for row in facts.to_dict("records")], table.index)
    differ = table["seeds"].notna() & (table["seeds"] != table["seeds_changed"])
    return texts + facts["seeds"].map(tables.write_seed_count).where(differ, "")


def write_gains(table: pd.DataFrame, prefix: str) -> pd.Series:
    """Write gains with their intervals; `prefix` begins the names of their columns."""
    columns = [f"{prefix}{name}" for name in (*gains.GAIN, gains.PAIRS)]
    most = table[["seeds", "seeds_changed"]].max(axis="columns")
    rows = table[columns].assign(most=most).itertuples(index=False)
    return pd.Series([write_gain(*row) for row in rows], table.index)


def write_gain(gain: float, low: float, high: float, pairs: int, seeds: int) -> str:
    """Write a gain with its interval, and the number of pairs if it differs from that of seeds.

    One seed has no interval. Without a gain the text is empty.
    """
    text = tables.write_interval(gain, low, high, sign="+")
    if not text or pairs == seeds:
        return text
    return f"{text} of {pairs:.0f} pair{'s' if pairs != 1 else ''}"


def write_numbers(values: pd.Series, form: str) -> pd.Series:
    return values.map(lambda value: "" if np.isnan(value) else form.format(value))


def caption(table: pd.DataFrame) -> str:
    ours = table[table["seeds"].notna()]
    beside = " Beside them are the printed values." * bool(table["printed_gain"].notna().any())
    return (
        f"The {tables.describe_score(ours)} in percent, mean ± standard deviation over seeds, and "
        "gains in points with their 95 % intervals over pairs of runs: "
        f"{tables.describe_scope(ours)}.{beside}"
    )
