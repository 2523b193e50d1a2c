"""Test accuracy over the rounds at three degrees of skew (FedLMD's figure 6).

A panel per alpha. A run that diverged ends where its loss was no longer finite.
"""

import pandas as pd

from fedgrid.report import convergence
from fedgrid.report.convergence import caption, plot

__all__ = ["caption", "draw", "plot"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per method, setting and evaluated round: accuracy in percent, over seeds."""
    return convergence.draw(runs, study, scale)
