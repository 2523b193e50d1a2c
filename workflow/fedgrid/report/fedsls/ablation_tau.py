"""FedSLS with other decays tau of the layers' weights tau^(l-1); 0.5 is the paper's."""

import pandas as pd

from fedgrid import ablations

wide, caption = ablations.wide, ablations.caption


def draw(runs: pd.DataFrame, study: dict, scale: str) -> pd.DataFrame:
    """A row per variant and setting, beside FedSLS with its defaults."""
    return ablations.compared(runs, "fedsls", scale)
