"""The lines of a plot: a comparison or its placebo, with mean, interval, seeds and printed value.

A line is drawn from a row of a CSV file. It names the row and the column of its mean, so that a
test can compare the picture with the file.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from markupsafe import Markup

from fedgrid.page.axes import Axis, make_axis
from fedgrid.page.sheets import MINUS, Row

LANE, THIN = 15, 8  # pixels of a comparison, and of a placebo
ARROWS = {-1: "M3-3-1 0 3 3", 1: "M-3-3 1 0-3 3"}  # the interval goes on beyond the axis
DIAMOND = "M0-5.5 5.5 0 0 5.5-5.5 0z"


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
        """The ends of the interval; infinite or NaN if there is none."""
        low, high = self.end_columns
        return self.row.read_number(low), self.row.read_number(high)

    @property
    def end_columns(self) -> tuple[str, str]:
        """The columns with the ends of the interval."""
        before = "" if self.column == "difference" else f"{self.column}_"
        return f"{before}low", f"{before}high"

    @property
    def mean(self) -> float:
        """The mean; infinite if runs diverged."""
        return self.row.read_number(self.column)

    @property
    def printed(self) -> float:
        """What the paper prints of this comparison; NaN if nothing."""
        return self.row.read_number("printed") if self.column == "difference" else math.nan

    @property
    def shown(self) -> list[float]:
        """All values but the interval, which the axis must have."""
        return [self.mean, self.printed, *self.seeds]


def fit_axis(bars: Iterable[Bar], allowed: tuple[float, float]) -> Axis:
    """Return an axis for all these lines, their placebos, and the bounds of a claim."""
    every = [each for bar in bars for each in (bar, *bar.placebos)]
    values = [*allowed, *(value for bar in every for value in bar.shown)]
    return make_axis(values, [end for bar in every for end in bar.ends])


def draw_lanes(
    lanes: list[Bar], axis: Axis, allowed: tuple[float, float], first: int = LANE
) -> Markup:
    """Draw lines below each other as SVG as wide as there is room; all but the first are thin."""
    height, parts = 0, [draw_ground(axis, allowed)]
    for bar in lanes:
        tall = THIN if height else first
        parts.append(f'<svg y="{height}" height="{tall}">{draw_bar(bar, axis)}</svg>')
        height += tall
    return Markup(f'<svg class="plot" height="{height}" aria-hidden="true">{"".join(parts)}</svg>')


def draw_ground(axis: Axis, allowed: tuple[float, float]) -> str:
    """Shade what a claim allows, and draw the line at zero."""
    low, high, zero = (axis.place(value) for value in (*allowed, 0.0))
    return (
        f'<rect class="allowed" x="{low}%" width="{high - low:.2f}%" height="100%"/>'
        f'<line class="zero" x1="{zero}%" x2="{zero}%" y2="100%"/>'
    )


def draw_bar(bar: Bar, axis: Axis) -> str:
    """Draw the interval, the seeds, the mean and the printed value of one line."""
    parts = []
    if math.isfinite(bar.mean):
        parts = [draw_interval(bar.ends, axis)] if not math.isnan(bar.ends[0]) else []
        seeds = map(axis.place, filter(math.isfinite, bar.seeds))
        parts += [f'<circle class="seed" cx="{at}%" cy="50%" r="2.3"/>' for at in seeds]
        parts.append(draw_shape("mean", "M0-5V5", axis.place(bar.mean)))
    if math.isfinite(bar.printed):
        parts.append(draw_shape("printed", DIAMOND, axis.place(bar.printed)))
    kind = "effect" if bar.column == "difference" else "placebo"
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
    """Draw the ticks of an axis with their numbers."""
    ticks = "".join(draw_tick(value, axis.place(value)) for value in axis.ticks)
    return Markup(
        f'<svg class="axis" height="18" aria-hidden="true"><line x2="100%"/>{ticks}</svg>'
    )


def draw_tick(value: float, at: float) -> str:
    """Draw a tick and its number, which stays inside the picture."""
    anchor = "start" if at < 3 else "end" if at > 97 else "middle"
    text = f"{value:g}".replace("-", MINUS)
    return (
        f'<line x1="{at}%" x2="{at}%" y2="4"/>'
        f'<text x="{at}%" y="15" text-anchor="{anchor}">{text}</text>'
    )
