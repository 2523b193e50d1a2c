"""What distilling from the server's model does for FedAvg, by round (FedLMD's figure 4).

A panel per alpha. A line ends before the round in which the first of its runs diverged.
"""

import pandas as pd

from fedgrid.report import convergence
from fedgrid.report.convergence import caption, plot

__all__ = ["caption", "draw", "plot"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per method, setting and evaluated round that all seeds reached: percent over seeds."""
    return convergence.draw(runs, study, scale)
