"""The marks of verdicts: shape and colour each identify a mark alone.

Colour-blind people can tell the colours apart; they are those of Okabe and Ito.
"""

from dataclasses import dataclass

from markupsafe import Markup

from fedgrid.analysis import verdicts

SILENT, NO_RUNS = "", "no runs"


@dataclass(frozen=True)
class Mark:
    """A mark: its words, and its shape as SVG in a square from -8 to 8."""

    name: str
    words: str
    shape: str


STROKE = 'fill="none" stroke="{}" stroke-width="{}" stroke-linecap="round"'
WHITE = STROKE.format("#fff", 2)
DISC, DIAMOND = '<circle r="7" fill="{}"/>', '<path d="M0-8 8 0 0 8-8 0z" fill="{}"/>'
MARKS = {
    mark.name: mark
    for mark in (
        Mark(
            "holds",
            "holds",
            DISC.format("#009e73") + f'<path d="M-3.5 .3-1 3 3.8-2.8" {WHITE}/>',
        ),
        Mark(
            "fails",
            "does not hold",
            f'<path d="M-5-5 5 5M5-5-5 5" {STROKE.format("#d55e00", 3.2)}/>',
        ),
        Mark(
            "undecided",
            "undecided",
            f'<circle r="5.6" {STROKE.format("#7a7a7a", 1.8)}/>'
            f'<path d="M-2.4 0H2.4" {STROKE.format("#7a7a7a", 1.8)}/>',
        ),
        Mark(
            "contradicted",
            verdicts.CONTRADICTED,
            DIAMOND.format("#b2488f") + f'<path d="M0-3.6V.6M0 3.4v.2" {WHITE}/>',
        ),
        Mark(
            "none",
            "no runs, or the paper does not print the numbers",
            '<circle r="1.6" fill="#bbb"/>',
        ),
    )
}
CHANGES = "the verdict changes with another metric"
BY_VERDICT = {
    **{verdicts.HOLDS: "holds", verdicts.FAILS: "fails", verdicts.UNDECIDED: "undecided"},
    **{verdicts.CONSISTENT: "holds", verdicts.CONTRADICTED: "contradicted"},
    **{verdicts.PARTLY: "none", SILENT: "none", NO_RUNS: "none"},
    **{verdicts.NARROWLY: "contradicted", **dict.fromkeys(verdicts.SOFTENED, "fails")},
}


def find_mark(verdict: str) -> Mark:
    """Return the mark of our verdict, or of a verdict by the paper's own numbers."""
    return MARKS[BY_VERDICT[verdict]]


def draw_symbols() -> Markup:
    """Draw the shapes of all marks, invisibly; `draw_mark` refers to them."""
    shapes = (
        f'<symbol id="mark-{mark.name}" viewBox="-9 -9 18 18">{mark.shape}</symbol>'
        for mark in MARKS.values()
    )
    return Markup(f'<svg width="0" height="0" aria-hidden="true">{"".join(shapes)}</svg>')


def draw_mark(mark: Mark, said: str = "", changes: bool = False) -> Markup:
    """Draw a mark; screen readers say `said`, and pointing at the mark shows it."""
    dot = Markup('<circle cx="15.5" cy="3" r="2.5" class="changes"/>') if changes else ""
    said = (said or mark.words) + f"; {CHANGES}" * changes
    return Markup(
        '<svg class="mark" viewBox="0 0 18 18" role="img"><title>{}</title>'
        '<use href="#mark-{}" width="18" height="18"/>{}</svg>'
    ).format(said, mark.name, dot)
