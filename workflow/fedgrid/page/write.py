"""Write the page: the tables as CSV files beside it, and from their rows one HTML file."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedgrid import claim as claims
from fedgrid.analysis import metrics, placebos
from fedgrid.page import evidence, marks, totals
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
    of_papers = [each for paper in papers for each in (paper.sheets, *paper.scales.values())]
    sheets = [*chain.from_iterable(of.values() for of in of_papers), about, tally, facts]
    page = render_page(
        papers=papers,
        scales=[*dict.fromkeys(scale for paper in papers for scale in paper.run_at)],
        metrics=[*dict.fromkeys([*evidence.METRICS, *(w for p in papers for w in p.readings)])],
        tally=tally,
        fact=facts.rows[0],
        sheets=sheets,
        folder=folder.name,
    )
    with files.replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return [*(folder / sheet.name for sheet in sheets), out]


def list_scales(everything: Grid) -> list[str]:
    """Return the scales of all studies, that of the papers themselves last."""
    names = dict.fromkeys(s for study in everything.studies.values() for s in study["scales"])
    return sorted(names, key=lambda scale: scale == PAPER)


def read_paper(name: str, everything: Grid, results: Path, folder: Path, about: Row) -> Paper:
    """Judge a study at its scales, write its tables, and return what readers see of it."""
    study = everything.studies[name]
    of_study = write_sheets(folder, name, OF_STUDY, evidence.gather_study(name, study))
    of_scales = {}
    for scale in [one for one in list_scales(everything) if one in study["scales"]]:
        tables = evidence.gather_scale(name, scale, everything, results)
        of_scales[scale] = write_sheets(folder, f"{name}_{scale}", OF_SCALE, tables)
    return make_paper(name, study, of_study, of_scales, about)


def write_sheets(folder: Path, prefix: str, kinds: Iterable[str], tables: dict) -> dict[str, Sheet]:
    """Write tables as CSV files, and delete files of those `kinds` that have no table any more."""
    paths = {kind: folder / f"{prefix}_{kind}.csv" for kind in kinds}
    for kind, path in paths.items():
        if kind not in tables:
            path.unlink(missing_ok=True)
    return {kind: Sheet(paths[kind], table) for kind, table in tables.items()}


def render_page(**shown: Any) -> str:
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.globals |= {"marks": marks, "about": ABOUT, "points": claims.OF_RUNS}
    made.globals |= {"arrange_columns": arrange_columns}
    made.globals |= {"in_percent": metrics.in_percent, "words_of": metrics.describe_metric}
    made.globals |= {"better": placebos.BETTER, "meanings": placebos.MEANINGS}
    style = read_part("plot.css") + read_part("page.css")
    made.globals |= {"style": style, "script": read_part("page.js"), **shown}
    return made.get_template("page.html.jinja").render()


def read_part(name: str) -> Markup:
    """Return a file of this folder that stands in the page as it is."""
    return Markup((HERE / name).read_text(encoding="utf-8"))
