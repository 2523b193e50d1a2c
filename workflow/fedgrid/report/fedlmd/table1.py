"""Distilling all classes, those that are not true, or the minority (FedLMD's table 1)."""

import pandas as pd

from fedgrid import comparisons
from fedgrid.comparisons import caption, wide

__all__ = ["caption", "draw", "wide"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per method and setting: percent over seeds, rounds saved, what is published."""
    return comparisons.draw(runs, study, scale)
