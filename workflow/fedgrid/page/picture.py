"""Draw one claim as an SVG file of its own: sentence, test, verdict, plot with placebos, legend."""

import re
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from markupsafe import Markup, escape

from fedgrid.analysis.symbols import write_symbols
from fedgrid.claim import find_claim
from fedgrid.page import bars, marks, write
from fedgrid.page.panels import Panel
from fedgrid.page.sections import AtScale, Claim, Paper
from fedgrid.page.sheets import MINUS, Sheet
from fedgrid.runtime import files
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid

WIDTH, EDGE = 800, 16
PLOT = 295, 355  # where the plot begins, and its width
LINE = 22  # pixels from line to line of the plot
STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.card { fill: var(--card); stroke: var(--line); }
.ink { fill: var(--ink); } .soft { fill: var(--soft); }
.strong { font-weight: 600; } .plot svg { overflow: visible; }
"""


def write_picture(out: Path, everything: Grid, results: Path, name: str, number: int) -> None:
    """Write the picture of a claim of a study, by the scale with the most comparisons."""
    find_claim(name, everything.studies[name].get("claims", []), number)
    paper = judge_study(name, everything, results)
    found = [each for claim in paper.claims for each in (claim, *claim.added)]
    (claim,) = [each for each in found if each.number == number]
    if not claim.main:
        raise UsageError(f"claim {number} of {name} has no runs to draw: choose another claim")
    with files.replacing(out) as temporary:
        temporary.write_text(draw_claim(claim, claim.main, paper.study["title"]), encoding="utf-8")


def judge_study(name: str, everything: Grid, results: Path) -> Paper:
    """Judge the claims of one study, without leaving its tables."""
    about = pd.DataFrame([write.describe_study(name, everything.studies[name])])
    with TemporaryDirectory() as folder:
        (row,) = Sheet(Path(folder) / "studies.csv", about).rows
        return write.read_paper(name, everything, results, Path(folder), row)


def draw_claim(claim: Claim, at: AtScale, title: str) -> str:
    page, panel = Writer(), at.panels[0]
    page.write(f"{title}, section {claim.row['section']}", 12.5, "soft")
    page.write(f"“{claim.row['says']}”", 17, "ink strong", 6)
    page.write(f"We test: {claim.row['we_test']}", 13, "ink", 4)
    page.write_verdict(at)
    page.write(at.row["caution"], 12.5, "soft", 2)
    page.draw_plot(panel)
    page.draw_legend(panel)
    return page.finish(f"{claim.row['says']}: {at.row['our_verdict']}")


class Writer:
    """Puts parts below each other into a picture."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.height = EDGE

    def write(self, text: str, size: float, look: str, space: int = 0) -> None:
        self.height += space
        for line in textwrap.wrap(text, int((WIDTH - 2 * EDGE) / (0.56 * size))):
            self.height += round(1.35 * size)
            self.put(EDGE, self.height, line, size, look)

    def put(self, x: float, y: float, text: str, size: float, look: str, end: str = "start"):
        start = f'<text x="{x}" y="{y}" font-size="{size}" class="{look}" text-anchor="{end}">'
        self.parts.append(f"{start}{escape(text)}</text>")

    def write_verdict(self, at: AtScale) -> None:
        self.height += 26
        mark = f'<g transform="translate({EDGE + 8} {self.height - 5})">{at.mark.shape}</g>'
        self.parts.append(mark)
        robust = f" ({at.row['robust']})" if at.row["robust"] else ""
        text = f"{at.row['our_verdict']}{robust}, {at.scale} scale"
        self.put(EDGE + 24, self.height, text, 14, "ink strong")

    def draw_plot(self, panel: Panel) -> None:
        self.height += 12
        for bar in panel.bars:
            for line in (bar, *bar.placebos):
                self.draw_line(panel, line)
        self.place(bars.draw_axis(panel.axis))
        self.height += 36
        middle = PLOT[0] + PLOT[1] / 2
        self.put(middle, self.height - 4, panel.unit, 12, "soft", "middle")

    def draw_line(self, panel: Panel, line: bars.Bar) -> None:
        own = line.column == "difference"
        label = line.row["label"] if own else f"placebo: {line.row['placebo_label']}"
        look, low = "ink" if own else "soft", self.height + 15
        self.put(EDGE + (0 if own else 12), low, write_symbols(label), 12, look)
        self.place(panel.draw(line, LINE))
        self.put(WIDTH - EDGE, low, write_numbers(line), 12, look, "end")
        self.height += LINE

    def place(self, drawn: Markup) -> None:
        """Place a part of the plot at the height reached, without the page's row that it shows."""
        x, width = PLOT
        alone = re.sub(r' data-(row|column)="[^"]*"', "", drawn)
        self.parts.append(f'<svg x="{x}" y="{self.height}" width="{width}">{alone}</svg>')

    def draw_legend(self, panel: Panel) -> None:
        texts = ["Dots: seeds, line: 95 % interval, grey: placebos, shaded: what the sentence says"]
        texts += ["hollow: one seed"] * (not all(bar.has_interval for bar in panel.bars))
        texts += ["diamond: printed by the paper"] * any(bar.row["printed"] for bar in panel.bars)
        self.write("; ".join(texts) + ".", 12, "soft", 6)

    def finish(self, said: str) -> str:
        height = self.height + EDGE
        style = f"{marks.read_part('plot.css')}{STYLE}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(said)}</title>'
            f'<style>{style}</style><rect class="card" x=".5" y=".5" width="{WIDTH - 1}" '
            f'height="{height - 1}" rx="8"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def write_numbers(line: bars.Bar) -> str:
    low, high = line.ends
    interval = f" [{low:.2f}, {high:.2f}]" if line.has_interval else ""
    return f"{line.mean:+.2f}{interval}".replace("-", MINUS)
