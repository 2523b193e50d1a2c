"""Write the page: the tables as CSV files beside it, and from their rows one HTML file."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedgrid import claim as claims
from fedgrid.analysis import metrics, placebos
from fedgrid.page import evidence, headlines, marks, totals, verdict_bar
from fedgrid.page.sections import BUILT_IN, Paper, arrange_columns, make_paper
from fedgrid.page.sheets import Row, Sheet
from fedgrid.report.claims import PAPER
from fedgrid.runtime import files
from fedgrid.study.grid import Grid

HERE = Path(__file__).parent
OF_STUDY = ("printed", "granularity", "reference")
OF_SCALE = ("claims", "contrasts", "controls", "metrics", "seeds", "runs", "made", "untested")
ABOUT = {
    BUILT_IN: "small built-in data and small networks; it says nothing of the paper's own data",
    "small": "real data, and the paper's clients, partitions and local work as far as two cores "
    "allow; a smaller network, and fewer rounds",
    "gpu": "the paper's network, partition and local work, from random weights, for fewer rounds",
    PAPER: "the paper's own setting",
}


def write_page(out: Path, everything: Grid, results: Path, names: Iterable[str]) -> list[Path]:
    """Write the page about these studies and its tables; return all paths, the page's last."""
    folder, names = out.with_suffix(""), [*names]
    studies = [totals.describe_study(name, everything.studies[name]) for name in names]
    about = Sheet(folder / "studies.csv", pd.DataFrame(studies))
    papers = [
        read_paper(row["study"], everything, results, folder, row)
        for row in sorted(about.rows, key=lambda row: not row["year"])
    ]
    tally = Sheet(folder / "tally.csv", pd.DataFrame(totals.tally_verdicts(papers)))
    facts = Sheet(folder / "facts.csv", totals.count_facts(papers))
    found = Sheet(folder / "headlines.csv", pd.DataFrame(headlines.list_headlines(papers)))
    sheets = [*list_sheets(papers), about, tally, facts, found]
    picture = folder / "bar.svg"
    with files.replacing(picture) as temporary:
        temporary.write_text(verdict_bar.draw_bar(facts.rows[0]), encoding="utf-8")
    page = render_page(
        papers=papers,
        scales=[*dict.fromkeys(scale for paper in papers for scale in paper.run_at)],
        metrics=[*dict.fromkeys([*evidence.METRICS, *(w for p in papers for w in p.readings)])],
        tally=tally,
        found={row["study"]: row for row in found.rows},
        fact=facts.rows[0],
        sheets=sheets,
        folder=folder.name,
    )
    with files.replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return [*(folder / sheet.name for sheet in sheets), picture, out]


def list_scales(everything: Grid) -> list[str]:
    """Return the scales of all studies, that of the papers themselves last."""
    names = dict.fromkeys(s for study in everything.studies.values() for s in study["scales"])
    return sorted(names, key=lambda scale: scale == PAPER)


def read_paper(name: str, everything: Grid, results: Path, folder: Path, about: Row) -> Paper:
    """Judge a study at its scales, write its tables, and return what readers see of it."""
    study = everything.studies[name]
    of_study = write_sheets(folder, name, OF_STUDY, evidence.gather_study(name, study))
    of_scales = {
        scale: write_sheets(
            folder,
            f"{name}_{scale}",
            OF_SCALE,
            evidence.gather_scale(name, scale, everything, results),
        )
        for scale in list_scales(everything)
        if scale in study["scales"]
    }
    return make_paper(name, study, of_study, of_scales, about)


def write_sheets(folder: Path, prefix: str, kinds: Iterable[str], tables: dict) -> dict[str, Sheet]:
    """Write tables as CSV files, and delete files of those `kinds` that have no table any more."""
    paths = {kind: folder / f"{prefix}_{kind}.csv" for kind in kinds}
    for kind, path in paths.items():
        if kind not in tables:
            path.unlink(missing_ok=True)
    return {kind: Sheet(paths[kind], table) for kind, table in tables.items()}


def list_sheets(papers: list[Paper]) -> Iterator[Sheet]:
    """Yield all sheets of the papers."""
    for paper_shown in papers:
        yield from paper_shown.sheets.values()
        for sheets in paper_shown.scales.values():
            yield from sheets.values()


def render_page(**shown: Any) -> str:
    """Render the page as HTML."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.globals |= {
        "marks": marks,
        "verdict_bar": verdict_bar,
        "about": ABOUT,
        "totals": totals,
        "points": claims.OF_RUNS,
    }
    made.globals |= {"arrange_columns": arrange_columns}
    made.globals |= {"in_percent": metrics.in_percent, "words_of": metrics.describe_metric}
    made.globals |= {"better": placebos.BETTER, "meanings": placebos.MEANINGS}
    style = marks.read_part("plot.css") + marks.read_part("page.css")
    made.globals |= {"style": style, "script": marks.read_part("page.js"), **shown}
    return made.get_template("page.html.jinja").render()
