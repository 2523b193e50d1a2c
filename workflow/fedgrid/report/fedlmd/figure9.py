"""Best accuracy by beta and by tau, for FedLMD and FedLMD-Tf (figure 9)."""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid import figures, sweeps


def draw(
    beta: pd.DataFrame,
    beta_settings: pd.DataFrame,
    tau: pd.DataFrame,
    tau_settings: pd.DataFrame,
    study: dict,
    scale: str,
) -> pd.DataFrame:
    """A row per method and value of beta or tau."""
    both = [sweeps.draw(beta, beta_settings, "beta"), sweeps.draw(tau, tau_settings, "tau")]
    return pd.concat(both).assign(scale=scale)


def plot(table: pd.DataFrame, study: dict) -> Figure:
    """Two panels: beta, tau."""
    figure, (row,) = figures.panels(1, 2, width=2.6, sharey=True)
    look = figures.lines(table["series"])
    for axes, field in zip(row, ("beta", "tau"), strict=True):
        sweeps.plot(axes, table[table["field"] == field], look, study)
        axes.set_xlabel(field)
    row[0].set_ylabel("best test accuracy (%)")
    figures.legend(figure, row)
    return figure


caption = sweeps.caption
