"""The speed-up of a method: how many times sooner it is as good as another's best (FedLMD, 5.3).

Let another method have its best accuracy first in round T', and the method be as good first in
round T. The speed-up is T' / T, and 1 if this is less than 1 or the method is never as good. So it
does not tell a slower method from an equal one. The natural logarithm of T' / T is below 0 for a
slower method. There a method that is not as good in any of its R rounds has log(T' / R), the least
that the measure can be. This is too good for it, because it needs more than R rounds.
"""

import numpy as np
import pandas as pd

from fedgrid.analysis.scores import CELL, SETTING


def compute_speedups(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return a row per run: by which factor it reaches the best accuracy of `over` sooner.

    The value is missing if there is no run of the other method, or either run diverged or has no
    accuracy.
    """
    reached = find_rounds(runs, over)
    ratio = (reached["goal_round"] / reached["reached_round"]).fillna(1).clip(lower=1)
    return reached[[*CELL, "seed"]].assign(speedup=ratio.where(reached["known"]))


def compute_log_speedups(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return a row per run: the natural logarithm of T' / T, or of T' / R; missing as above."""
    reached = find_rounds(runs, over)
    ratio = reached["goal_round"] / reached["reached_round"].fillna(reached["rounds"])
    return reached[[*CELL, "seed"]].assign(log_speedup=np.log(ratio.where(reached["known"])))


def find_rounds(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return a row per run: the rounds T and T', all rounds, and whether its speed-up is known."""
    keys = [*SETTING, "seed"]
    rounds = runs[runs["round"] > 0]
    other = rounds[rounds["method"] == over]
    best_first = other.sort_values(["accuracy", "round"], ascending=[False, True])
    goal = best_first.groupby(keys, as_index=False).agg(
        goal=("accuracy", "first"), goal_round=("round", "first"),
        other_diverged=("diverged", "any"),
    )  # fmt: skip
    every = rounds.merge(goal, on=keys, how="left")
    reached_round = every["round"].where(every["accuracy"] >= every["goal"])
    reached = every.assign(reached_round=reached_round).groupby([*CELL, "seed"], sort=False).agg(
        reached_round=("reached_round", "min"), goal_round=("goal_round", "first"),
        goal=("goal", "first"), rounds=("rounds", "first"),
        diverged=("diverged", "any"), other_diverged=("other_diverged", "first"),
        best=("accuracy", "max"),
    ).reset_index()  # fmt: skip
    has_accuracy = reached[["goal", "best"]].notna().all(axis=1)
    known = has_accuracy & ~reached["diverged"] & (reached["other_diverged"] == 0)
    return reached.assign(known=known)
