"""Both accuracies of every way to keep a part of the network private, beside the way's placebos.

With a placebo, the private part cannot remember anything from one participation to the next. So
only the gain of a way over its placebos is due to this memory. With the placebo `forgets`, the
private part is drawn anew for each client and round. With `resets`, it begins each round with the
initial weights, which are the same for all clients; its gain over `forgets` is due to these common
weights.
"""

import pandas as pd

from fedgrid.analysis import choice, figures, tables
from fedgrid.analysis.scores import CELL, SCORED, SETTING, score_runs, select_scored
from fedgrid.report import gains
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

OPTIONS = {"placebo": "ending"}  # what they name (study/options.py)
ACCURACIES = {"aggregation": "accuracy", "personalisation": "own_mean"}
STATISTICS = ["mean", "low", "high"]
ROW = ["method", "placebo", *SETTING]
LABELLED = ("method", "placebo", "dataset", "protocol")
AXES = ("dataset", "partition", "protocol", "method", "placebo")
FACTS = ("rounds", *SCORED)


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    settings: pd.DataFrame | None = None,
    placebo: str | list[str] = "+forgets",
    best: dict | None = None,
) -> pd.DataFrame:
    """Return a row per way, placebo and setting: means with 95 % intervals over seeds, and gains.

    A way without a placebo in the runs of a setting has one row, whose placebo is empty. `placebo`
    is what the names of placebos end with, one end or several. `best` keeps the best runs by each
    accuracy, and reads the runs' `settings`.
    """
    choose, ends = choice.make_chooser(runs, settings, best), listed(placebo)
    parts = [
        summarise_accuracy(name, choose(runs, metric), metric, ends)
        for name, metric in ACCURACIES.items()
    ]
    table = parts[1].merge(parts[0], how="left", on=ROW, suffixes=("", "_server"))
    table = table.drop(columns=[name for name in table if name.endswith("_server")])
    figures.add_labels(table, study, LABELLED)
    return table.assign(scale=scale).round(4)


def summarise_accuracy(name: str, runs: pd.DataFrame, metric: str, ends: list[str]) -> pd.DataFrame:
    scores = score_runs(select_scored(runs, metric), metric).rename(columns={metric: "accuracy"})
    pairs = [gains.name_pairs(scores["method"], end, needed=False) for end in ends]
    back = {placebo: way for placebos in pairs for way, placebo in placebos.items()}
    facts = scores.groupby(CELL, sort=False).agg(
        seeds=("seed", "nunique"), **{fact: (fact, "first") for fact in FACTS if fact in scores}
    )
    table = facts.reset_index().merge(compute_intervals(scores, name), on=CELL)
    theirs = compute_intervals(scores[scores["method"].isin(back)], f"{name}_placebo")
    gain = gains.compute_gains(scores, back).rename(columns={"gain": "mean"})
    gain = gain.rename(columns={key: f"{name}_gain_{key}" for key in (*STATISTICS, gains.PAIRS)})
    placebos = theirs.merge(gain, how="left", on=CELL).rename(columns={"method": "placebo"})
    placebos.insert(0, "method", placebos["placebo"].map(back))
    table = table[~table["method"].isin(back)].merge(placebos, how="left", on=CELL)
    table = table.fillna({"placebo": ""})
    chosen = choice.add_choice(table[CELL], runs)
    return table.assign(**{f"{name}_chosen": chosen.get("chosen", pd.Series("", chosen.index))})


def compute_intervals(scores: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a row per method and setting: mean, 95 % interval over seeds, and diverged runs."""
    table = gains.average_with_intervals(scores, CELL).drop(columns=gains.PAIRS)
    table["diverged"] = scores.groupby(CELL, sort=False)["diverged"].sum().to_numpy()
    return table.rename(columns={key: f"{name}_{key}" for key in (*STATISTICS, "diverged")})


def wide(table: pd.DataFrame) -> pd.DataFrame:
    index = tables.name_rows(table, tables.is_in_heading(table, "protocol"), AXES)
    index = index.astype(object).fillna("")
    shown = {}
    for name in ACCURACIES:
        shown[name, "way"] = write_means(table, name)
        shown[name, "placebo"] = write_means(table, f"{name}_placebo")
        shown[name, "way - placebo"] = write_means(table, f"{name}_gain", "+")
        shown[name, "chosen"] = table[f"{name}_chosen"].astype(object).fillna("")
    filled = {key: column for key, column in shown.items() if (column != "").any()}
    return pd.DataFrame(filled).set_index(pd.MultiIndex.from_frame(index))


def write_means(table: pd.DataFrame, name: str, sign: str = "") -> pd.Series:
    """Write means with their intervals, or how many runs diverged; empty without a mean."""
    rows = table[[f"{name}_{key}" for key in STATISTICS]].itertuples(index=False)
    means = pd.Series(
        [tables.write_interval(mean, low, high, sign) for mean, low, high in rows], table.index
    )
    if f"{name}_diverged" not in table:
        return means
    lost = table[f"{name}_diverged"].fillna(0)
    said = [f"{n:g}/{seeds:g} diverged" for n, seeds in zip(lost, table["seeds"], strict=True)]
    return means.mask(lost > 0, said)


def caption(table: pd.DataFrame) -> str:
    metric = tables.describe_score(table).replace("test accuracy", "accuracy")
    untested = tables.describe_untested(table, ACCURACIES["personalisation"])
    return (
        f"The {metric} in percent with its 95 % interval over seeds, of the server's model on the "
        "test set (aggregation) and of clients' own models on their own test samples, mean over "
        f"clients{untested} (personalisation); the same of each way's placebos, whose private part "
        "remembers nothing from one participation to the next (with forgets it is drawn anew, with "
        "resets it begins with the common initial weights), and the paired difference: "
        f"{tables.describe_scope(table)}."
    )
