"""How good methods get and how soon: best and last accuracy, speed-up over another, published ones.

The speed-up is FedLMD's (section 5.3): with T the first round after which the method that is
compared with has its own best accuracy, and T' the first after which another has at least that
accuracy, it is T / T', and 1 where the other never has, or not sooner; its mean over seeds.
"""

import numpy as np
import pandas as pd

from fedgrid import figures, tables

FAILED = "Failed"  # the speed-up of a run that diverged
ROWS = ["ours", "last round", "reference", "published"]


def draw(runs: pd.DataFrame, study: dict, scale: str, over: str = "fedavg") -> pd.DataFrame:
    """A row per method and setting: percent over seeds, rounds saved, what is published."""
    scores = tables.scores(runs).merge(speedups(runs, over), on=[*tables.CELL, "seed"])
    table = tables.over_seeds(scores, tables.CELL)
    for name in ("final", "speedup"):
        table[name] = tables.over_seeds(scores, tables.CELL, name)["mean"]
    ended = scores[scores["diverged"]].groupby(tables.CELL)["ended"].min().rename("diverged_at")
    table = table.merge(ended, how="left", on=tables.CELL)
    table = tables.beside_published(table, study).drop(columns="published_std")
    table = tables.beside_reference(table, study)
    table = table.assign(scale=scale, over=over, difference=table["mean"] - table["published"])
    for axis in ("method", "protocol", "dataset", "over"):
        table[f"{axis}_label"] = [figures.label(study, name, axis) for name in table[axis]]
    return table.round(4)


def speedups(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """A row per run: how many times sooner it is as good as the other method gets.

    Missing where there is no run of the other method, or either diverged.
    """
    keys = [*tables.SETTING, "seed"]
    rounds = runs[runs["round"] > 0]
    other = rounds[rounds["method"] == over]
    best_first = other.sort_values(["accuracy", "round"], ascending=[False, True])
    goal = best_first.groupby(keys, as_index=False).agg(
        goal=("accuracy", "first"), goal_round=("round", "first"),
        other_diverged=("diverged", "any"),
    )  # fmt: skip
    every = rounds.merge(goal, on=keys, how="left")
    there = every["round"].where(every["accuracy"] >= every["goal"])
    reached = every.assign(there=there).groupby([*tables.CELL, "seed"], sort=False).agg(
        there=("there", "min"), goal_round=("goal_round", "first"), goal=("goal", "first"),
        diverged=("diverged", "any"), other_diverged=("other_diverged", "first"),
    ).reset_index()  # fmt: skip
    ratio = (reached["goal_round"] / reached["there"]).fillna(1).clip(lower=1)
    known = reached["goal"].notna() & ~reached["diverged"] & (reached["other_diverged"] == 0)
    return reached[[*tables.CELL, "seed"]].assign(speedup=ratio.where(known))


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Rows per method: ours with its speed-up, that of the last round, kept and published ones."""
    columns = ["dataset_label", "partition"]
    if tables.varies(table, "protocol"):
        columns.append("protocol_label")
    texts = {"ours": table.apply(ours, axis=1), "last round": table.apply(last, axis=1)}
    texts["reference"] = table["reference"].map(lambda p: "" if np.isnan(p) else f"{p:.2f}")
    texts["published"] = table.apply(published, axis=1)
    long = pd.concat(table.assign(what=what, cell=text) for what, text in texts.items())
    long = long[long["cell"] != ""].rename(columns={"method_label": "method_"})
    methods, order = table["method_label"].unique(), table.set_index(columns).index.unique()
    cells = long.pivot(index=["method_", "what"], columns=columns, values="cell")
    rows = [(m, what) for m in methods for what in ROWS if (m, what) in cells.index]
    cells = cells.reindex(index=pd.MultiIndex.from_tuples(rows), columns=order).fillna("")
    named = [name.removesuffix("_label") for name in columns]
    return cells.rename_axis(columns=named).rename(columns=tables.written)


def ours(row: pd.Series) -> str:
    """Percent over seeds, and the speed-up."""
    if row["diverged"]:
        some = f"{row['diverged']:g} of {row['seeds']:g} " if row["seeds"] > 1 else ""
        return f"{some}diverged at {row['diverged_at']:g} ({FAILED})"
    text = tables.ACCURACY.format(**row).replace(" ± nan", "")
    return text + ("" if np.isnan(row["speedup"]) else f" ({row['speedup']:.2f}x)")


def last(row: pd.Series) -> str:
    """Percent after the last round."""
    return "" if row["diverged"] else f"{row['final']:.2f}"


def published(row: pd.Series) -> str:
    """Percent and speed-up as printed."""
    if np.isnan(row["published"]):
        return ""
    speedup, text = row["published_speedup"], f"{row['published']:.2f}"
    if isinstance(speedup, str):
        return f"{text} ({speedup})"
    return text if pd.isna(speedup) else f"{text} ({speedup:.2f}x)"


def caption(table: pd.DataFrame) -> str:
    """What the numbers are."""
    over = tables.each(table, "over_label")
    beside = ["that after the last round"]
    beside += ["that of the runs kept with the study"] * bool(table["reference"].notna().any())
    beside += ["what is published"] * bool(table["published"].notna().any())
    return (
        f"The {tables.counted(table)} in percent (and how many times sooner it is as good as "
        f"{over}'s best); beside it {' and '.join(beside)}: {tables.scope(table)}."
    )
