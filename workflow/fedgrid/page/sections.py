"""Arrange what readers see of a study: its claims, each with its evidence at every scale."""

import math
import re
import textwrap
from dataclasses import dataclass, field

from fedgrid.analysis import measures
from fedgrid.claim import Claim as Stated
from fedgrid.page import marks, strips
from fedgrid.page.sheets import Row, Sheet
from fedgrid.study.records import Study

MOST = 26  # claims in a block of the picture
LONGEST = 48  # characters of a sentence in the picture
SETTING = ("protocol", "dataset", "partition")
Sheets = dict[str, Sheet]


@dataclass
class AtScale:
    """The evidence on a claim at one scale, as rows of sheets; `row` is None without runs."""

    scale: str
    row: Row | None = None
    strip: str = ""
    seeds: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)
    deciding: list[Row] = field(default_factory=list)  # of the controls
    controls: list[Row] = field(default_factory=list)

    @property
    def mark(self) -> marks.Mark:
        """The mark of the verdict."""
        return marks.find_mark(self.row["our_verdict"] if self.row else marks.NO_RUNS)

    @property
    def numbers_change(self) -> bool:
        """Whether another metric gives other numbers."""
        numbers = ("our_verdict", "difference", "low")
        return len({tuple(row[name] for name in numbers) for row in self.metrics}) > 1

    @property
    def verdict_changes(self) -> bool:
        """Whether another metric gives another verdict."""
        return len({row["our_verdict"] for row in self.metrics}) > 1


@dataclass
class Claim:
    """A claim: its row of the sheet `printed`, rows of `granularity`, evidence of every scale."""

    anchor: str
    row: Row
    granularity: list[Row]
    scales: list[AtScale]

    @property
    def mark(self) -> marks.Mark:
        """The mark of the verdict by the paper's own numbers."""
        return marks.find_mark(self.row["published_verdict"])

    @property
    def short(self) -> str:
        """The claim's sentence, shortened for the picture; a note in brackets at its end stays."""
        says = self.row["says"]
        note = re.search(r" ?\[[^]]*]$", says) if len(says) > LONGEST else None
        end = note[0] if note else ""
        room = LONGEST - len(end)
        return textwrap.shorten(says.removesuffix(end), room, placeholder="…") + end

    @property
    def with_runs(self) -> list[AtScale]:
        """The scales at which there are runs."""
        return [evidence for evidence in self.scales if evidence.row]


@dataclass
class Paper:
    """A study: its claims, and the sheets of itself and of every scale."""

    name: str
    title: str
    claims: list[Claim]
    sheets: Sheets
    scales: dict[str, Sheets]

    @property
    def blocks(self) -> list[list[Claim]]:
        """The claims in blocks of at most MOST, of similar length, for the picture."""
        count = math.ceil(len(self.claims) / MOST)
        size = math.ceil(len(self.claims) / (count or 1))
        return [self.claims[at : at + size] for at in range(0, len(self.claims), size or 1)]

    @property
    def was_run(self) -> bool:
        """Whether there are runs at any scale."""
        return any("made" in sheets for sheets in self.scales.values())


def make_paper(
    name: str, study: Study, sheets: Sheets, scales: dict[str, Sheets], asked: list[str]
):
    """Collect what readers see of a study; `asked` are the scales in their order."""
    printed = sheets["printed"].rows if "printed" in sheets else []
    claims = [
        Claim(
            f"{name}-{row['claim']}",
            row,
            find_granularity(row["tables"], sheets.get("granularity")),
            [gather_evidence(scale, row["claim"], claim, scales.get(scale, {})) for scale in asked],
        )
        for row, claim in zip(printed, study.get("claims", []), strict=True)
    ]
    return Paper(name, study["title"], claims, sheets, scales)


def find_granularity(tables: str, sheet: Sheet | None) -> list[Row]:
    """Return the rows about those published tables whose values a claim compares."""
    if sheet is None:
        return []
    named = [words.split(" ") for words in tables.split(", ") if words]
    return [
        row for table, dataset in named for row in sheet.find_rows(table=table, dataset=dataset)
    ]


def gather_evidence(scale: str, number: str, claim: Stated, sheets: Sheets) -> AtScale:
    """Collect the evidence on a claim at one scale."""
    rows = find_rows("claims", number, sheets)
    if not rows or not int(rows[0]["comparisons"]):
        return AtScale(scale)
    (row,) = rows
    seeds, metrics = (find_rows(name, number, sheets) for name in ("seeds", "metrics"))
    controls = find_controls(number, sheets)
    deciding = [control for control in controls if is_about_comparison(control, row)]
    return AtScale(scale, row, draw_strip(row, claim, seeds), seeds, metrics, deciding, controls)


def find_rows(name: str, number: str, sheets: Sheets) -> list[Row]:
    """Return the rows of the sheet `name` about a claim; none if there is no such sheet."""
    return sheets[name].find_rows(claim=number) if name in sheets else []


def draw_strip(row: Row, claim: Stated, seeds: list[Row]) -> str:
    """Draw the deciding comparison of a claim."""
    ends = row.read_number("low"), row.read_number("high")
    allowed = claim.get("least", -math.inf), claim.get("most", math.inf)
    values = [seed.read_number("difference") for seed in seeds]
    return strips.draw(values, row.read_number("difference"), ends, allowed)


def find_controls(number: str, sheets: Sheets) -> list[Row]:
    """Return the rows of the sheet `controls` about one of the claim's comparisons."""
    rows = sheets["controls"].rows if "controls" in sheets else []
    contrasts = find_rows("contrasts", number, sheets)
    return [
        row for row in rows if any(is_about_comparison(row, contrast) for contrast in contrasts)
    ]


def is_about_comparison(control: Row, contrast: Row) -> bool:
    """Whether a control has the methods, the measure and the setting of a comparison."""
    return (
        control["method"] == contrast["method"]
        and contrast["over"] in (control["plain"], control["placebo"])
        and control["of"] == measures.SCORED.get(contrast["measure"])
        and all(control[name] in contrast[name].split(" to ") for name in SETTING)
    )
