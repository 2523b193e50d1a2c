"""The marks of verdicts: shape and colour each identify a mark alone.

Colour-blind people can tell the colours apart; they are those of Okabe and Ito.
"""

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fedgrid.analysis import verdicts

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Mark:
    """A mark: its words, and its shape as SVG in a square from -8 to 8."""

    name: str
    words: str
    shape: str


STROKE = 'fill="none" stroke="{}" stroke-width="{}" stroke-linecap="round"'
WHITE = STROKE.format("#fff", 2)
DISC = '<circle r="7" fill="{}"/>'
SQUARE = '<rect x="-6.5" y="-6.5" width="13" height="13" rx="2" fill="{}"/>'
DIAMOND = '<path d="M0-7.5 7.5 0 0 7.5-7.5 0z" {}/>'
GREY, PURPLE = "#7a7a7a", "#b2488f"
EVERY = (
    Mark(
        *("holds", verdicts.HOLDS),
        DISC.format("#009e73") + f'<path d="M-3.5 .3-1 3 3.8-2.8" {WHITE}/>',
    ),
    Mark(
        *("direction", "right direction, another size"),
        SQUARE.format("#0072b2") + f'<path d="M-3.4 3.4 3 -3M-1.6-3.4H3.4V1.6" {WHITE}/>',
    ),
    Mark(
        *("fails", verdicts.FAILS),
        f'<path d="M-5-5 5 5M5-5-5 5" {STROKE.format("#d55e00", 3.2)}/>',
    ),
    Mark(
        *("undecided", verdicts.UNDECIDED),
        f'<circle r="5.8" {STROKE.format(GREY, 1.8)}/><path d="M-2.4 0H2.4" '
        f"{STROKE.format(GREY, 1.8)}/>",
    ),
    Mark("equal", verdicts.EQUAL, f'<path d="M-6-3H6M-6 3H6" {STROKE.format(GREY, 2.6)}/>'),
    Mark(
        *("inconsistent", verdicts.CONTRADICTED),
        DIAMOND.format(f'fill="{PURPLE}"') + f'<path d="M-2.6-1.4H2.6M-2.6 1.6H2.6" {WHITE}/>',
    ),
    Mark(
        *("narrowly", verdicts.NARROWLY),
        DIAMOND.format(STROKE.format(PURPLE, 2)) + f'<circle r="1.6" fill="{PURPLE}"/>',
    ),
    Mark("none", "not tested, or not printed", '<circle r="2" fill="#999"/>'),
)
MARKS = {mark.name: mark for mark in EVERY}
BY_VERDICT = {mark.words: mark for mark in EVERY} | {  # most marks have the words of a verdict
    **dict.fromkeys((verdicts.SMALLER, verdicts.LARGER), MARKS["direction"]),
    **{verdicts.CONSISTENT: MARKS["holds"], verdicts.PARTLY: MARKS["none"], "": MARKS["none"]},
}


def find_mark(verdict: str) -> Mark:
    """Return the mark of our verdict, or of a verdict by the paper's own numbers."""
    return BY_VERDICT[verdict]


def draw_symbols() -> Markup:
    """Draw the shapes of all marks, invisibly; `draw_mark` refers to them."""
    shapes = (
        f'<symbol id="mark-{mark.name}" viewBox="-9 -9 18 18">{mark.shape}</symbol>'
        for mark in MARKS.values()
    )
    return Markup(f'<svg width="0" height="0" aria-hidden="true">{"".join(shapes)}</svg>')


def draw_mark(mark: Mark, said: str = "") -> Markup:
    """Draw a mark; screen readers say `said`, and pointing at the mark shows it."""
    return Markup(
        '<svg class="mark" viewBox="0 0 18 18" role="img"><title>{}</title>'
        '<use href="#mark-{}" width="18" height="18"/></svg>'
    ).format(said or mark.words, mark.name)


def read_part(name: str) -> Markup:
    """Return a file of this folder that stands in the page as it is."""
    return Markup((HERE / name).read_text(encoding="utf-8"))
