"""Best accuracy by the round at which FedLMD-Tf becomes FedLMD (figure 8)."""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid import figures, sweeps


def draw(runs: pd.DataFrame, settings: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per round of switching: 0 is FedLMD, the last round FedLMD-Tf."""
    return sweeps.draw(runs, settings, "switch").assign(scale=scale)


def plot(table: pd.DataFrame, study: dict) -> Figure:
    """One line."""
    figure, ((axes,),) = figures.panels(1, 1)
    sweeps.plot(axes, table, figures.lines(table["series"]), study)
    axes.set(xlabel="switching round", ylabel="test accuracy (%)")
    return figure


caption = sweeps.caption
