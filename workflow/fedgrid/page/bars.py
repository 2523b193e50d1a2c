"""A plot: its axis, and a line for each comparison and placebo, with mean, interval and seeds.

A line is drawn from a row of a CSV file. It names the row and the column of its mean, so that a
test can compare the picture with the file.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from fedgrid.page.sheets import MINUS, Row

MARGIN = 0.04  # of the span, at each end
REACH = 0.5  # how much of the span an interval may add at each end; the rest of it is cut off
MOST = 5  # ticks, about
LINE = 15  # pixels
ARROWS = {-1: "M3-3-1 0 3 3", 1: "M-3-3 1 0-3 3"}  # the interval goes on beyond the axis
DIAMOND = "M0-5.5 5.5 0 0 5.5-5.5 0z"


@dataclass(frozen=True)
class Axis:
    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value is, in percent of the width; values beyond an end are at the end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(100 * share, 2)

    def reaches(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def ticks(self) -> list[float]:
        """The values with a tick, which are multiples of 1, 2 or 5 times a power of ten."""
        found = MaxNLocator(MOST, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        return [float(value) for value in found if self.reaches(value)]


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


@dataclass
class Bar:
    """A line of a plot; `column` has its mean, and `label` names it."""

    row: Row
    label: Markup | str = ""
    column: str = "difference"
    of_seeds: list[Row] = field(default_factory=list)  # a row per seed
    seeds: list[float] = field(default_factory=list)
    placebos: list["Bar"] = field(default_factory=list)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; infinite or NaN if there is none, as of one seed."""
        before = "" if self.column == "difference" else f"{self.column}_"
        return self.row.read_number(f"{before}low"), self.row.read_number(f"{before}high")

    @property
    def has_interval(self) -> bool:
        return all(map(math.isfinite, self.ends))

    @property
    def mean(self) -> float:
        """The mean; infinite if runs diverged."""
        return self.row.read_number(self.column)

    @property
    def printed(self) -> float:
        """What the paper prints of this comparison; NaN if nothing."""
        return self.row.read_number("printed") if self.column == "difference" else math.nan


def fit_axis(bars: Iterable[Bar], allowed: tuple[float, float]) -> Axis:
    """Return an axis for all these lines, their placebos, and the bounds of a claim."""
    every = [each for bar in bars for each in (bar, *bar.placebos)]
    values = [value for bar in every for value in (bar.mean, bar.printed, *bar.seeds)]
    return make_axis([*allowed, *values], [end for bar in every for end in bar.ends])


def draw_line(bar: Bar, axis: Axis, allowed: tuple[float, float], height: int = LINE) -> Markup:
    """Draw a line as SVG as wide as there is room, above the shaded values that a claim allows."""
    low, high, zero = (axis.place(value) for value in (*allowed, 0.0))
    return Markup(
        f'<svg class="plot" height="{height}" aria-hidden="true">'
        f'<rect class="allowed" x="{low}%" width="{high - low:.2f}%" height="100%"/>'
        f'<line class="zero" x1="{zero}%" x2="{zero}%" y2="100%"/>{draw_bar(bar, axis)}</svg>'
    )


def draw_bar(bar: Bar, axis: Axis) -> str:
    """Draw the interval, the seeds, the mean and the printed value; hollow without an interval."""
    parts = []
    if math.isfinite(bar.mean):
        parts = [draw_interval(bar.ends, axis)] if bar.has_interval else []
        seeds = map(axis.place, filter(math.isfinite, bar.seeds))
        parts += [f'<circle class="seed" cx="{at}%" cy="50%" r="2.3"/>' for at in seeds]
        parts.append(draw_shape("mean", "M0-5V5", axis.place(bar.mean)))
    if math.isfinite(bar.printed):
        parts.append(draw_shape("printed", DIAMOND, axis.place(bar.printed)))
    kind = "effect" if bar.column == "difference" else "placebo"
    kind += "" if bar.has_interval else " hollow"
    return (
        f'<g class="{kind}" data-row="{bar.row.label}" data-column="{bar.column}">'
        f"{''.join(parts)}</g>"
    )


def draw_interval(ends: tuple[float, float], axis: Axis) -> str:
    """Draw an interval; an arrow at an end of the axis says that it goes on."""
    low, high = map(axis.place, ends)
    line = f'<line class="ends" x1="{low}%" x2="{high}%" y1="50%" y2="50%"/>'
    beyond = [side for side, end in zip((-1, 1), ends, strict=True) if not axis.reaches(end)]
    return line + "".join(
        draw_shape("arrow", ARROWS[side], 0.6 if side < 0 else 99.4) for side in beyond
    )


def draw_shape(name: str, path: str, at: float) -> str:
    """Draw a shape around a point, which is `at` percent of the width."""
    return f'<svg x="{at}%" y="50%" overflow="visible"><path class="{name}" d="{path}"/></svg>'


def draw_axis(axis: Axis) -> Markup:
    """Draw the ticks of an axis with their numbers, which stay inside the picture."""
    ticks = ""
    for value in axis.ticks:
        at, text = axis.place(value), f"{value:g}".replace("-", MINUS)
        anchor = "start" if at < 3 else "end" if at > 97 else "middle"
        ticks += f'<line x1="{at}%" x2="{at}%" y2="4"/>'
        ticks += f'<text x="{at}%" y="15" text-anchor="{anchor}">{text}</text>'
    return Markup(
        f'<svg class="axis" height="18" aria-hidden="true"><line x2="100%"/>{ticks}</svg>'
    )
