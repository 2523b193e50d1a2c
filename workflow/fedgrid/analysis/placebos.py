"""Decide by a method, its placebo and the plain method whether a gain is due to the mechanism.

Three differences between runs of the same seed have 95 % intervals (Student's, of the mean over
seeds): method minus plain, placebo minus plain, and method minus placebo. MEANINGS says what
they decide.

Above 0 is an interval that lies above 0 as a whole; one seed has no interval, and decides nothing.
For a metric that is better if it is lower, above and below are exchanged. Each interval stands for
itself, without a correction for their number: of many rows, some are on the wrong side by chance.
"""

from collections.abc import Mapping

import numpy as np

MECHANISM, PARTLY, NO_GAIN = "the mechanism", "partly the mechanism", "no gain"
NO_CONTROL = "no control"
PLACEBO, MORE = "the placebo gains, too", "the placebo gains more"
DIVERGED, UNDECIDED = "a run diverged", "undecided"
MEANINGS = {
    MECHANISM: "the method is better than the plain method and than its placebo, and the placebo "
    "is not shown to differ from the plain method",
    NO_CONTROL: "the method is better than the plain method and than its placebo, but the placebo "
    "is worse than the plain method, so that it does not show what the mechanism gains",
    PARTLY: "the method is better than its placebo, and both are better than the plain method",
    PLACEBO: "both are better than the plain method, and which of the two is better is open",
    MORE: "both are better than the plain method, and the placebo is better than the method",
    NO_GAIN: "the whole interval says that the method is not better than the plain method",
    DIVERGED: "a difference has no mean, because a run diverged",
    UNDECIDED: "anything else",
}
BETTER = "One method is better than another if the whole interval of their difference is on the "
BETTER += "better side of zero. The intervals are not corrected for their number."
DIFFERENCES = {  # by column: the roles of the two runs
    "gain": ("method", "plain"),
    "placebo_gain": ("placebo", "plain"),
    "beyond_placebo": ("method", "placebo"),
}


def decide_verdict(facts: Mapping, lower: bool) -> str:
    """Return the verdict by the three differences and their intervals, `gain_low` and so on.

    With `lower`, a lower metric is better.
    """
    gain, placebo_gain, beyond = (orient_interval(facts, name, lower) for name in DIFFERENCES)
    if gain[1] <= 0:
        return NO_GAIN
    if np.isnan([facts[name] for name in DIFFERENCES]).any():
        return DIVERGED
    if gain[0] > 0 and beyond[0] > 0:
        return PARTLY if placebo_gain[0] > 0 else NO_CONTROL if placebo_gain[1] < 0 else MECHANISM
    if gain[0] > 0 and placebo_gain[0] > 0:
        return MORE if beyond[1] < 0 else PLACEBO
    return UNDECIDED


def orient_interval(facts: Mapping, name: str, lower: bool) -> tuple[float, float]:
    """Return the interval of a difference, turned so that a positive number is better."""
    low, high = facts[f"{name}_low"], facts[f"{name}_high"]
    return (-high, -low) if lower else (low, high)
