"""Readings of the paper's equations: B, the extra root, the output Y, the side paths' layers."""

import pandas as pd

from fedgrid import ablations

wide, caption = ablations.wide, ablations.caption


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per variant and setting, beside FedSLS with its defaults."""
    return ablations.compared(runs, "fedsls", scale)
