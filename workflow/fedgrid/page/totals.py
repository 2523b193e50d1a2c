"""Count what the page says of itself and of every paper: claims, tests, verdicts and runs."""

import subprocess
from collections.abc import Iterator

import pandas as pd

from fedgrid import __version__
from fedgrid.analysis import verdicts
from fedgrid.page import marks
from fedgrid.page.sections import BUILT_IN, Paper
from fedgrid.runtime.names import PACKAGE
from fedgrid.study.records import Study

PRINTED, OVERALL = "printed", "all"  # columns of the tally beside those of the scales
COUNTED = {"runs": "there", "kept": "kept"}  # facts of the page by columns of `runs`
CITED = ("authors", "year", "venue", "url")


def describe_study(name: str, study: Study) -> dict:
    """Return the row of a study in the table of studies: its paper, and what was found."""
    headline = {"headline": study.get("headline", {}).get("says", "")}
    cite = {key: study.get("cite", {}).get(key, "") for key in CITED}
    return {"study": name, "title": study["title"], **cite, **headline}


def tally_verdicts(papers: list[Paper]) -> Iterator[dict]:
    """Count for each paper its claims by mark: of the printed numbers, and of every scale run."""
    for paper in papers:
        columns = {PRINTED: [claim.mark for claim in paper.claims]}
        columns |= {at: [claim.find_mark(at) for claim in paper.claims] for at in paper.run_at}
        # At the scale with the most comparisons.
        best = [claim.main.mark if claim.main else marks.MARKS["none"] for claim in paper.claims]
        columns[OVERALL] = best
        for column, found in columns.items():
            counts = {name: sum(mark.name == name for mark in found) for name in marks.MARKS}
            tested = len(found) - counts["none"]
            facts = {"study": paper.name, "column": column, "claims": len(found), "tested": tested}
            yield facts | counts


def count_facts(papers: list[Paper]) -> pd.DataFrame:
    """Return the numbers in the sentences at the top of the page, as a table of one row."""
    of_papers, of_others = ([p for p in papers if bool(p.cite) == cited] for cited in (True, False))
    totals = [sheets["runs"].rows[0] for paper in papers for sheets in paper.scales.values()]
    facts: dict[str, float] = {"papers": len(of_papers), **count_claims(of_papers, "")}
    facts |= count_claims(of_others, "other_")
    facts["added"] = sum(len(claim.added) for paper in papers for claim in paper.claims)
    facts |= {name: sum(int(row[column]) for row in totals) for name, column in COUNTED.items()}
    facts["interval_percent"] = 100 * (1 - verdicts.LEVEL)
    return pd.DataFrame([facts | find_origin()])


def count_claims(papers: list[Paper], prefix: str) -> dict[str, int]:
    claims = [claim for paper in papers for claim in paper.claims]
    tested = sum(any(at.scale != BUILT_IN for at in claim.scales) for claim in claims)
    return {f"{prefix}claims": len(claims), f"{prefix}tested": tested}


def find_origin() -> dict[str, str]:
    """Return the version, and the commit and its date if the package lies in a checkout."""
    asked = ["git", "-C", str(PACKAGE), "log", "-1", "--format=%h %cs"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""
    commit, _, date = said.strip().partition(" ")
    return {"version": __version__, "commit": commit, "date": date, "year": date[:4]}
