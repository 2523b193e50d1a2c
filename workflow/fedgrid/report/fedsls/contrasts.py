"""Every comparison behind the claims: the difference over seeds, its 95 % interval and a verdict.

Differences are taken seed by seed (paired t-test); accuracies in points of percent.
"""

import pandas as pd

from fedgrid import claims
from fedgrid.report.contrasts import caption, of_values

__all__ = ["caption", "draw"]


def draw(runs: pd.DataFrame, scores: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per comparison, numbered by its claim."""
    return of_values(claims.measured(runs, scores), study, scale)
