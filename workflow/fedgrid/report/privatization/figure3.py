"""Who has which classes: the label distributions of clients, and sizes of clients and classes.

Of each data set, the middle shows the share of each class in a client's training samples, the top
the number of samples of each client, and the right that of each class over all clients (figure 3).
The partitions are those of the first seed, and at most 100 clients are shown.
"""

import pandas as pd
from matplotlib.figure import Figure, SubFigure

from fedgrid.analysis import figures, tables
from fedgrid.study.records import Study

SHOWN = 100  # clients
CLIENT, CLASS = "client and class", "class"  # what a row is of
WIDTH, HEIGHT = 3.2, 2.9  # inches of a data set
INSIDE = {"width_ratios": [4, 1], "height_ratios": [1, 3]}


def draw(counts: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per shown client and class with samples, and a row per class of all clients."""
    first = counts[counts["seed"] == counts["seed"].min()]
    keys = ["dataset", "partition", "clients", "seed"]
    ours = first.loc[first["client"] < SHOWN, [*keys, "client", "class", "samples"]]
    whole = ours.groupby([*keys, "client"])["samples"].transform("sum")
    classes = first.groupby([*keys, "class"], sort=False)["samples"].sum().reset_index()
    parts = ours.assign(of=CLIENT, share=ours["samples"] / whole), classes.assign(of=CLASS)
    table = pd.concat(parts, ignore_index=True).astype({"client": "Int64"}).assign(scale=scale)
    order = ["of", "client", "class"]
    table["rank"] = table.groupby(["dataset", "partition"], sort=False).ngroup()
    return table.sort_values(["rank", *order], kind="stable").drop(columns="rank").round(6)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    settings = [*table.groupby(["dataset", "partition"], sort=False)]
    page, fit = figures.find_fit(len(settings), WIDTH, WIDTH)
    rows = -(-len(settings) // fit)
    figure = Figure(figsize=(page, HEIGHT * rows), layout="constrained")
    places = figure.subfigures(rows, fit, squeeze=False).flat
    for place, ((dataset, partition), part) in zip(places, settings, strict=False):
        place.suptitle(figures.write_setting(study, dataset, partition), size=8)
        plot_dataset(place, part[part["of"] == CLIENT], part[part["of"] == CLASS])
    return figure


def plot_dataset(place: SubFigure, ours: pd.DataFrame, classes: pd.DataFrame) -> None:
    ours = ours.astype({"client": int})
    (top, corner), (middle, right) = place.subplots(2, 2, gridspec_kw=INSIDE)
    corner.set_visible(False)
    colour = figures.colours(["bar"])["bar"]
    last = classes["class"].max()
    heat = ours.pivot(index="class", columns="client", values="share").astype(float)
    heat = heat.reindex(index=range(last + 1), columns=range(ours["client"].max() + 1)).fillna(0)
    image = middle.imshow(heat, aspect="auto", origin="lower", cmap="viridis", vmin=0)
    middle.set(xlabel="client", ylabel="class")
    sizes = ours.groupby("client")["samples"].sum()
    top.bar(sizes.index, sizes, width=1, color=colour)
    figures.use_whole_numbers(middle.yaxis)
    top.set(xlim=middle.get_xlim(), ylabel="samples")
    right.barh(classes["class"], classes["samples"], height=1, color=colour)
    for axis, of in ((top.yaxis, sizes), (right.xaxis, classes["samples"])):
        figures.use_scale(axis, of)
    right.set(ylim=middle.get_ylim(), xlabel="samples")
    right.tick_params(axis="x", labelrotation=45)
    for axes, plain in ((top, "x"), (right, "y"), (middle, "both")):
        axes.grid(visible=False)
        axes.tick_params(axis=plain, labelbottom=plain != "x", labelleft=plain != "y")
    place.colorbar(image, ax=right, label="share", fraction=0.5)


def caption(table: pd.DataFrame) -> str:
    return (
        "Training samples. Middle: the share of each class in a client's samples, of at most "
        f"{SHOWN} clients. Top: samples of each of these clients. Right: samples of each class "
        f"over all clients. Partitions of seed {tables.join_values(table, 'seed')} (1 seed), "
        f"{tables.join_values(table, 'scale')} scale."
    )
