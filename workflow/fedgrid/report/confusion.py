"""For which classes a model takes the test images of each class, and its accuracy on each class.

A run of a protocol with `metrics: [confusion]` counts this in `predictions.csv`: for the server's
model on the test set, and for clients' own models on their own test samples, all together. The
numbers are those after the last round, as shares of the images of a class, and means over seeds. A
run that ended early diverged, and its setting has no numbers. A class without images has none.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgrid.analysis import figures, tables
from fedgrid.analysis.scores import CELL, RUN, SETTING, strict_mean
from fedgrid.runtime.names import UsageError, known
from fedgrid.study.records import Study

COLUMNS = {"server": "of_class_", "own": "own_of_class_"}  # of predictions.csv, before the class
MODELS = {"server": "the server's model takes", "own": "clients' own models take"}
PAIR = ["class", "taken_for"]
MANY = 12  # classes, from which on not each one is written at an axis
PANEL, BAR = 1.6, 0.4  # inches of a panel, at least, and of the height of the scale of colours


def draw(
    predictions: pd.DataFrame, study: Study, scale: str, model: str = "server"
) -> pd.DataFrame:
    """Return a row per method, setting, class and class that it is taken for: percent over seeds.

    `model` is `server` or `own`.
    """
    known("value of `model`", model, COLUMNS)
    last = predictions["round"] == predictions.groupby(RUN)["round"].transform("max")
    shares = compute_shares(predictions[last], COLUMNS[model])
    groups = shares.groupby([*CELL, *PAIR], sort=False)
    table = groups.agg(
        mean=("share", strict_mean),
        std=("share", lambda values: values.std(skipna=False)),
        seeds=("seed", "nunique"),
        rounds=("rounds", "first"),
    ).reset_index()
    names = find_names(predictions)
    for name in PAIR:
        pairs = zip(table["dataset"], table[name], strict=True)
        table[f"{name}_label"] = [names.get(pair, str(pair[1])) for pair in pairs]
    figures.add_labels(table, study, ("method", "dataset", "protocol"))
    return table.assign(model=model, scale=scale).round({"mean": 4, "std": 4})


def compute_shares(predictions: pd.DataFrame, beginning: str) -> pd.DataFrame:
    """Return a row per run, class and class that it is taken for, with the share in percent.

    UsageError if the runs have not counted this.
    """
    columns = [name for name in predictions if name.startswith(beginning)]
    if predictions[columns].isna().all(axis=None):
        raise UsageError(
            "the predictions of these runs do not say of which class the images are: write "
            "`metrics: [confusion]` in the protocol, and `with: {model: own}` if clients keep a "
            "part of the model"
        )
    classes = predictions.groupby(RUN)["class"].transform("nunique")  # datasets may differ
    about = [*RUN, "round", "rounds", "classes", "taken_for"]
    named = predictions.assign(classes=classes).rename(columns={"class": "taken_for"})
    long = named.melt(about, columns, "class", "images")
    long["class"] = long["class"].str.removeprefix(beginning).astype(int)
    long = long[long["class"] < long["classes"]]
    images = long.groupby([*RUN, "class"])["images"].transform("sum", min_count=1)
    share = 100 * long["images"] / images.where(images > 0)
    whole = long["round"] == long["rounds"]
    return long.assign(share=share.where(whole)).sort_values(PAIR, kind="stable")


def find_names(predictions: pd.DataFrame) -> dict[tuple[str, int], str]:
    if "class_name" not in predictions:
        return {}
    named = predictions.dropna(subset="class_name").drop_duplicates(["dataset", "class"])
    return {(row["dataset"], row["class"]): row["class_name"] for _, row in named.iterrows()}


def wide(table: pd.DataFrame) -> pd.DataFrame:
    right = table[table["class"] == table["taken_for"]]
    texts = [tables.write_cell(row | {"diverged": 0}) for row in right.to_dict("records")]
    named = tables.name_rows(right, tables.has_several(table))
    index = [*named]
    cells = named.assign(cell=texts, of_class=right["class"])
    order = named.set_index(index).index.unique()
    cells = cells.pivot(index=index, columns="of_class", values="cell").reindex(order)
    labels = right["class_label"].astype(str).groupby(right["class"])
    names = labels.first()[labels.nunique() == 1]  # datasets may name a class differently
    return cells.fillna("").rename(columns=names).rename_axis(columns=None)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw a panel per method, all on one scale of colours; each setting begins a row.

    Panels are squares that fill the width.
    """
    rows = arrange_panels(table)
    columns = max(map(len, rows))
    page, fit = figures.find_fit(columns, PANEL, PANEL)
    height = page / fit + BAR / len(rows)
    figure, grid = figures.panels(len(rows), columns, PANEL, height, least=PANEL)
    several = len(table[SETTING].drop_duplicates()) > 1
    for panels, parts in zip(grid, rows, strict=True):
        for axes, part in zip(panels, parts, strict=False):
            mesh = plot_panel(axes, part)
            first = part.iloc[0]
            setting = figures.write_setting(study, first["dataset"], first["partition"])
            axes.set_title(first["method_label"] + f"\n{setting}" * several)
        for axes in panels[len(parts) :]:
            axes.set_visible(False)
        panels[0].set_ylabel("class")
    for axes in grid[-1]:
        axes.set_xlabel("taken for")
    places = [axes for panels in grid for axes in panels]
    bar: dict[str, Any] = {"location": "bottom", "aspect": 40, "label": "images of the class (%)"}
    figure.colorbar(mesh, ax=places, **bar)
    return figure


def arrange_panels(table: pd.DataFrame) -> list[list[pd.DataFrame]]:
    """Return the rows of panels, each with the rows of its method, as many in a row as fit."""
    rows = []
    _, fit = figures.find_fit(figures.ROW, PANEL, PANEL)
    for _, setting in table.groupby(SETTING, sort=False):
        parts = [part for _, part in setting.groupby("method", sort=False)]
        rows += [parts[at : at + fit] for at in range(0, len(parts), fit)]
    return rows


def plot_panel(axes: Axes, part: pd.DataFrame):
    shares = part.pivot(index="class", columns="taken_for", values="mean")
    axes.grid(visible=False)
    style: dict[str, Any] = {"cmap": "Blues", "vmin": 0, "vmax": 100, "shading": "nearest"}
    style["rasterized"] = len(shares) > MANY
    mesh = axes.pcolormesh(shares.columns, shares.index, shares, **style)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    if len(shares) <= MANY:
        names = part.drop_duplicates("class").set_index("class")["class_label"].astype(str)
        turned = 90 if names.str.len().max() > 1 else 0
        axes.set_xticks(names.index, names, rotation=turned)
        axes.set_yticks(names.index, names)
    return mesh


def caption(table: pd.DataFrame) -> str:
    lost = " A setting with a run that diverged, and a class without images, have no numbers."
    lost *= bool(table["mean"].isna().any())
    return (
        f"Test images of each class by the class that {MODELS[table['model'].iloc[0]]} them for, "
        "in percent of the images of the class after the last round; the accuracy on a class is "
        f"where both are one class. Means over seeds: {tables.describe_scope(table)}.{lost}"
    )
