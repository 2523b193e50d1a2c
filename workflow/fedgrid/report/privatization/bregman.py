"""Both sides of lemma 3.1 and of proposition 3.4 for trained models, and the gap between them.

Li et al. (arXiv 2107.11954), sections 3.2 and 3.3. `analysis/mixtures.py` says what is compared.
The divergence of two distributions D and h is the sum of D log(D / h). In the proposition D has the
labels of a client's own test samples, so its divergence is the cross-entropy. In the lemma D has
the probabilities that a client's private model gives to test images, and h is between the mean of
the clients' D and the server's model.
"""

import pandas as pd

from fedgrid.analysis import mixtures, tables
from fedgrid.analysis.scores import CELL
from fedgrid.study.records import Study

POINT = ["statement", "beta"]


def draw(interpolation: pd.DataFrame, study: Study, scale: str) -> pd.DataFrame:
    """Return a row per setting, statement and weight: means over seeds, and the least gap."""
    sides = mixtures.compare_sides(interpolation)
    table = sides.groupby([*CELL, *POINT], sort=False).agg(
        left=("left", "mean"), right=("right", "mean"), gap=("gap", "mean"),
        least_gap=("gap", "min"), seeds=("seed", "nunique"), rounds=("rounds", "first"),
    ).reset_index()  # fmt: skip
    return table.assign(scale=scale).round(8)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    by = ["statement", "method", "dataset"]
    nearest = table.loc[table.groupby([*by, "protocol"], sort=False)["least_gap"].idxmin()]
    names = {"beta": "at weight", "left": "left", "right": "right", "least_gap": "least gap"}
    return nearest.set_index(by)[[*names]].rename(columns=names).map("{:.6g}".format)


def caption(table: pd.DataFrame) -> str:
    return (
        "Both sides of lemma 3.1 (the mean of the clients' models has the least mean divergence) "
        "and of proposition 3.4 (the loss of a mixture is at most the mixture of the losses), in "
        "nats, for clients of rounds after local training, at the weight of the shared model with "
        f"the least gap of any seed: {tables.describe_scope(table)}."
    )
