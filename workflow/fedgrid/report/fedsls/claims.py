"""The paper's checkable sentences: its own evidence, ours, and a verdict computed from both.

A sentence that the paper's printed numbers contradict is reported as such; otherwise the runs and
the fidelity study decide by paired tests over seeds (how, says fedgrid/claims.py; each comparison
is in contrasts).
"""

import pandas as pd

from fedgrid import claims
from fedgrid.report.claims import caption, of_values, wide

__all__ = ["caption", "draw", "wide"]


def draw(runs: pd.DataFrame, scores: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per claim."""
    return of_values(claims.measured(runs, scores), runs, study, scale)
