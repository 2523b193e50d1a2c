"""Methods that cost a client no more than FedAvg, by partition (FedLMD's figure 5)."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures
from fedgrid.analysis.looks import list_fills
from fedgrid.partitions import parse_name
from fedgrid.report import comparison
from fedgrid.report.sweep import caption
from fedgrid.study.records import Study

__all__ = ["caption", "draw", "plot"]

PANELS = {"shards": "classes per client s", "dirichlet": "Dirichlet alpha"}


def draw(runs: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    return comparison.draw(runs, study, scale)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    table = table.assign(kind=[parse_name(name)[0] for name in table["partition"]])
    shown = [kind for kind in PANELS if (table["kind"] == kind).any()]
    figure, (row,) = figures.panels(1, len(shown), width=3.4, sharey=True)
    fills = list_fills(table.dropna(subset="mean")["method"], study)
    for axes, kind in zip(row, shown, strict=True):
        part = table[table["kind"] == kind]
        plot_bars(axes, part, fills, study)
        names = [parse_name(name)[1] for name in part["partition"].unique()]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel(PANELS[kind])
    figures.label_rows(row, "test accuracy (%)")
    figures.legend(figure, row, columns=4)
    return figure


def plot_bars(axes: Axes, table: pd.DataFrame, fills: dict[str, dict], study: Study) -> None:
    partitions, width = table["partition"].unique(), 0.8 / max(len(fills), 1)
    for i, (method, fill) in enumerate(fills.items()):
        part = table[table["method"] == method].set_index("partition").reindex(partitions)
        at = np.arange(len(partitions)) + (i + 0.5) * width - 0.4
        error = dict(yerr=part["std"], error_kw={"lw": 0.8, "capsize": 2})
        axes.bar(at, part["mean"], width, label=figures.label(study, method), **fill, **error)
        gone = part["diverged"].fillna(0).to_numpy() > 0
        axes.plot(at[gone], 0 * at[gone], "x", color=fill["facecolor"])
