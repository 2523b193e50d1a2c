"""The accuracy of each client over the rounds, on its own test set: a thin line for each client.

It is that of the client's own model, or of the server's model where clients keep none. The runs are
those of the first seed. The thick line is the mean of the clients.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, looks, tables
from fedgrid.analysis.scores import SETTING
from fedgrid.report._panels import draw_panels
from fedgrid.study.records import Study

COLUMNS = ["method", "protocol", "dataset", "partition", "seed", "client", "round", "samples"]
THIN = {"linewidth": 0.5, "alpha": 0.3, "linestyle": "-", "markersize": 3}
MEAN = {"linewidth": 1.8, "linestyle": "-", "markersize": 8}
FEW = 3  # rounds with an evaluation


def draw(clients: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per method, setting, client and round: the accuracy in percent."""
    table = clients[clients["seed"] == clients["seed"].min()]
    accuracy = table["own_accuracy"].fillna(table["server_accuracy"])
    table = table[COLUMNS].assign(accuracy=(100 * accuracy).round(4))
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return table.dropna(subset="accuracy").assign(scale=scale)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    look = looks.list_looks(table["method"].unique(), study)
    size = {"sharex": "row", "sharey": "row"}
    figure, _, panels = draw_panels(table, SETTING, ["method"], **size)
    for axes, (_, dataset, partition, method), here in panels:
        plot_clients(axes, here, look[method])
        setting = figures.write_setting(study, dataset, partition)
        axes.set_title(f"{figures.label(study, method, 'method')}\n{setting}")
    if panels:
        figures.label_rows(figure.axes, "accuracy on clients'\ntest sets (%)")
        figures.name_rounds(figure.axes)
    return figure


def plot_clients(axes: Axes, part: pd.DataFrame, look: dict) -> None:
    """Draw the lines of one run; those of few rounds have dots."""
    dot = "." if part["round"].nunique() < FEW else ""
    for _, client in part.groupby("client"):
        axes.plot(client["round"], client["accuracy"], **look | THIN | {"marker": dot})
    mean = part.groupby("round")["accuracy"].mean()
    name = part["method_label"].iloc[0] if len(part) else ""
    axes.plot(mean.index, mean, label=name, **look | MEAN | {"marker": dot})


def caption(table: pd.DataFrame) -> str:
    seed, scale = tables.join_values(table, "seed"), tables.join_values(table, "scale")
    return (
        f"Accuracy of {table['client'].nunique()} clients on their own test sets over the rounds, "
        f"a thin line for each, and their mean: seed {seed} (1 seed), {scale} scale."
    )
