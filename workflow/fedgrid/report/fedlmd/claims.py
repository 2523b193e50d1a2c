"""FedLMD's checkable sentences: its own evidence, ours, and a verdict computed from both.

They are of accuracies, speed-ups and how much accuracies move from round to round; what its text
says of figure 2 is to be seen there. A sentence that the paper's printed numbers contradict is
reported as such; otherwise the runs decide by paired tests over seeds (how, says
fedgrid/claims.py).
"""

import pandas as pd

from fedgrid import claims
from fedgrid.report.claims import caption, of_values, wide

__all__ = ["caption", "draw", "measured", "wide"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per claim."""
    return of_values(measured(runs), runs, study, scale)


def measured(runs: pd.DataFrame) -> pd.DataFrame:
    """All that the claims can speak of."""
    measures = claims.accuracies, claims.speedups, claims.steadiness
    return pd.concat([measure(runs) for measure in measures])
