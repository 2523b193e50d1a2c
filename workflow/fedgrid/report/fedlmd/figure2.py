"""Labels of a round's clients, and the server model's predictions after it (figure 2).

The data of a round's clients determine which classes the model favours after the round. A method
that preserves the knowledge of other classes predicts all classes about equally often.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.report._panels import draw_panels
from fedgrid.study.records import Study

LABELS = "labels"
ROUNDS = 100  # the paper shows the first hundred rounds
KEYS = ["what", "dataset", "partition", "round", "class"]


def draw(predictions: pd.DataFrame, counts: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per round and class: its share in the clients' data and in the predictions."""
    seed = predictions["seed"].min()
    said = predictions[(predictions["seed"] == seed) & (predictions["round"] > 0)]
    held = count_labels(counts[counts["seed"] == seed], said)
    predicted = said.rename(columns={"predicted": "number", "method": "what"})
    table = pd.concat([held.assign(what=LABELS), predicted])[[*KEYS, "number"]]
    whole = table.groupby(KEYS[:-1])["number"].transform("sum")
    whole = whole.clip(lower=1)  # a model without finite weights predicts nothing
    table["share"] = (table["number"] / whole).round(4)
    return table.assign(seed=seed, seeds=1, rounds=said["rounds"].iloc[0], scale=scale)


def count_labels(counts: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Count the samples of each class that the clients of a round hold, for each round."""
    from fedgrid.federation import schedule

    first = predictions.iloc[0]
    rows = []
    for number in predictions["round"].unique():
        names = first["dataset"], first["partition"], int(first["seed"]), int(number) - 1
        size = int(first["clients"]), float(first["participation"])
        cohort = schedule.cohort(*size, *names, sampler=first["sampler"])
        rows.append(counts[counts["client"].isin(cohort)].assign(round=number))
    held = pd.concat(rows).groupby(["dataset", "partition", "round", "class"], sort=False)
    return held["samples"].sum().rename("number").reset_index()


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw one heat map below the other: rounds to the right, classes upwards."""
    size = {"width": 6.5, "height": 1.5, "sharex": True}
    figure, _, panels = draw_panels(table, ["what"], [], **size)
    most = table["share"].max()
    for axes, (kind,), here in panels:
        early = here[here["round"] <= ROUNDS]
        shares = early.pivot(index="class", columns="round", values="share").fillna(0)
        mesh = axes.pcolormesh(
            shares.columns - 1, shares.index, shares, cmap="Blues", vmin=0, vmax=most,
            shading="nearest",
        )  # fmt: skip
        named = figures.label(study, kind)
        axes.set_title("labels of the clients" if kind == LABELS else f"predictions, {named}")
        axes.set_ylabel("class")
        figures.use_whole_numbers(axes.yaxis)
    axes.set_xlabel("round, from 0")
    figure.colorbar(mesh, ax=figure.axes, label="share", aspect=40)
    return figure


def caption(table: pd.DataFrame) -> str:
    early = table.groupby("what")["round"].max().nunique() > 1
    ends = " A map ends early if the run diverged." * early
    return (
        "Share of every class in the data of a round's clients, and in the predictions of the "
        f"server's model for the test images after it; at most the first {ROUNDS} rounds, counted "
        f"from 0 as in the paper: seed {tables.join_values(table, 'seed')}, "
        f"{tables.describe_scope(table)}.{ends}"
    )
