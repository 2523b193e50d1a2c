"""Tukey's box: quartiles, whiskers of at most 1.5 times the box's height, and outliers beyond them.

FedSLS's section 4.3 compares similarities by boxes, whiskers and outliers.
"""

from typing import Any, NamedTuple

import numpy as np

REACH = 1.5  # of whiskers, in heights of the box


class Box(NamedTuple):
    """The box of some values."""

    low: float  # quartiles
    median: float
    high: float
    inside: Any  # the values within reach of the whiskers, as an array
    outliers: Any


def find_box(values) -> Box:
    """Find the box of some values."""
    values = np.asarray(values)
    low, median, high = np.percentile(values, [25, 50, 75])
    reach = REACH * (high - low)
    near = (values >= low - reach) & (values <= high + reach)
    return Box(low, median, high, values[near], values[~near])


def measure_whiskers(values) -> float:
    """Return the distance from the end of one whisker to the end of the other."""
    return float(np.ptp(find_box(values).inside))


def count_outliers(values) -> float:
    """Return the share of outliers among the values, in percent."""
    return 100 * len(find_box(values).outliers) / len(values)


def count_low_outliers(values) -> float:
    """Return the share of the outliers that lie below the box, in percent; NaN without outliers."""
    box = find_box(values)
    return 100 * float(np.mean(box.outliers < box.low)) if len(box.outliers) else np.nan


def measure_outliers(values) -> float:
    """Return the distance from the lowest outlier to the highest; 0 without outliers."""
    outliers = find_box(values).outliers
    return float(np.ptp(outliers)) if len(outliers) else 0.0
