"""Similarity of each client's local model and the server's new model, over the rounds (figure 1b).

A panel per method and setting, a line per client. The similarity is the cosine of all parameters as
one vector. The paper has three clients: two with eight classes each, the third with the other two.
"""

import re

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.scores import CELL, SETTING
from fedgrid.report._panels import draw_panels
from fedgrid.runtime.names import NothingToDrawError
from fedgrid.study.records import Study

COLUMN = re.compile(r"similarity(\d+)")


def draw(runs: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per method, setting, client and round: mean over seeds and deviation."""
    columns = [name for name in runs if COLUMN.fullmatch(name)]
    if not columns:
        raise NothingToDrawError(
            "no run of the grid has similarities: add the file `similarity` to its methods"
        )
    facts = [*CELL, "round", "rounds", "seed"]
    long = runs.melt(facts, columns, "client", "similarity").dropna(subset="similarity")
    long["client"] = [int(COLUMN.sub(r"\1", name)) + 1 for name in long["client"]]
    table = long.groupby([*CELL, "client", "round"], sort=False).agg(
        mean=("similarity", "mean"), std=("similarity", "std"), seeds=("seed", "nunique"),
        rounds=("rounds", "first"),
    ).reset_index()  # fmt: skip
    table["label"] = [figures.label(study, name) for name in table["method"]]
    return table.assign(scale=scale).round({"mean": 6, "std": 6})


def plot(table: pd.DataFrame, study: Study) -> Figure:
    size = {"sharex": "row", "sharey": "row", "least": figures.find_room(["client 1"])}
    figure, _, panels = draw_panels(table, SETTING, ["method"], **size)
    look = figures.lines(table["client"])
    for axes, (_, dataset, partition, method), here in panels:
        for client, line in here.groupby("client", sort=False):
            figures.plot_band(axes, line, "round", look[client], label=f"client {client}")
        title = figures.write_setting(study, dataset, partition)
        axes.set_title(f"{figures.label(study, method)}\n{title}")
    if panels:
        figures.name_rounds(figure.axes)
        figures.label_rows(figure.axes, "cosine of the local\nand the server's model")
    figures.name_lines(figure.axes)
    return figure


def caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "There is nothing to show: runs diverged before their first evaluation."
    last = table[table["round"] == table["round"].max()]
    ends = [
        f"{name} {', '.join(map('{:.4f}'.format, numbers))}"
        for name, numbers in last.groupby("label", sort=False)["mean"]
    ]
    return (
        "Similarity of each client's local model and the server's new model"
        f"{tables.describe_spread(table)}: {tables.describe_scope(table)}. After the last round, "
        f"by client: {'; '.join(ends)}."
    )
