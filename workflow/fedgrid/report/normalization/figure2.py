"""Test accuracy over the rounds: normalised methods solid, original ones dashed (figure 2).

A panel per setting, a colour per method.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import figures, gains, looks, tables
from fedgrid.report import convergence
from fedgrid.study.records import Study

OPTIONS = {"suffix": "ending"}  # what they name (study/options.py)
SOLID, DASHED = "-", (0, (4, 1.5))


def draw(runs: pd.DataFrame, study: Study, scale: str, suffix: str) -> pd.DataFrame:
    """Return a row per method, setting and round: percent over seeds; `original` names the pair."""
    pairs = gains.name_pairs(runs["method"], suffix)
    original = {name: name for name in pairs} | {name: changed for changed, name in pairs.items()}
    table = convergence.draw(runs[runs["method"].isin(original)], study, scale)
    return table.assign(original=table["method"].map(original))


def plot(table: pd.DataFrame, study: Study) -> Figure:
    """Draw a row of panels that share axes, one per setting."""
    settings = [*table.groupby(["dataset", "partition", "protocol"], sort=False)]
    figure, (row,) = figures.panels(1, len(settings), width=3.2, height=2.6, sharey=True)
    look = looks.list_looks(table["method"], study)
    for axes, ((dataset, partition, protocol), part) in zip(row, settings, strict=bool(settings)):
        for (method, original), line in part.groupby(["method", "original"], sort=False):
            style = DASHED if method == original else SOLID
            label = figures.label(study, method)
            drawn = look[method] | {"linestyle": style, "marker": ""}
            axes.plot(line["round"], line["mean"], label=label, **drawn)
        title = figures.write_setting(study, dataset, partition)
        axes.set(title=f"{title}, {figures.label(study, protocol, 'protocol')}", xlabel="round")
    figures.label_rows(row, tables.write_axis_label(table))
    figures.name_lines(row)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Describe the lines."""
    solid = " Solid lines are normalised methods, dashed lines of a colour their originals."
    return convergence.caption(table).replace(", mean and standard deviation", ", mean") + solid
