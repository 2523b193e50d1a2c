"""Mixtures of clients' shared and private models: what `fedgrid interpolation` has measured.

Li et al. (arXiv 2107.11954), sections 3.2, 3.3 and 5.5. A row with an alpha mixes the features of
both encoders. A row without one mixes whole models: beta is the weight of the shared one.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis.scores import RUN, strict_mean
from fedgrid.runtime.names import known

CLIENTS = ("cohort", "all")  # who is evaluated: as `evaluate_clients` of a protocol
LEMMA, PROPOSITION = "lemma 3.1", "proposition 3.4"
ROUNDING = 1e-9  # of sums in double precision


def select_features(interpolation: pd.DataFrame, evaluate_clients: str = "cohort") -> pd.DataFrame:
    """Return the rows with mixed features, of the clients of rounds or of all clients."""
    known("evaluate_clients", evaluate_clients, CLIENTS)
    of_these = interpolation["evaluate_clients"] == evaluate_clients
    return interpolation[of_these & interpolation["alpha"].notna()]


def compare_sides(interpolation: pd.DataFrame) -> pd.DataFrame:
    """Return both sides of lemma 3.1 and of proposition 3.4, by run and weight of the shared model.

    The divergence is Kullback and Leibler's, whose F is the negative entropy. `left` is to be at
    most `right`; `gap` is their difference. Of the lemma, `left` is the mean divergence from the
    mean of the clients' models, and `right` that from another model. Of the proposition, `left` is
    the loss of the mixture, and `right` the bound.
    """
    cohort = interpolation["evaluate_clients"] == "cohort"
    whole = interpolation[cohort & interpolation["alpha"].isna()].set_index(RUN)
    private, shared = (whole[whole["beta"] == end].reindex(whole.index) for end in (0, 1))
    weight = whole["beta"]
    bound = weight * shared["loss"] + (1 - weight) * private["loss"]
    sides = {
        LEMMA: whole.assign(left=private["divergence"], right=whole["divergence"]),
        PROPOSITION: whole.assign(left=whole["loss"], right=bound),
    }
    parts = [table.assign(statement=name) for name, table in sides.items()]
    both = pd.concat(part[part["beta"] > 0] for part in parts).reset_index()
    both = both[(both["beta"] < 1) | (both["statement"] == LEMMA)]
    return both.assign(gap=both["right"] - both["left"])


def count_kept(interpolation: pd.DataFrame, statement: str) -> pd.Series:
    """Return by run the share of weights at which a statement is true.

    The lemma says that the minimizer is unique, so its gap must be there in double precision. A run
    has no share if a side is no finite number, because the run diverged.
    """
    sides = compare_sides(interpolation)
    sides = sides[sides["statement"] == statement]
    least = ROUNDING if statement == LEMMA else -ROUNDING
    true = (sides["gap"] >= least).astype(float).where(np.isfinite(sides["gap"]))
    return true.groupby([sides[name] for name in RUN]).agg(strict_mean).dropna()
