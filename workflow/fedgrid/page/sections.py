"""Arrange what readers see of a study: its claims, each with its evidence at every scale."""

from dataclasses import dataclass, field
from typing import Any

from fedgrid import claim as stated
from fedgrid.page import marks
from fedgrid.page.panels import Panel, is_about, make_panels
from fedgrid.page.sheets import Row, Sheet
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

BUILT_IN = "quick"  # the scale on small built-in data, which tests no claim
Sheets = dict[str, Sheet]


@dataclass
class AtScale:
    """The evidence on a claim at one scale: its row of `claims`, panels by metric, placebos."""

    scale: str
    row: Row
    panels: list[Panel]
    controls: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)

    @property
    def mark(self) -> marks.Mark:
        return marks.find_mark(self.row["our_verdict"])

    @property
    def others(self) -> list[Panel]:
        """The panels of other metrics, if any of them has other numbers."""
        numbers = ("our_verdict", "difference", "low")
        same = len({tuple(row[name] for name in numbers) for row in self.metrics}) <= 1
        return [] if same else self.panels[1:]

    @property
    def keys(self) -> list[str]:
        """What the filters know of it: scale, metric, verdict, and whether it is robust."""
        said = self.row["robust"]  # in words; empty if there is one metric
        robust = "robust" if said == "robust" else "depends" if said else ""
        every = [("own", self.row), *((row["metric"], row) for row in self.metrics)]
        found = [(name, marks.find_mark(row["our_verdict"]).name) for name, row in every]
        return ["|".join((self.scale, name, mark, robust)) for name, mark in found]


@dataclass
class Claim:
    """A claim: its row of the sheet `printed`, its evidence, and the rows that we added to it."""

    anchor: str
    number: int
    row: Row
    scales: list[AtScale]
    added: list["Claim"] = field(default_factory=list)
    replies: list[dict] = field(default_factory=list)
    equal: list[str] = field(default_factory=list)  # why methods cannot differ

    @property
    def mark(self) -> marks.Mark:
        """The mark of the verdict by the paper's own numbers."""
        return marks.find_mark(self.row["published_verdict"])

    def find_mark(self, scale: str) -> marks.Mark:
        return next((at.mark for at in self.scales if at.scale == scale), marks.MARKS["none"])

    @property
    def main(self) -> AtScale | None:
        """The evidence with the most comparisons, on real data if there is any."""
        tested = [at for at in self.scales if at.scale != BUILT_IN] or self.scales
        return max(tested, key=lambda at: int(at.row["comparisons"]), default=None)

    @property
    def overall(self) -> marks.Mark:
        return self.main.mark if self.main else marks.MARKS["none"]

    @property
    def is_tested_on_real_data(self) -> bool:
        return self.main is not None and self.main.scale != BUILT_IN


@dataclass
class Paper:
    """A study: what it says of its paper, its claims, and the sheets of itself and every scale."""

    name: str
    study: Study
    claims: list[Claim]
    sheets: Sheets
    scales: dict[str, Sheets]
    about: Row

    @property
    def cite(self) -> dict[str, Any]:
        return self.study.get("cite", {})

    @property
    def headline(self) -> dict[str, Any]:
        """The claim whose picture is `shown` with what was found, and its evidence `at` a scale."""
        number = self.study.get("headline", {}).get("claim")
        shown = next((claim for claim in self.claims if claim.number == number), None)
        return {"shown": shown, "at": shown and shown.main}

    @property
    def replies(self) -> list[dict]:
        """The answers that are about no single claim."""
        return [reply for reply in self.study.get("replies", []) if "claim" not in reply]

    @property
    def readings(self) -> list[str]:
        """The further ways to score its runs, which the study names for its claims."""
        options = self.study["products"].get("claims", {}).get("with", {})
        return listed(options.get("metrics"))

    def list_changed(self, scale: str, way: str) -> list[Row]:
        """Return the verdicts of a scale that change if runs are scored in another way."""
        sheets = self.scales[scale]
        own = {row["claim"]: row["our_verdict"] for row in sheets["claims"].rows}
        scored = sheets["metrics"].find_rows(metric=way)
        return [row for row in scored if row["our_verdict"] != own[row["claim"]]]

    @property
    def run_at(self) -> list[str]:
        return [scale for scale, sheets in self.scales.items() if "made" in sheets]


def make_paper(
    name: str, study: Study, sheets: Sheets, scales: dict[str, Sheets], about: Row
) -> Paper:
    """Collect what readers see of a study; `about` is its row of the sheet `studies`."""
    claims = study.get("claims", [])
    rows = sheets["printed"].rows if "printed" in sheets else []
    every = [make_claim(name, study, at, row, scales) for at, row in enumerate(rows, start=1)]
    for claim, parent in zip(every, stated.find_parents(claims), strict=True):
        if parent:
            every[parent - 1].added.append(claim)
    own = [claim for claim in every if not claim.row["added"]]
    return Paper(name, study, own, sheets, scales, about)


def make_claim(name: str, study: Study, number: int, row: Row, scales: dict[str, Sheets]) -> Claim:
    entry = study["claims"][number - 1]
    found = [gather_evidence(scale, row["claim"], entry, of) for scale, of in scales.items()]
    answers = [of for of in study.get("replies", []) if of.get("claim") == number]
    why = [*dict.fromkeys(entry.get("equal", {}).values())]
    return Claim(f"{name}-{number}", number, row, [*filter(None, found)], [], answers, why)


def gather_evidence(scale: str, number: str, claim: stated.Claim, sheets: Sheets) -> AtScale | None:
    """Collect the evidence on a claim at one scale; None without any."""
    rows = find_rows("claims", number, sheets)
    if not rows or not int(rows[0]["comparisons"]):
        return None
    (row,), controls = rows, find_controls(number, sheets)
    kinds = ("metrics", "contrasts", "seeds")
    metrics, contrasts, seeds = (find_rows(kind, number, sheets) for kind in kinds)
    shown = make_panels(claim, row, metrics, contrasts, seeds, controls)
    return AtScale(scale, row, shown, controls, metrics)


def find_rows(name: str, number: str, sheets: Sheets) -> list[Row]:
    """Return the rows of the sheet `name` about a claim; none if there is no such sheet."""
    return sheets[name].find_rows(claim=number) if name in sheets else []


def find_controls(number: str, sheets: Sheets) -> list[Row]:
    """Return the rows of the sheet `controls` about one of the claim's comparisons."""
    rows = sheets["controls"].rows if "controls" in sheets else []
    contrasts = find_rows("contrasts", number, sheets)
    return [row for row in rows if any(is_about(row, contrast) for contrast in contrasts)]
