"""The horizontal axis of a plot: where a value is, in percent of the width, and its ticks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

MARGIN = 0.04  # of the span, at each end
REACH = 0.5  # how much of the span an interval may add at each end; the rest of it is cut off
MOST = 5  # ticks, about


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value is, in percent of the width; values beyond an end are at the end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(100 * share, 2)

    def reaches(self, value: float) -> bool:
        """Whether the axis shows a value."""
        return self.low <= value <= self.high

    @property
    def ticks(self) -> list[float]:
        """The values with a tick, which are multiples of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / MOST
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * of for of in (1, 2, 5, 10) if power * of >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(step * at, 10) for at in range(first, last + 1)]


def make_axis(values: Iterable[float], ends: Iterable[float]) -> Axis:
    """Return an axis with zero and all finite `values`, and the near part of intervals' `ends`."""
    shown = [0.0, *filter(math.isfinite, values)]
    low, high = min(shown), max(shown)
    span = (high - low) or 1
    far = [*filter(math.isfinite, ends)]
    low = max(min([low, *far]), low - REACH * span)
    high = min(max([high, *far]), high + REACH * span)
    margin = MARGIN * ((high - low) or 1)
    return Axis(low - margin, high + margin)
