"""The plots of a claim at a scale: for each metric, all comparisons with their placebos."""

from dataclasses import dataclass, replace

from markupsafe import Markup

from fedgrid import claim as stated
from fedgrid.analysis import measures, verdicts
from fedgrid.page import bars as drawn
from fedgrid.page import marks
from fedgrid.page.bars import LINE, Axis, Bar
from fedgrid.page.sheets import Row

AT_MOST = 3  # comparisons in the picture of a headline


@dataclass
class Panel:
    """All comparisons of a claim with one metric, on an axis that all panels share."""

    metric: str
    verdict: str
    bars: list[Bar]
    axis: Axis
    allowed: tuple[float, float]
    unit: str

    @property
    def mark(self) -> marks.Mark:
        return marks.find_mark(self.verdict)

    @property
    def ticks(self) -> Markup:
        return drawn.draw_axis(self.axis)

    def draw(self, bar: Bar, height: int = LINE) -> Markup:
        """Draw a line without its placebos."""
        return drawn.draw_line(bar, self.axis, self.allowed, height)

    def shorten(self) -> "Panel":
        """Return the panel for a headline: the first comparisons, of those with a placebo."""
        chosen = ([bar for bar in self.bars if bar.placebos] or self.bars)[:AT_MOST]
        return replace(self, bars=chosen, axis=drawn.fit_axis(chosen, self.allowed))


def make_panels(
    claim: stated.Claim,
    row: Row,
    metrics: list[Row],
    contrasts: list[Row],
    seeds: list[Row],
    controls: list[Row],
) -> list[Panel]:
    """Return a panel per metric; the first, of the paper's own, has seeds and placebos."""
    verdict_by = {of["metric"]: of["our_verdict"] for of in metrics}
    by_metric: dict[str, list[Bar]] = {}
    for contrast in contrasts:
        first = contrast["metric"] == contrasts[0]["metric"]
        bar = make_bar(contrast, seeds, controls) if first else make_bar(contrast, [], [])
        by_metric.setdefault(contrast["metric"], []).append(bar)
    allowed, unit = stated.find_bounds(claim), write_unit(claim)
    axis = drawn.fit_axis([bar for of in by_metric.values() for bar in of], allowed)
    return [
        Panel(name, verdict_by.get(name, row["our_verdict"]), of, axis, allowed, unit)
        for name, of in by_metric.items()
    ]


def make_bar(contrast: Row, seeds: list[Row], controls: list[Row]) -> Bar:
    names = verdicts.COMPARED
    rows = [seed for seed in seeds if all(seed[name] == contrast[name] for name in names)]
    values = [seed.read_number("difference") for seed in rows]
    bar = Bar(contrast, contrast.mark_text("label"), "difference", rows, values)
    for control in controls:
        same = all(control[name] == contrast[name] for name in stated.SETTING)
        if same and contrast["over"] == control["plain"] and is_about(control, contrast):
            texts = filter(None, control["placebo_gain_by_seed"].split(", "))  # 0: -0.3, 1: +0.1
            by_seed = [float(text.partition(": ")[2]) for text in texts]
            label = control.mark_text("placebo_label")
            bar.placebos.append(Bar(control, label, "placebo_gain", seeds=by_seed))
    return bar


def is_about(control: Row, contrast: Row) -> bool:
    """Whether a control has the methods, the measure and the setting of a comparison."""
    return (
        control["method"] == contrast["method"]
        and contrast["over"] in (control["plain"], control["placebo"])
        and control["of"] == measures.SCORED.get(contrast["measure"])
        and all(control[name] in contrast[name].split(" to ") for name in stated.SETTING)
    )


def write_unit(claim: stated.Claim) -> str:
    names = stated.measures(claim)
    points = {*names} <= {*stated.IN_POINTS}
    named = ("coefficient" if stated.is_coefficient(name) else name for name in names)
    of = " and ".join(dict.fromkeys(named))
    what = "difference in " if "over" in claim else "change of " if "along" in claim else ""
    return f"{what}{of}, percentage points" if points else f"{what}{of}"
