"""FedSLS's aggregation weights against FedAvg's, and R_k / n_k client by client.

Weights are shares over the whole population. The effective number of clients is 1 / sum_k a_k^2.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.looks import find_colour
from fedgrid.analysis.scores import SETTING
from fedgrid.report._texts import count
from fedgrid.study.records import Study

EFFECTIVE = ["effective_clients", "effective_clients_fedavg"]
COLUMNS = ["seed", "client", "size", "R", "R_per_sample", "weight", "effective_clients"]


def draw(saliency: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per client, cell and seed, with FedAvg's weight and effective clients."""
    table = saliency[[*SETTING, *COLUMNS]].copy()
    cells = table.groupby([*SETTING, "seed"], sort=False)["size"]
    table["weight_fedavg"] = table["size"] / cells.transform("sum")
    squares = (table["weight_fedavg"] ** 2).groupby([table[k] for k in (*SETTING, "seed")])
    table["effective_clients_fedavg"] = 1 / squares.transform("sum")
    table = table.assign(seeds=table["seed"].nunique(), scale=scale)
    return tables.add_alpha(table.drop(columns="protocol"))


def plot(table: pd.DataFrame, study: Study) -> Figure:
    datasets, partitions = table["dataset"].unique(), table["partition"].unique()
    figure, grid = figures.panels(2 * len(datasets), len(partitions), sharey="row", least=1.6)
    for i, dataset in enumerate(datasets):
        for j, partition in enumerate(partitions):
            here = table[(table["dataset"] == dataset) & (table["partition"] == partition)]
            above, below = grid[2 * i][j], grid[2 * i + 1][j]
            plot_shares(above, here)
            title = figures.write_setting(study, dataset, partition)
            numbers = here.groupby("seed")[EFFECTIVE].first().mean()
            effective = "{:.1f} (FedAvg {:.1f})".format(*numbers)
            above.set_title(f"{title}\neffective clients:\n{effective}")
            plot_per_sample(below, here)
        figures.label_rows(grid[2 * i], "weight $a_k$ (%)", formula=True)
        figures.label_rows(grid[2 * i + 1], "$R_k / n_k$", formula=True)
    figures.legend(figure, [axes for row in grid[:2] for axes in row])
    return figure


def plot_shares(axes: Axes, table: pd.DataFrame) -> None:
    """Draw weight against share of samples; on the line, FedSLS equals FedAvg."""
    most = 100 * max(table["weight_fedavg"].max(), table["weight"].max())
    axes.plot([0, most], [0, most], color=find_colour("fedavg"), linewidth=0.8, label="FedAvg")
    style: dict[str, Any] = {"s": 7, "alpha": 0.5, "linewidths": 0, "label": "FedSLS"}
    points = 100 * table["weight_fedavg"], 100 * table["weight"]
    axes.scatter(*points, color=find_colour("fedsls"), **style)
    axes.set_xlabel("share of samples $n_k$ (%)", parse_math=True)


def plot_per_sample(axes: Axes, table: pd.DataFrame) -> None:
    """Draw R_k / n_k of the clients in descending order, a line per seed."""
    style: dict[str, Any] = {"color": find_colour("fedsls"), "linewidth": 0.8, "alpha": 0.6}
    style["label"] = "FedSLS, a seed"
    for _, part in table.groupby("seed", sort=False):
        part = part.sort_values("R_per_sample", ascending=False)
        axes.plot(range(1, len(part) + 1), part["R_per_sample"], ".-", **style)
    axes.set_yscale("log")
    axes.set_xlabel("client, in order of $R_k / n_k$", parse_math=True)
    figures.use_whole_numbers(axes.xaxis)


def caption(table: pd.DataFrame) -> str:
    counts = table.groupby(["dataset", "partition"], sort=False)["seed"].nunique().reset_index()
    return (
        "A dot is a client of a seed, a line below is a seed; weights are by saliency. Effective "
        "clients are 1 / sum of squared weights over the population, mean over "
        f"{count(counts, 'seed', 'seed')}; {tables.join_values(table, 'scale')} scale."
    )
