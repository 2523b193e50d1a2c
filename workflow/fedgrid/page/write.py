"""Write the pages: the tables as CSV files, and from their rows the HTML files."""

import math
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedgrid import __version__
from fedgrid import claim as claims
from fedgrid.analysis import metrics, placebos, verdicts
from fedgrid.page import evidence, marks, verdict_bar
from fedgrid.page.bars import Bar
from fedgrid.page.sections import BUILT_IN, Paper, make_paper
from fedgrid.page.sheets import Row, Sheet, name_page
from fedgrid.report.claims import PAPER
from fedgrid.runtime import files
from fedgrid.runtime.places import PACKAGE
from fedgrid.study.grid import Grid
from fedgrid.study.records import Study

HERE = Path(__file__).parent
OF_STUDY = ("printed", "granularity", "reference")
OF_SCALE = (
    *("claims", "contrasts", "controls", "metrics", "seeds"),
    *("runs", "made", "again", "untested", "omissions"),
)
ABOUT = {
    BUILT_IN: "small built-in data and small networks; it says nothing of the paper's own data",
    "small": "real data, and the paper's clients, partitions and local work as far as two cores "
    "allow; a smaller network, and fewer rounds",
    "gpu": "the paper's network, partition and local work, from random weights, for fewer rounds",
    PAPER: "the paper's own setting",
}


def write_page(out: Path, everything: Grid, results: Path, names: Iterable[str]) -> list[Path]:
    """Write the page about these studies, and beside it its tables and a page for each study.

    Return all paths, that of the page last.
    """
    folder, names = out.with_suffix(""), [*names]
    studies = [describe_study(name, everything.studies[name]) for name in names]
    about = Sheet(folder / "studies.csv", pd.DataFrame(studies))
    papers = [
        read_paper(row["study"], everything, results, folder, row)
        for row in sorted(about.rows, key=lambda row: not row["year"])
    ]
    tally = Sheet(folder / "tally.csv", pd.DataFrame(tally_verdicts(papers)))
    facts = Sheet(folder / "facts.csv", count_facts(papers))
    found = Sheet(folder / "headlines.csv", pd.DataFrame(list_headlines(papers)))
    of_papers = [each for paper in papers for each in (paper.sheets, *paper.scales.values())]
    sheets = [*chain.from_iterable(of.values() for of in of_papers), about, tally, facts, found]
    pictures = verdict_bar.save_bar(facts.rows[0], folder)
    shown = {"papers": papers, "tally": tally, "fact": facts.rows[0]}
    shown["found"] = {row["study"]: row for row in found.rows}
    pages = write_pages(out, sheets, shown)
    return [*(folder / sheet.name for sheet in sheets), *pictures, *pages]


def write_pages(out: Path, sheets: list[Sheet], shown: dict[str, Any]) -> list[Path]:
    """Write a page for each study, those of the rows of the tables, and the first page."""
    folder, papers = out.with_suffix(""), shown["papers"]
    by_page: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        by_page.setdefault(name_page(sheet.name), []).append(sheet)
    made = make_environment(page=out.name, folder=folder.name, row_pages=[*by_page], **shown)
    first: dict[str, list[str]] = {
        "scales": [*dict.fromkeys(scale for paper in papers for scale in paper.run_at)],
        "metrics": [*dict.fromkeys([*evidence.METRICS, *(w for p in papers for w in p.readings)])],
    }
    pages = {folder / f"{paper.name}.html": ("paper", {"paper": paper}) for paper in papers}
    pages |= {folder / name: ("rows", {"name": name, "sheets": of}) for name, of in by_page.items()}
    pages |= {out: ("page", first)}
    for path, (template, parts) in pages.items():
        text = made.get_template(f"{template}.html.jinja").render(parts)
        with files.replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [*pages]


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


