"""Both accuracies over the rounds in several settings of one data set (figure 7).

A row of panels per accuracy, a column per protocol and data set.
"""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid.analysis import choice, figures, looks, metrics, tables
from fedgrid.analysis.scores import SETTING
from fedgrid.report import convergence
from fedgrid.report._panels import draw_panels
from fedgrid.report.privatization.ways import ACCURACIES
from fedgrid.study.records import Study


def draw(
    runs: pd.DataFrame,
    study: Study,
    scale: str,
    settings: pd.DataFrame | None = None,
    best: dict | None = None,
) -> pd.DataFrame:
    """Return a row per accuracy, method, setting and round: means over seeds.

    `best` keeps the best runs by each accuracy, and reads the runs' `settings`.
    """
    choose, parts = choice.make_chooser(runs, settings, best), []
    for name, metric in ACCURACIES.items():
        kept = choose(runs, metric)
        curves = convergence.draw(kept, study, scale, metric).drop(columns="of", errors="ignore")
        parts.append(choice.add_choice(curves, kept).assign(what=name, of=metric))
    return pd.concat(parts, ignore_index=True)


def plot(table: pd.DataFrame, study: Study) -> Figure:
    names = [figures.label(study, name) for name in table["method"].unique()]
    size = {"width": 2.6, "sharex": "col", "least": figures.find_room(names)}
    figure, grid, panels = draw_panels(table, ["what"], SETTING, **size)
    look = looks.list_looks(table["method"], study)
    for axes, (name, protocol, dataset, _), here in panels:
        convergence.plot_curves(axes, here, look, study)
        if axes in grid[0]:
            title = figures.label(study, dataset), figures.label(study, protocol, "protocol")
            axes.set_title(", ".join(title))
        unit = metrics.write_unit(ACCURACIES[name])
        figures.label_rows([axes], f"{name}\naccuracy{unit}")
    figures.name_rounds(grid[-1])
    figures.name_lines(figure.axes)
    return figure


def caption(table: pd.DataFrame) -> str:
    return (
        "Accuracy of the server's model (aggregation) and mean accuracy of clients' own models "
        f"(personalisation){tables.describe_spread(table)}: {tables.describe_scope(table)}."
        f"{convergence.describe_lines(table)}"
    )
