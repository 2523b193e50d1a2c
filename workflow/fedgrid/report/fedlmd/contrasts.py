"""Every comparison behind FedLMD's claims: the difference over seeds, its interval and a verdict.

Differences are taken seed by seed (paired t-test); accuracies in points of percent.
"""

import pandas as pd

from fedgrid.report.contrasts import caption, of_values
from fedgrid.report.fedlmd.claims import measured

__all__ = ["caption", "draw"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per comparison, numbered by its claim."""
    return of_values(measured(runs), study, scale)