def make_environment(**shown: Any) -> Environment:
    """Return what renders the templates, which all know `shown`."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.globals |= {"marks": marks, "verdict_bar": verdict_bar, "about": ABOUT}
    made.globals["points"] = claims.OF_RUNS
    made.globals |= {"in_percent": metrics.in_percent, "words_of": metrics.describe_metric}
    made.globals |= {"better": placebos.BETTER, "meanings": placebos.MEANINGS}
    style = marks.read_part("plot.css") + marks.read_part("page.css")
    made.globals |= {"style": style, "script": marks.read_part("page.js"), **shown}
    return made


# -- what the page says of itself and of every paper -----------------------------------------------

PRINTED, OVERALL = "printed", "all"  # columns of the tally beside those of the scales
CITED = ("authors", "year", "venue", "url")
COMPARED = ("label", "difference", "low", "high", "printed", "seeds")  # columns of a headline


def describe_study(name: str, study: Study) -> dict:
    """Return the row of a study in the table of studies: its paper, and what was found."""
    cite = {key: study.get("cite", {}).get(key, "") for key in CITED}
    headline = study.get("headline", {}).get("says", "")
    return {"study": name, "title": study["title"], **cite, "headline": headline}


def tally_verdicts(papers: list[Paper]) -> Iterator[dict]:
    """Count for each paper its claims by mark: of the printed numbers, and of every scale run."""
    for paper in papers:
        columns = {PRINTED: [claim.mark for claim in paper.claims]}
        columns |= {at: [claim.find_mark(at) for claim in paper.claims] for at in paper.run_at}
        columns[OVERALL] = [claim.overall for claim in paper.claims]
        for column, found in columns.items():
            counts = {name: sum(mark.name == name for mark in found) for name in marks.MARKS}
            tested = len(found) - counts["none"]
            facts = {"study": paper.name, "column": column, "claims": len(found), "tested": tested}
            yield facts | counts


def count_facts(papers: list[Paper]) -> pd.DataFrame:
    """Return the numbers in the sentences at the top of the page, as a table of one row."""
    facts: dict[str, float] = {"papers": sum(bool(paper.cite) for paper in papers)}
    for prefix, cited in (("", True), ("other_", False)):
        said = [claim for paper in papers if bool(paper.cite) == cited for claim in paper.claims]
        facts[f"{prefix}claims"] = len(said)
        facts[f"{prefix}tested"] = sum(claim.is_tested_on_real_data for claim in said)
    every = [claim for paper in papers for claim in paper.claims]
    found = [claim.overall.name for claim in every if claim.is_tested_on_real_data]
    facts |= {f"real_{name}": found.count(name) for name in verdict_bar.WORDS}
    facts |= {"real": len(found), "added": sum(len(claim.added) for claim in every)}
    totals = [sheets["runs"].rows[0] for paper in papers for sheets in paper.scales.values()]
    facts["runs"] = sum(int(row["there"]) for row in totals)
    facts["kept"] = sum(int(row["kept"]) for row in totals)
    facts["interval_percent"] = 100 * (1 - verdicts.LEVEL)
    return pd.DataFrame([facts | find_origin()])


def list_headlines(papers: list[Paper]) -> Iterator[dict]:
    """Yield a row for each paper whose headline has runs: our difference, and the printed one.

    Of the comparisons of the headline's sentence it is the one of which the paper prints the
    largest difference, or the first if it prints none.
    """
    for paper in papers:
        if at := paper.headline["at"]:
            bars = [bar for bar in at.panels[0].bars if bar.placebos] or at.panels[0].bars
            bar = max(bars, key=lambda bar: -math.inf if math.isnan(bar.printed) else bar.printed)
            names = {"study": paper.name, "claim": at.row["claim"], "scale": at.scale}
            said = {"says": paper.headline["shown"].row["says"], "verdict": at.row["our_verdict"]}
            found = Counter(row["verdict"] for row in at.controls)
            said["placebos"] = ", ".join(f"{word} ({n})" for word, n in found.most_common())
            counts = {name: at.row[name] for name in ("held", "undecided", "failed", "comparisons")}
            columns = {name: bar.row[name] for name in COMPARED}
            yield names | said | columns | counts | describe_placebo(bar)


def describe_placebo(bar: Bar) -> dict:
    """Return the placebo with the largest gain, and its gain with its interval."""
    placebo = max(bar.placebos, key=lambda each: each.mean, default=None)
    if placebo is None:
        return {}
    low, high = placebo.ends
    gain = {"placebo_gain": placebo.mean, "placebo_gain_low": low, "placebo_gain_high": high}
    return {"placebo": placebo.row["placebo_label"], **gain}


def find_origin() -> dict[str, str]:
    """Return the version, and the commit and its date if the package lies in a checkout."""
    asked = ["git", "-C", str(PACKAGE), "log", "-1", "--format=%h %cs"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""
    commit, _, date = said.strip().partition(" ")
    return {"version": __version__, "commit": commit, "date": date, "year": date[:4]}
