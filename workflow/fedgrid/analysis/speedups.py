"""The speed-up of a method: how many times sooner it is as good as another's best (FedLMD, 5.3)."""

import pandas as pd

from fedgrid.analysis.scores import CELL, SETTING


def compute_speedups(runs: pd.DataFrame, over: str) -> pd.DataFrame:
    """Return a row per run: by which factor it reaches the best accuracy of `over` sooner.

    The value is missing if there is no run of the other method, or either run diverged or has no
    accuracy.
    """
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
        goal=("goal", "first"),
        diverged=("diverged", "any"), other_diverged=("other_diverged", "first"),
        best=("accuracy", "max"),
    ).reset_index()  # fmt: skip
    ratio = (reached["goal_round"] / reached["reached_round"]).fillna(1).clip(lower=1)
    has_accuracy = reached[["goal", "best"]].notna().all(axis=1)
    known = has_accuracy & ~reached["diverged"] & (reached["other_diverged"] == 0)
    return reached[[*CELL, "seed"]].assign(speedup=ratio.where(known))
