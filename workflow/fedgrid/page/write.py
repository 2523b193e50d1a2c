"""Write the page: the tables as CSV files beside it, and from their rows one HTML file."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedgrid import claim as claims
from fedgrid.analysis import metrics, verdicts
from fedgrid.page import evidence, marks
from fedgrid.page.sections import Paper, make_paper
from fedgrid.page.sheets import Sheet
from fedgrid.report import controls
from fedgrid.report.claims import PAPER
from fedgrid.runtime import files
from fedgrid.study.grid import Grid

HERE = Path(__file__).parent
OF_STUDY = ("printed", "granularity", "reference")
OF_SCALE = ("claims", "contrasts", "controls", "metrics", "seeds", "runs", "made")
COUNTED = {"runs": "there", "kept": "kept"}  # facts of the page by columns of `runs`
PRINTED = "printed"  # the first column of the picture: the paper's own numbers
ABOUT = {
    "quick": "small built-in data and small networks; it says nothing of the paper's own data",
    "small": "real data, and the paper's clients, partitions and local work as far as two cores "
    "allow; a smaller network, and fewer rounds",
    "gpu": "the paper's network, partition and local work, from random weights, for fewer rounds",
    PAPER: "the paper's own setting",
}


def write_page(out: Path, everything: Grid, results: Path, names: Iterable[str]) -> list[Path]:
    """Write the page about these studies and its tables; return all paths, the page's last."""
    folder, scales = out.with_suffix(""), list_scales(everything)
    papers = [read_paper(name, everything, results, folder, scales) for name in names]
    totals = {
        "tally": Sheet(folder / "tally.csv", pd.DataFrame(tally_marks(papers, scales))),
        "facts": Sheet(folder / "facts.csv", count_facts(papers)),
    }
    shown: dict[str, Any] = {
        "papers": papers,
        "scales": scales,
        "totals": totals,
        "folder": folder.name,
    }
    shown["sheets"] = [*list_sheets(papers), *totals.values()]
    with files.replacing(out) as temporary:
        temporary.write_text(render_page(**shown), encoding="utf-8")
    return [*(folder / sheet.name for sheet in shown["sheets"]), out]


def list_scales(everything: Grid) -> list[str]:
    """Return the scales of all studies, that of the papers themselves last."""
    names = dict.fromkeys(s for study in everything.studies.values() for s in study["scales"])
    return sorted(names, key=lambda scale: scale == PAPER)


def read_paper(
    name: str, everything: Grid, results: Path, folder: Path, scales: list[str]
) -> Paper:
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
        for scale in scales
        if scale in study["scales"]
    }
    return make_paper(name, study, of_study, of_scales, scales)


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


def tally_marks(papers: list[Paper], scales: list[str]) -> Iterator[dict]:
    """Count, for each paper and column of the picture, how many claims have each mark."""
    for shown in papers:
        columns = {PRINTED: [claim.mark for claim in shown.claims]}
        for at, scale in enumerate(scales):
            columns[scale] = [claim.scales[at].mark for claim in shown.claims]
        for column, column_marks in columns.items():
            counts = {name: sum(mark.name == name for mark in column_marks) for name in marks.MARKS}
            yield {"study": shown.name, "column": column, "claims": len(column_marks)} | counts


def count_facts(papers: list[Paper]) -> pd.DataFrame:
    """Return the numbers in the sentences at the top of the page, as a table of one row."""
    claims = sum(len(shown.claims) for shown in papers)
    level = 100 * (1 - verdicts.LEVEL)
    totals = [sheets["runs"].rows[0] for shown in papers for sheets in shown.scales.values()]
    runs = {name: sum(int(row[column]) for row in totals) for name, column in COUNTED.items()}
    return pd.DataFrame(
        [{"papers": len(papers), "claims": claims, "interval_percent": level} | runs]
    )


def render_page(**shown) -> str:
    """Render the page as HTML."""
    loader = FileSystemLoader(HERE)
    made = Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    style = Markup((HERE / "page.css").read_text(encoding="utf-8"))
    return made.get_template("page.html.jinja").render(
        **shown,
        **{"marks": marks, "about": ABOUT, "printed": PRINTED, "style": style},
        **{"better": controls.BETTER, "meanings": controls.MEANINGS},
        **{
            "points": claims.OF_RUNS,
            "in_percent": metrics.in_percent,
            "words_of": metrics.describe_metric,
        },
    )
