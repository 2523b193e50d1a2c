"""How accuracy is spread over clients, at the last round in which the clients were evaluated.

Every client has a test set of its own. On it, its own model and the server's model are evaluated.
Deciles, mean, worst, best and the standard deviation `spread` are over clients; `weighted` is the
mean weighted by test samples. A run that ended before others of its setting diverged; its setting
has no numbers.
"""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, looks, tables
from fedgrid.analysis.scores import CELL, RUN, SETTING, strict_mean
from fedgrid.report import convergence
from fedgrid.report._panels import draw_panels
from fedgrid.study.records import Study

MODELS = {"own": "own model", "server": "server's model"}
DECILES = [f"decile{k}" for k in range(1, 10)]
CURVE = ["worst", *DECILES, "best"]  # what a figure shows, from left to right
TICKS = ["worst", "", "2", "", "4", "", "6", "", "8", "", "best"]
STATISTICS = ["weighted", "mean", "spread", *CURVE]
SHOWN = {"weighted": "weighted mean", "mean": "mean", "spread": "deviation", "worst": "worst"}
SHOWN |= {"decile1": "decile 1", "decile5": "median", "decile9": "decile 9", "best": "best"}


def draw(clients: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per method and setting: means and deviations over seeds, in percent."""
    ends = clients.groupby(RUN)["round"].transform("max")
    last = clients[clients["round"] == ends]
    runs = pd.DataFrame([summarise_clients(run) for _, run in last.groupby(RUN, sort=False)])
    runs["diverged"] = runs["round"] < runs.groupby(SETTING)["round"].transform("max")
    names = [f"{model}_{name}" for model in MODELS for name in STATISTICS]
    runs[names] = runs[names].mask(runs["diverged"])
    facts: dict[str, Any] = {"seeds": ("seed", "nunique"), "diverged": ("diverged", "sum")}
    facts |= {name: (name, "max") for name in ("clients", "round", "rounds")}
    means: dict[str, Any] = {name: (name, strict_mean) for name in names}
    means |= {f"{name}_std": (name, lambda run: run.std(skipna=False)) for name in names}
    table = runs.groupby(CELL, sort=False).agg(**facts, **means).reset_index()
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return table.assign(scale=scale).round(4)


def summarise_clients(run: pd.DataFrame) -> dict:
    facts = run.iloc[0][[*RUN, "round", "rounds"]].to_dict() | {"clients": run["client"].nunique()}
    for model in MODELS:
        evaluated = run[run[f"{model}_accuracy"].notna()]
        percent = 100 * evaluated[f"{model}_accuracy"].to_numpy()
        numbers = [np.nan] * len(STATISTICS)
        if len(percent):
            weighted = np.average(percent, weights=evaluated["samples"])
            curve = np.quantile(percent, np.arange(11) / 10)
            numbers = [weighted, percent.mean(), percent.std(), *curve]
        facts |= {f"{model}_{name}": n for name, n in zip(STATISTICS, numbers, strict=True)}
    return facts


def wide(table: pd.DataFrame) -> pd.DataFrame:
    shown = {}
    for (model, words), (name, head) in product(MODELS.items(), SHOWN.items()):
        column = f"{model}_{name}"
        facts = table.assign(mean=table[column], std=table[f"{column}_std"]).to_dict("records")
        shown[words, head] = [tables.write_cell(row) for row in facts]
    index = tables.name_rows(table, tables.has_several(table))
    return pd.DataFrame(shown).set_index(pd.MultiIndex.from_frame(index))


def plot(table: pd.DataFrame, study: Study) -> Figure:
    lines = table["method_label"]
    if tables.has_several(table):
        lines = lines + " (" + table["protocol_label"] + ")"
    table = table.assign(line=lines)
    named = table.drop_duplicates("line")
    methods = dict(zip(named["line"], named["method"], strict=True))
    look = looks.list_looks(named["line"], study, methods, looks.SOLID)
    figure, grid, panels = draw_panels(table, ["dataset"], ["partition"], width=2.6, sharey="row")
    for axes, setting, here in panels:
        for facts in here.to_dict("records"):
            band = figures.has_band(look[facts["line"]], len(here))
            plot_curves(axes, facts, look[facts["line"]], band)
        axes.set_title(figures.write_setting(study, *setting))
        axes.set_xticks(range(len(CURVE)), TICKS)
        axes.set_xlabel("decile of clients")
    figures.label_rows(figure.axes, "accuracy on clients'\ntest sets (%)")
    if table["server_mean"].notna().any():
        grid[0][0].plot([], [], "--", color="0.4", label=MODELS["server"])
    figures.legend(figure, [axes for axes, *_ in panels])
    return figure


def plot_curves(axes: Axes, facts: dict, look: dict, band: bool) -> None:
    """Draw the line of clients' own models solid, that of the server's model dashed."""
    for model in MODELS:
        names = [f"{model}_{name}" for name in CURVE]
        mean = np.array([facts[name] for name in names], dtype=float)
        std = np.array([facts[f"{name}_std"] for name in names], dtype=float)
        own = model == "own"
        style = {"label": facts["line"]} if own else {"linestyle": "--"}
        axes.plot(mean, markersize=3, **look | style)
        low, high = np.maximum(mean - std, 0), np.minimum(mean + std, 100)
        if band:
            axes.fill_between(range(len(CURVE)), low, high, color=look["color"], alpha=0.1, lw=0)


def caption(table: pd.DataFrame) -> str:
    lost = " A setting with a run that diverged has no numbers." * bool(table["diverged"].any())
    return (
        f"Accuracy over {tables.join_values(table, 'clients')} clients on their own test sets "
        f"after round {tables.join_values(table, 'round')}, in percent"
        f"{tables.describe_spread(table)}: "
        f"{tables.describe_scope(table)}. Solid: each client's own model. Dashed: the server's "
        f"model.{convergence.describe_bands(table)}{lost}"
    )
