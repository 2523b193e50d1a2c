"""Test accuracy over the rounds: normalised methods solid, original ones dashed (figure 2).

A panel per setting, a colour per method.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import figures, looks, tables
from fedgrid.analysis.scores import SETTING
from fedgrid.report import convergence, gains
from fedgrid.report._panels import draw_panels
from fedgrid.study.records import Study

OPTIONS = {"suffix": "ending"}  # what they name (study/options.py)
ORIGINAL = {"linestyle": (0, (4, 1.5)), "linewidth": looks.THIN}
NORMALISED = {"linestyle": "-", "linewidth": looks.BOLD, "zorder": 3}


def draw(runs: pd.DataFrame, study: Study, scale: str, suffix: str) -> pd.DataFrame:
    """Return a row per method, setting and round: percent over seeds; `original` names the pair."""
    pairs = gains.name_pairs(runs["method"], suffix)
    original = {name: name for name in pairs} | {name: changed for changed, name in pairs.items()}
    table = convergence.draw(runs[runs["method"].isin(original)], study, scale)
    return table.assign(original=table["method"].map(original))


def plot(table: pd.DataFrame, study: Study) -> Figure:
    names = [figures.label(study, name) for name in table["method"].unique()]
    size = {"width": 3.2, "height": 2.6, "sharey": True, "least": figures.find_room(names)}
    figure, (row,), panels = draw_panels(table, [], SETTING, **size)
    look = looks.list_looks(table["original"], study, styles=looks.SOLID)
    for axes, (protocol, dataset, partition), here in panels:
        for (method, original), line in here.groupby(["method", "original"], sort=False):
            style = look[original] | (ORIGINAL if method == original else NORMALISED)
            axes.plot(line["round"], line["mean"], label=figures.label(study, method), **style)
        title = figures.write_setting(study, dataset, partition)
        axes.set_title(f"{title}, {figures.label(study, protocol, 'protocol')}")
    figures.name_rounds(row)
    figures.label_rows(row, tables.write_axis_label(table))
    figures.name_lines(row)
    return figure


def caption(table: pd.DataFrame) -> str:
    solid = " Solid lines are normalised methods, dashed lines of a colour their originals."
    return convergence.caption(table).replace(", mean and standard deviation", ", mean") + solid
