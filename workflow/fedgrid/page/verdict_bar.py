"""How many sentences have which verdict on real data: one stacked bar, for the page and README."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from markupsafe import escape
from matplotlib.figure import Figure

from fedgrid.page import marks
from fedgrid.page.sheets import Row
from fedgrid.runtime import files

WORDS = {  # of one sentence and of several, by the name of their mark; the order of the bar
    "holds": ("holds", "hold"),
    "direction": (
        "has the right direction, another size",
        "have the right direction, another size",
    ),
    "equal": ("is equal by design", "are equal by design"),
    "undecided": ("is undecided", "are undecided"),
    "fails": ("does not hold", "do not hold"),
}
COLOURS = {
    **{"holds": "#009e73", "direction": "#0072b2", "equal": "#7a7a7a", "undecided": "#b9bec6"},
    **{"fails": "#d55e00"},
}
WIDTH, EDGE, HIGH, LINE, TEXT = 440, 12, 26, 24, 15  # pixels
STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
text { fill: var(--ink); }
.card { fill: var(--card); stroke: var(--line); } .strong { font-weight: 600; }
"""


def say(name: str, count: float) -> str:
    """Return what so many sentences do, whose mark has this name."""
    return WORDS[name][count != 1]


def draw_bar(facts: Row) -> str:
    """Return the bar with its legend as an SVG file; `facts` is the row of `facts.csv`."""
    counts = {name: int(facts[f"real_{name}"]) for name in WORDS}
    total, there = sum(counts.values()), [name for name in WORDS if counts[name]]
    title = f"{total} sentences of papers, tested on real data"
    height = EDGE + 2 * LINE + HIGH + LINE * len(there)
    said = ", ".join(f"{counts[name]} {say(name, counts[name])}" for name in there)
    style = f"{marks.read_part('plot.css')}{STYLE}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(f"{title}: {said}")}</title>',
        f'<style>{style}</style><rect class="card" x=".5" y=".5" width="{WIDTH - 1}" '
        f'height="{height - 1}" rx="8"/>',
        f'<text class="strong" x="{EDGE}" y="{EDGE + 15}" font-size="{TEXT + 1}">{title}</text>',
        *draw_parts({name: counts[name] / total for name in there}),
        *(draw_entry(at, name, counts[name]) for at, name in enumerate(there)),
    ]
    return "\n".join([*parts, "</svg>\n"])


def draw_parts(shares: Mapping[str, float]) -> Iterator[str]:
    x = float(EDGE)
    for name, share in shares.items():
        width = share * (WIDTH - 2 * EDGE)
        place = f'x="{x:.1f}" y="{EDGE + LINE}" width="{max(width - 1.5, 1):.1f}" height="{HIGH}"'
        yield f'<rect {place} rx="2" fill="{COLOURS[name]}"/>'
        x += width


def draw_entry(at: int, name: str, count: int) -> str:
    y = EDGE + LINE + HIGH + LINE * (at + 1)
    mark = f'<g transform="translate({EDGE + 8} {y - 5})">{marks.MARKS[name].shape}</g>'
    words = f"{count} {say(name, count)}"
    return f'{mark}<text x="{EDGE + 26}" y="{y}" font-size="{TEXT}">{words}</text>'


def save_bar(facts: Row, folder: Path) -> list[Path]:
    """Save the bar as an SVG file, and as a PNG file for previews of links; return their paths."""
    picture, preview = folder / "bar.svg", folder / "bar.png"
    with files.replacing(picture) as temporary:
        temporary.write_text(draw_bar(facts), encoding="utf-8")
    with files.replacing(preview) as temporary:
        draw_preview(facts).savefig(temporary, format="png")
    return [picture, preview]


def draw_preview(facts: Row) -> Figure:
    """Draw the bar in the size that previews of links have."""
    figure, left = Figure(figsize=(12, 6.3), dpi=100), 0
    axes = figure.add_axes((0.05, 0.05, 0.9, 0.72))
    for name in WORDS:
        if count := int(facts[f"real_{name}"]):
            said = f"{count} {say(name, count)}"
            axes.barh(0, count, left=left, height=0.5, color=COLOURS[name], label=said)
            left += count
    axes.set(xlim=(0, max(left, 1)), ylim=(-1.6, 0.3))
    axes.axis("off")
    if left:
        axes.legend(loc="lower left", fontsize=24, frameon=False, borderaxespad=0)
    title = f"{left} sentences of papers on federated learning,\ntested on real data"
    figure.text(0.05, 0.96, title, size=30, weight="bold", va="top")
    return figure
