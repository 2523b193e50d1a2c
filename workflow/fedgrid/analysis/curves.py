"""Compare accuracy curves that are stored with a study, such as ours and those of a paper's code.

The study's `curves` names one table of accuracies by round for each origin. Only those cells
(method, dataset, partition, protocol) are compared that all tables have.
"""

import pandas as pd

from fedgrid.analysis.published import join_published
from fedgrid.analysis.scores import CELL, moving_average
from fedgrid.study.records import Study

BLOCK = 20  # rounds whose mean accuracies are compared
CURVE = ["curve", *CELL, "seed"]
NUMBERS = ["seed", "round", "accuracy"]


def read_curves(study: Study) -> pd.DataFrame:
    """Return a row per evaluation: accuracy and moving average in percent, published percent.

    The column `curve` has the name of the origin. Cells that an origin lacks are left out, and so
    are rounds without an accuracy.
    """
    rows = [
        row | {"curve": name}
        for name, evaluations in study.get("curves", {}).items()
        for row in evaluations
    ]
    table = pd.DataFrame(rows, columns=[*CURVE, "round", "accuracy"])
    table[NUMBERS] = table[NUMBERS].apply(pd.to_numeric)
    table = table.dropna(subset="accuracy")
    origins = table.groupby(CELL)["curve"].transform("nunique")
    table = sort_curves(table[origins == len(study.get("curves", {}))])
    averages = table.groupby(CURVE)["accuracy"].transform(moving_average)
    table = join_published(table.assign(average=averages), study)
    return table.drop(columns=["published_std", "published_speedup"])


def sort_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Return the evaluations by curve, in the order of the study's files, and by round."""
    curve = table.groupby(CURVE, sort=False).ngroup()
    return table.assign(at=curve).sort_values(["at", "round"], kind="stable").drop(columns="at")


def summarise_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return a row per curve: its best accuracy and that round, its last accuracy and average."""
    best = curves.loc[curves.groupby(CURVE)["accuracy"].idxmax(), [*CURVE, "round", "accuracy"]]
    last = curves.groupby(CURVE, sort=False).agg(
        last=("accuracy", "last"), average=("average", "last"), published=("published", "first")
    )
    best = best.rename(columns={"accuracy": "best", "round": "best_round"})
    return last.reset_index().merge(best, on=CURVE)


def compare_blocks(curves: pd.DataFrame) -> pd.DataFrame:
    """Average the first origin's accuracy minus each other's over blocks of BLOCK rounds.

    Only rounds that both origins have count, without round 0; the column `block` counts from 0.
    """
    keys = [*CELL, "round"]
    means = curves.groupby(["curve", *keys], sort=False)["accuracy"].mean().reset_index()
    ours = means["curve"].isin(means["curve"].head(1))
    pairs = means[ours].merge(means[~ours], on=keys, suffixes=("", "_other"))
    pairs = pairs[pairs["round"] > 0]
    gap = pairs["accuracy"] - pairs["accuracy_other"]
    block = (pairs["round"].astype(int) - 1) // BLOCK
    grouped = pairs.assign(difference=gap, block=block).groupby(["curve_other", *CELL, "block"])
    return grouped["difference"].mean().reset_index()
