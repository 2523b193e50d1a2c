"""The accuracy of clients between their shared and their private branch (figure 9).

Alpha is the weight of the shared features, beta that of the shared classifier's probabilities; with
both 1 the model is the shared one, with both 0 the private one. Cells are equally large, whatever
the distance of their values. The clients are those of rounds after local training, as in the text
(definition 3.3), or with `evaluate_clients: all` all clients as they are, as in the authors' code.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.mixtures import select_features
from fedgrid.analysis.scores import CELL, strict_mean
from fedgrid.runtime.names import in_words
from fedgrid.study.records import Study

POINT = ["alpha", "beta"]
WHO = {  # a client of two rounds counts twice
    "cohort": "clients of rounds, each counted in every round, after local training,",
    "all": "clients, as they are,",
}


def draw(
    interpolation: pd.DataFrame, study: Study, scale: str, evaluate_clients: str = "cohort"
) -> pd.DataFrame:
    """Return a row per run's setting and point: percent over seeds; `best` marks the highest."""
    some = select_features(interpolation, evaluate_clients)
    table = some.groupby([*CELL, *POINT], sort=False).agg(
        mean=("mean", lambda values: 100 * strict_mean(values)),
        std=("mean", lambda values: 100 * values.std(skipna=False)), seeds=("seed", "nunique"),
        **{name: (name, "first") for name in ("rounds", "clients", "evaluate_clients")},
    ).reset_index().round(4)  # fmt: skip
    figures.add_labels(table, study, ["dataset"])
    highest = table.groupby(CELL)["mean"].transform("max")
    table = table.assign(best=table["mean"] == highest, scale=scale)
    order = table.groupby(CELL, sort=False).ngroup()
    return table.assign(rank=order).sort_values(["rank", *POINT]).drop(columns="rank")


def plot(table: pd.DataFrame, study: Study) -> Figure:
    settings = [*table.groupby(CELL, sort=False)]
    columns = min(len(settings), 2)
    figure, grid = figures.panels(-(-len(settings) // columns), columns, 3.4, 2.9)
    flat = [axes for row in grid for axes in row]
    for axes in flat[len(settings) :]:
        axes.set_visible(False)
    for axes, ((method, dataset, partition, _), part) in zip(flat, settings, strict=False):
        plot_heat_map(axes, part)
        several = f"{figures.label(study, method)}: " * (table["method"].nunique() > 1)
        axes.set_title(several + figures.write_setting(study, dataset, partition))
    return figure


def plot_heat_map(axes: Axes, part: pd.DataFrame) -> None:
    cells = part.pivot(index="beta", columns="alpha", values="mean")
    image = axes.imshow(cells, aspect="auto", origin="lower", cmap="viridis")
    best = part[part["best"]]
    at = cells.columns.get_indexer(best["alpha"]), cells.index.get_indexer(best["beta"])
    axes.plot(*at, "*", color="white", markeredgecolor="black", markersize=9)
    axes.set_xticks(range(len(cells.columns)), [f"{a:g}" for a in cells.columns], rotation=90)
    axes.set_yticks(range(len(cells.index)), [f"{b:g}" for b in cells.index])
    axes.set(xlabel="alpha: shared features", ylabel="beta: shared classifier")
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, label="accuracy (%)")


def caption(table: pd.DataFrame) -> str:
    best = table[table["best"]].groupby(CELL, sort=False)
    said = []
    for _, part in best:
        points = in_words([f"({alpha:g}, {beta:g})" for alpha, beta in part[POINT].to_numpy()])
        first = part.iloc[0]
        said.append(f"{first['dataset_label']} {points} with {first['mean']:.2f}")
    return (
        f"Mean accuracy of {tables.join_values(table, 'clients')} "
        f"{WHO[table['evaluate_clients'].iloc[0]]} on their own test "
        "samples, in percent, with features alpha h + (1 - alpha) h' and probabilities beta p + "
        "(1 - beta) p', of the shared branch and the private one (with a prime): "
        f"{tables.describe_scope(table)}. Stars mark the best points (alpha, beta): "
        f"{'; '.join(said)}."
    )
