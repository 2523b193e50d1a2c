"""Best accuracy by the epochs of local training, and by the clients of a round (figure 7)."""

import pandas as pd
from matplotlib.figure import Figure

from fedgrid import sweeps

SHOWN = {"local": "local epochs", "participation": "clients in a round"}


def draw(
    epochs: pd.DataFrame,
    epochs_settings: pd.DataFrame,
    clients: pd.DataFrame,
    clients_settings: pd.DataFrame,
    study: dict,
    scale: str,
) -> pd.DataFrame:
    """A row per method and number of epochs or clients."""
    several = sweeps.draw(clients, clients_settings, "participation")
    several["at"] *= clients["clients"].iloc[0]
    table = pd.concat([sweeps.draw(epochs, epochs_settings, "local"), several])
    return table.assign(scale=scale)


def plot(table: pd.DataFrame, study: dict) -> Figure:
    """Two panels: epochs, clients."""
    return sweeps.panels(table, study, SHOWN)


caption = sweeps.caption
