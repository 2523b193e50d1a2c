"""Both accuracies of every way to keep a part of the network private, beside the way's placebo.

The placebo of a way draws the private part anew whenever its client takes part, so that it cannot
learn from one round to the next. Only what a way has beyond its placebo speaks for private parts.
"""

import pandas as pd

from fedgrid.analysis import choice, figures, gains, tables, verdicts
from fedgrid.analysis.scores import CELL, SETTING, score_runs, scored, whole_mean
from fedgrid.partitions import write_label

OPTIONS = {"placebo": "ending"}  # what they name (study/options.py)
ACCURACIES = {"aggregation": "accuracy", "personalisation": "own_mean"}
STATISTICS = ["mean", "low", "high"]
FACTS = ("rounds", "metric", "tail")


def draw(
    runs: pd.DataFrame,
    study: dict,
    scale: str,
    settings: pd.DataFrame | None = None,
    placebo: str = "+forgets",
    best: dict | None = None,
) -> pd.DataFrame:
    """Return a row per way and setting: means with 95 % intervals over seeds, and gains.

    `placebo` is what the names of placebos end with. `best` keeps the best runs by each accuracy,
    and reads the runs' `settings`.
    """
    choose = choice.chooser(runs, settings, best)
    parts = [summarise(name, choose(runs, of), of, placebo) for name, of in ACCURACIES.items()]
    table = parts[1].merge(parts[0], how="left", on=CELL, suffixes=("", "_server"))
    table = table.drop(columns=[name for name in table if name.endswith("_server")])
    for axis in ("method", "dataset", "protocol"):
        table[f"{axis}_label"] = [figures.label(study, name, axis) for name in table[axis]]
    return table.assign(scale=scale).round(4)


def summarise(name: str, runs: pd.DataFrame, of: str, placebo: str) -> pd.DataFrame:
    """Return a row per way and setting: one accuracy, that of its placebo, and the difference."""
    found = score_runs(scored(runs, of), of).rename(columns={of: "accuracy"})
    pairs = gains.name_pairs(found["method"], placebo, needed=False)
    facts = found.groupby(CELL, sort=False).agg(
        seeds=("seed", "nunique"), **{fact: (fact, "first") for fact in FACTS}
    )
    table = facts.reset_index().merge(intervals(found, name), on=CELL)
    back = {of_placebo: way for way, of_placebo in pairs.items()}
    theirs = intervals(found[found["method"].isin(back)], f"{name}_placebo")
    gain = gains.compute_gains(found, back)
    gain = gain.rename(columns={"gain": "mean"}).replace({"method": back})
    gain = gain.rename(columns={key: f"{name}_gain_{key}" for key in (*STATISTICS, gains.PAIRS)})
    table = table[~table["method"].isin(back)]
    table = table.merge(theirs.replace({"method": back}), how="left", on=CELL)
    table = table.merge(gain, how="left", on=["method", *SETTING])
    chosen = choice.add_choice(table[CELL], runs)
    return table.assign(**{f"{name}_chosen": chosen.get("chosen", pd.Series("", chosen.index))})


def intervals(scores: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a row per method and setting: mean, 95 % interval over seeds, and diverged runs."""
    rows = [
        (*key, whole_mean(of["accuracy"]), *verdicts.interval(of["accuracy"].to_numpy()),
         of["diverged"].sum())
        for key, of in scores.groupby(CELL, sort=False)
    ]  # fmt: skip
    columns = [*CELL, *(f"{name}_{key}" for key in (*STATISTICS, "diverged"))]
    return pd.DataFrame(rows, columns=columns)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per way and setting: accuracies, placebo and gain as texts."""
    axes = ["dataset_label", "partition", "protocol_label", "method_label"]
    if not tables.varies(table, "protocol"):
        axes.remove("protocol_label")
    index = table[axes].assign(partition=table["partition"].map(write_label))
    index.columns = [name.removesuffix("_label") for name in axes]
    shown = {}
    for name in ACCURACIES:
        shown[name, "way"] = texts(table, name)
        shown[name, "placebo"] = texts(table, f"{name}_placebo")
        shown[name, "way - placebo"] = texts(table, f"{name}_gain", "+")
        shown[name, "chosen"] = table[f"{name}_chosen"].astype(object).fillna("")
    there = {key: of for key, of in shown.items() if (of != "").any()}
    return pd.DataFrame(there).set_index(pd.MultiIndex.from_frame(index))


def texts(table: pd.DataFrame, name: str, sign: str = "") -> pd.Series:
    """Return a mean with its interval as texts; empty without a mean."""
    rows = table[[f"{name}_{key}" for key in STATISTICS]].itertuples(index=False)
    found = pd.Series([tables.interval(*row, sign=sign) for row in rows], table.index)
    if f"{name}_diverged" not in table:
        return found
    lost = table[f"{name}_diverged"].fillna(0)
    said = [f"{n:g}/{seeds:g} diverged" for n, seeds in zip(lost, table["seeds"], strict=True)]
    return found.mask(lost > 0, said)


def caption(table: pd.DataFrame) -> str:
    """Describe the numbers."""
    metric = tables.counted(table).replace("test accuracy", "accuracy")
    return (
        f"The {metric} in percent with its 95 % interval over seeds, of the server's model on the "
        "test set (aggregation) and of clients' own models on their own test samples, mean over "
        "clients (personalisation); the same of each way's placebo, whose private part is drawn "
        f"anew at every participation, and the paired difference: {tables.scope(table)}."
    )
