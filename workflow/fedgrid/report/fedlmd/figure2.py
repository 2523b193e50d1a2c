"""Labels of a round's clients, and what the server's model then takes test images for (figure 2).

The data of the clients of a round determine which classes the model favours after it; a method that
keeps what it knows of the others predicts all of them alike.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid import figures, tables

LABELS = "labels"
ROUNDS = 100  # the paper draws the first hundred
KEYS = ["what", "dataset", "partition", "round", "class"]


def draw(predictions: pd.DataFrame, counts: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per round and class: the share of it in the clients' data, and in the predictions."""
    seed = predictions["seed"].min()
    said = predictions[(predictions["seed"] == seed) & (predictions["round"] > 0)]
    held = labels(counts[counts["seed"] == seed], said)
    table = pd.concat(
        [held.assign(what=LABELS), said.rename(columns={"predicted": "number", "method": "what"})]
    )[[*KEYS, "number"]]
    whole = table.groupby(KEYS[:-1])["number"].transform("sum")
    whole = whole.clip(lower=1)  # a model without finite weights predicts nothing
    table["share"] = (table["number"] / whole).round(4)
    return table.assign(seed=seed, seeds=1, rounds=said["rounds"].iloc[0], scale=scale)


def labels(counts: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """How many samples of every class the clients of every round have together."""
    from fedgrid import schedule

    about = predictions.iloc[0]
    rows = []
    for number in predictions["round"].unique():
        names = about["dataset"], about["partition"], int(about["seed"]), int(number) - 1
        size = int(about["clients"]), float(about["participation"])
        cohort = schedule.cohort(*size, *names, sampler=about["sampler"])
        rows.append(counts[counts["client"].isin(cohort)].assign(round=number))
    held = pd.concat(rows).groupby(["dataset", "partition", "round", "class"], sort=False)
    return held["samples"].sum().rename("number").reset_index()


def plot(table: pd.DataFrame, study: dict) -> Figure:
    """A heat map below another: rounds to the right, classes upwards."""
    kinds = table["what"].unique()
    figure, grid = figures.panels(len(kinds), 1, width=6.5, height=1.5, sharex=True)
    most = table["share"].max()
    for (axes,), kind in zip(grid, kinds, strict=True):
        of = table[(table["what"] == kind) & (table["round"] <= ROUNDS)]
        shares = of.pivot(index="class", columns="round", values="share").fillna(0)
        mesh = axes.pcolormesh(
            shares.columns - 1,
            shares.index,
            shares,
            cmap="Blues",
            vmin=0,
            vmax=most,
            shading="nearest",
        )
        named = figures.label(study, kind)
        axes.set_title("labels of the clients" if kind == LABELS else f"predictions, {named}")
        axes.set_ylabel("class")
        axes.yaxis.get_major_locator().set_params(integer=True)
    grid[-1][0].set_xlabel("round, from 0")
    figure.colorbar(mesh, ax=[row[0] for row in grid], label="share")
    return figure


def caption(table: pd.DataFrame) -> str:
    """What the colours are, and why a map may be shorter than the others."""
    early = table.groupby("what")["round"].max().nunique() > 1
    ends = " A map that ends early: the run diverged." * early
    return (
        "Share of every class in the data of the clients of a round, and in what the server's "
        f"model predicts of the test images after it; the first {ROUNDS} rounds at most, counted "
        f"from 0 as in the paper: seed {tables.each(table, 'seed')}, {tables.scope(table)}.{ends}"
    )
