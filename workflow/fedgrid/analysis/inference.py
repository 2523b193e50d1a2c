"""Test differences between methods over the seeds of a cell, and correct for many methods.

All methods have the same seeds, and runs of a seed share partition, cohorts and initial weights. In
the two-way model the score of a run is a part of its method, plus a part of its seed, plus a rest
with one deviation for all methods (randomised complete blocks; Montgomery, Design and Analysis of
Experiments, chapter 4). With M methods and S seeds the rests give this deviation with (M - 1)(S -
1) degrees of freedom, where a pair of methods alone has S - 1. So a few seeds of many methods say
more, if their deviations are alike. With two methods it is Student's paired t-test.

Holm's correction (Scandinavian Journal of Statistics 1979) is for the number of tests: the chance
that any difference is found where there is none is at most the level.
"""

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05  # of a test, and of the intervals that are shown: they cover 95 %
DECIMALS = 10  # of scores: smaller rests are errors of the subtraction


def find_half(std, seeds, level: float = LEVEL):
    """Return half of Student's interval of a mean, for one number of seeds or many; NaN for one."""
    return stats.t.ppf(1 - level / 2, seeds - 1) * std / np.sqrt(seeds)


def compare_in_blocks(scores: pd.DataFrame, over: str) -> pd.Series:
    """Return the two-sided p that a method's mean is that of `over`, by method, in the model.

    `scores` has a row for each of S seeds and a column for each method. Methods with a score that
    is missing or not finite are left out. The result is empty without `over`, with one seed, or if
    the rests are 0, because the deviation is not known then.
    """
    whole = scores.loc[:, np.isfinite(scores).all()]
    means, (seeds, methods) = whole.mean(), whole.shape
    rests = whole.sub(whole.mean(axis=1), axis=0) - means + means.mean()
    degrees = (methods - 1) * (seeds - 1)
    if over not in whole or degrees < 1 or not rests.round(DECIMALS).any(axis=None):
        return pd.Series(dtype=float)
    variance = (rests**2).to_numpy().sum() / degrees
    t = (means.drop(over) - means[over]) / np.sqrt(2 * variance / seeds)
    return pd.Series(2 * stats.t.sf(t.abs(), degrees), t.index)


def correct_by_holm(p: pd.Series) -> pd.Series:
    """Return p-values corrected by Holm for their number; missing ones do not count."""
    ordered = p.dropna().sort_values()
    factors = np.arange(len(ordered), 0, -1)
    return (ordered * factors).cummax().clip(upper=1).reindex(p.index)
