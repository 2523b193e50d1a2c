"""Methods on three networks: the CNN, MobileNet and ResNet-8 (FedLMD's table 4)."""

import pandas as pd

from fedgrid import comparisons
from fedgrid.comparisons import caption, wide

__all__ = ["caption", "draw", "wide"]


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per method and setting: percent over seeds, rounds saved, what is published."""
    return comparisons.draw(runs, study, scale)
