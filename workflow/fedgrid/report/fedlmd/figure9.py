"""Best accuracy by beta and by tau, for FedLMD and FedLMD-Tf (figure 9)."""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid import sweeps


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
    return sweeps.panels(table, study, {"beta": "beta", "tau": "tau"}, sharey=True)


caption = sweeps.caption
