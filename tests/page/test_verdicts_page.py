"""The pages of verdicts: what they say of claims, and that all numbers are in their tables."""

import csv
import json
import re
import shutil
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import made
from dictionary import FILES, header, hooks, unknown
from fedgrid.analysis import claim_text, measures
from fedgrid.analysis import verdicts as judging
from fedgrid.analysis.scores import CELL
from fedgrid.commands import keep, verdicts
from fedgrid.page import bars, evidence, making, marks, sections, verdict_bar, write
from fedgrid.page.sheets import MINUS, Row, Sheet
from fedgrid.report import claims
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.places import PACKAGE
from fedgrid.store import kept
from fedgrid.study.grid import Grid
from fedgrid.study.paths import RUN
from fedgrid.study.reading import find_study
from made import GRID, STUDIES
from shown import look, measure, misplaced, problems, visit
from written import ROOT

STORE_FOLDER, COUNT_AGAIN = kept.store_folder, making.count_again
AGAIN = dict.fromkeys(
    ("kept", "again", "identical", "differing", "farthest", "once", "elsewhere"), 1
) | {"first_date": "2026-01-02", "last_date": "2026-01-02", "said": "One was trained again."}
OMITTED = {
    **{"dataset": "digits", "partition": "dir0.1", "cell": "Digits, alpha=0.1", "seeds": 2},
    **{"baseline": "FedAvg", "others": 3, "more": "MOON", "fewer": "", "of": "accuracy"},
    **{"tail": 10, "scale": "quick", "left_out": "nothing", "better": 1, "better_methods": "SSP"},
}
CONFIG = ["--config", str(PACKAGE.parents[1] / "config.yaml")]
SVG = "{http://www.w3.org/2000/svg}"
DIVERGED = {"method": "moon", "partition": "dir0.05", "seed": 1}
FEW = ("fedavg", "moon", "fedau", "fedsls", "fedsl-f2", "fedsls+swapped")
PARTS = {  # a part of every quick grid but FedLMD's
    "fedsls": lambda run: run["method"] in FEW,
    "normalization": lambda run: (
        run["method"].startswith("fedavg") and run["partition"] == "dir0.1"
    ),
    "privatization": lambda run: run["method"] in ("AB", "AaB", "AaB+forgets"),
}


def leave(results: Path, names: dict, diverged: bool = False) -> None:
    """Write the files of a run that is made up: its names decide its numbers."""
    resolved = GRID.resolve(names)
    folder = results / "runs" / RUN.format(**names)
    folder.mkdir(parents=True)
    random, rounds = made.some(names), resolved["protocol"]["rounds"]
    table = [(r, *random.uniform((0.3, 0.3, 1, 1), (0.7, 0.7, 2, 2))) for r in range(rounds + 1)]
    if diverged:
        table[-1] = (*table[-1][:3], float("nan"), 1.0)
    with (folder / "metrics.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerows([("round", "accuracy", "own_mean", "loss", "train_loss"), *table])
    about = {"run": resolved, "rounds": rounds, "seconds": random.uniform(90, 900), "threads": 2}
    about["diverged"] = rounds if diverged else None
    about |= {"device": "a machine", "code": "0123456789ab", "versions": {"torch": "2.8.0"}}
    (folder / "summary.json").write_text(json.dumps(about))


@pytest.fixture(scope="module", autouse=True)
def nothing_is_kept(tmp_path_factory):
    """These tests are of runs that are made up, whatever is kept with the studies.

    How many kept runs were trained again is made up, too, and what a comparison says without a
    part of its rule.
    """
    none = tmp_path_factory.mktemp("none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "store_folder", lambda study, scale, *_: none / study / scale)
        patch.setattr(making, "count_again", made_up_count)
        patch.setattr(evidence, "draw_omissions", made_up_omissions)
        yield


def made_up_count(name: str, scale: str, finished: pd.DataFrame) -> pd.DataFrame:
    """What is counted of kept runs that were trained again; there are some of one study."""
    return pd.DataFrame([AGAIN] if (name, scale) == ("normalization", "quick") else [])


def made_up_omissions(name: str, scale: str, *_) -> evidence.Tables:
    """A comparison without a part of its rule, in one study."""
    if (name, scale) != ("normalization", "quick"):
        return {}
    rows = [OMITTED, OMITTED | {"left_out": "the placebos", "better": 2}]
    return {"omissions": pd.DataFrame(rows)}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder of results with a part of three quick grids, and one run that diverged."""
    folder = tmp_path_factory.mktemp("made") / "results"
    for study, part in PARTS.items():
        runs = making.list_grid_runs(study, "quick", GRID)[making.RUN].to_dict("records")
        for names in filter(part, runs):
            leave(folder, names, diverged=DIVERGED.items() <= names.items())
    scores = folder / "studies/fedsls/quick/fidelity/scores.csv"
    scores.parent.mkdir(parents=True)
    made.fidelity_scores().to_csv(scores, index=False)
    return folder


def ask(out: Path, results: Path, *studies: str, grid: Grid = GRID) -> str:
    """The page of some studies, or of all."""
    write.write_page(out, grid, results, studies or STUDIES)
    return out.read_text()


def with_one_claim(**others: dict) -> Grid:
    """The studies, of which FedSLS has its first claim alone, and others."""
    study = {key: value for key, value in STUDIES["fedsls"].items() if key != "replies"}
    return Grid(STUDIES | {"fedsls": study | {"claims": study["claims"][:1]}} | others)


ONE_CLAIM = with_one_claim()


@pytest.fixture(scope="module")
def gather_once():
    """`evidence.gather_scale`, which judges the claims of a study by the same runs once."""
    gather, found = evidence.gather_scale, {}

    def gather_scale(name: str, scale: str, grid: Grid, results: Path) -> evidence.Tables:
        at = name, scale, results
        if at not in found:
            found[at] = gather(name, scale, grid, results)
        return {kind: table.copy() for kind, table in found[at].items()}

    return gather_scale


@pytest.fixture
def judged_once(gather_once, monkeypatch):
    """What is judged by the runs of `results` is not judged again; the studies are not read."""
    monkeypatch.setattr(evidence, "gather_scale", gather_once)
    monkeypatch.setattr(verdicts, "read_grid", lambda *_: GRID)


@pytest.fixture(scope="module")
def out(results, gather_once, tmp_path_factory) -> Path:
    """The page of all studies: 16 seconds, in which every claim is judged in three ways."""
    path = tmp_path_factory.mktemp("page") / "verdicts.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "gather_scale", gather_once)
        ask(path, results)
    return path


@pytest.fixture(scope="module")
def page(out) -> str:
    return out.read_text()


def beside(out: Path, name: str) -> str:
    """The page of a study, or another page in the folder of the page `out`."""
    return (out.with_suffix("") / f"{name}.html").read_text()


def list_pages(out: Path) -> list[Path]:
    return [out, *sorted(out.with_suffix("").glob("*.html"))]


@pytest.fixture(scope="module")
def seen(out, tmp_path_factory) -> dict[str, dict]:
    """What a browser shows of every page, by its name."""
    folder = tmp_path_factory.mktemp("browser")
    return {path.stem: look(path.read_text(), folder) for path in list_pages(out)}


def rows(out: Path, name: str) -> list[dict]:
    with (out.with_suffix("") / name).open(newline="") as file:
        return [*csv.DictReader(file)]


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_browser_shows_every_claim_of_every_study(seen):
    wanted = [
        [f"{name}-{number}", claim["says"]]
        for name, study in STUDIES.items()
        for number, claim in enumerate(study.get("claims", []), start=1)
    ]
    assert sorted(seen["verdicts"]["claims"]) == sorted(wanted)
    assert sorted(of for name in STUDIES for of in seen[name]["claims"]) == sorted(wanted)


@pytest.mark.slow
def test_every_number_that_a_browser_shows_is_in_the_row_that_it_links_to(seen, out):
    texts = [one for of in seen.values() for one in of["texts"]]
    assert len(texts) > 2000
    assert {one["quote"] for one in texts} == {True, False}
    assert problems(texts, out.with_suffix("")) == []


def mutated(page: str, pattern: str) -> str:
    """The page with another last digit in the first match of a pattern."""
    found = re.search(pattern, page)
    *_, last = re.finditer(r"\d", found[1])
    at = found.start(1) + last.start()
    return page[:at] + str((int(last[0]) + 1) % 10) + page[at + 1 :]


@pytest.mark.slow
def test_other_numbers_than_those_of_the_tables_are_found(out, tmp_path):
    page = beside(out, "fedsls")
    for pattern in (
        r'data-column="difference">([^<]*\d)<',
        r'data-column="compared">([^<]*\d)<',
        r'data-column="there">([^<]*\d)<',
        r'<q class="quote">([^<]*\d[^<]*)<',
    ):
        page = mutated(page, pattern)
    page = page.replace("<h2>What was run", "<h2>What was run 7 times")
    at = re.search(r'<svg x="([\d.]+)%" y="50%" overflow="visible"><path class="mean"', page)
    page = page[: at.start(1)] + f"{(float(at[1]) + 7) % 100:g}" + page[at.end(1) :]
    shown = look(page, tmp_path)
    assert len(problems(shown["texts"], out.with_suffix(""))) == 5
    assert len(misplaced(shown["plots"], out.with_suffix(""))) == 1
    row = r"<tr id=\"fedsls_quick_contrasts.csv:3\">.*?<td>(-?\d+\.\d+)</td>"
    shown = look(mutated(beside(out, "fedsls_rows"), row), tmp_path)
    assert len(problems(shown["texts"], out.with_suffix(""))) == 1


@pytest.mark.slow
def test_everything_is_drawn_where_its_value_is_on_the_axis(seen, out):
    plots = [one for of in seen.values() for one in of["plots"]]
    drawn = [name for one in plots for name in one["found"]]
    assert {*drawn} >= {"mean", "low", "high"}
    assert len(drawn) > 300
    assert misplaced(plots, out.with_suffix("")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "fedsls"])
@pytest.mark.parametrize(("width", "dark"), [(1500, False), (900, False), (390, True)])
def test_nothing_is_cut_or_empty_at_any_width(page, out, tmp_path, width, dark, name):
    shown = measure(beside(out, name) if name else page, tmp_path, width, dark)
    assert shown["scroll"] <= width
    assert shown["cut"] == []
    assert shown["gap"] < 300
    assert min(shown["contrast"].values()) >= 4.5, shown["contrast"]
    assert shown["dark"] is dark


@pytest.mark.slow
def test_a_text_that_is_cut_and_an_empty_screen_are_found(out, tmp_path):
    rule = ".test { width: 3em; white-space: nowrap; overflow: hidden; } .run { margin: 900px 0; }"
    shown = measure(beside(out, "fedsls").replace("</style>", f"{rule}</style>"), tmp_path, 1000)
    assert shown["cut"]
    assert shown["gap"] > 800


STOPS = """<script>
addEventListener("load", () => {
    const stops = [...document.querySelectorAll("a[href], summary, select, button")]
        .filter((one) => one.tabIndex >= 0 && one.checkVisibility());
    const small = stops.filter((one) => !one.closest("p, td, .skip"))
        .filter((one) => Math.min(one.offsetHeight, one.offsetWidth) < 24);
    location.hash = "fedsls-9";
    const row = document.getElementById("fedsls-9").getBoundingClientRect();
    const covered = document.querySelector(".filters")?.getBoundingClientRect().bottom ?? 0;
    writeDown({
        small: small.map((one) => one.textContent), free: row.top - covered,
        before: stops.findIndex((one) => one.closest(".filters")),
    });
});
</script></body>"""


@pytest.mark.slow
def test_links_are_large_and_few_and_their_targets_are_not_covered(page, out, tmp_path):
    for text in (page, beside(out, "fedsls")):
        shown = visit(text, STOPS, tmp_path, "--window-size=900,700")
        assert shown["small"] == []
        assert shown["free"] >= 0
        assert shown["before"] < 30


# -- with and without its script -----------------------------------------------------------------

CHOOSE = """<script>
const seen = [];
for (const asked of ASKED) {
    form.reset();
    for (const [name, value] of Object.entries(asked)) form[name].value = value;
    form.dispatchEvent(new Event("change", {bubbles: true}));
    const shown = [...document.querySelectorAll("article.claim:not([hidden])")];
    const there = shown.map((one) => one.id);
    const first = document.querySelector("#fedsls-1 [data-metric]:not([hidden])");
    seen.push({there, metric: first.dataset.metric, none: !form.querySelector(".none").hidden});
}
writeDown(seen);
</script></body>"""


def choose(page: str, folder: Path, *asked: dict) -> list[dict]:
    return visit(page, CHOOSE.replace("ASKED", json.dumps(asked)), folder)


@pytest.mark.slow
def test_filters_leave_the_claims_that_are_asked_for(page, out, tmp_path):
    own = [of for of in rows(out, "fedsls_quick_claims.csv") if not of["added"]]
    tested = [of for of in own if of["comparisons"] != "0"]
    only = {"paper": "fedsls"}
    every, undecided, changing, robust, untested, nothing = choose(
        page,
        tmp_path,
        only,
        only | {"verdict": "undecided"},
        {"robust": "depends"},
        {"robust": "robust"},
        only | {"verdict": "none"},
        {"paper": "fedlmd", "scale": "quick"},
    )
    assert sorted(every["there"]) == sorted(f"fedsls-{of['claim']}" for of in own)
    said = [of["claim"] for of in tested if of["our_verdict"] == judging.UNDECIDED]
    assert sorted(undecided["there"]) == sorted(f"fedsls-{number}" for number in said) != []
    for found, word in ((changing, judging.DEPENDS), (robust, judging.ROBUST)):
        ids = [
            f"{study}-{row['claim']}"
            for study in PARTS
            for row in rows(out, f"{study}_quick_claims.csv")
            if row["robust"] == word and not row["added"] and row["comparisons"] != "0"
        ]
        assert sorted(found["there"]) == sorted(ids)
    assert robust["there"]
    assert len(untested["there"]) == len(own) - len(tested)
    assert (nothing["there"], nothing["none"]) == ([], True)


ADDRESS = """<script>
location.hash = "#paper=fedsls&verdict=undecided";
filterByAddress();
const first = [form.paper.value, form.verdict.value];
form.verdict.value = "";
form.dispatchEvent(new Event("change", {bubbles: true}));
writeDown([first, location.hash]);
</script></body>"""


@pytest.mark.slow
def test_the_filters_are_in_the_address(page, tmp_path):
    first, after = visit(page, ADDRESS, tmp_path)
    assert first == ["fedsls", "undecided"]
    assert after == "#paper=fedsls"


@pytest.mark.slow
def test_another_metric_is_shown_in_place_of_the_papers_own(page, tmp_path):
    asked = ({"metric": "own"}, {"metric": "best"}, {"metric": "own"})
    assert [one["metric"] for one in choose(page, tmp_path, *asked)] == ["tail", "best", "tail"]


@pytest.mark.slow
def test_the_page_is_complete_without_its_script(page, seen, tmp_path):
    start, end = page.rindex("<script>"), page.rindex("</script>")
    shown = look(page[:start] + page[end:].removeprefix("</script>"), tmp_path)
    assert sorted(shown["claims"]) == sorted(seen["verdicts"]["claims"])
    assert len(shown["texts"]) == len(seen["verdicts"]["texts"])
    assert re.search(r'<form class="filters"[^>]* hidden>', page)


# -- the file -------------------------------------------------------------------------------------


def test_the_pages_load_nothing(out):
    page = "".join(path.read_text() for path in list_pages(out))
    cited = {study["cite"]["url"] for study in STUDIES.values() if "url" in study.get("cite", {})}
    assert set(re.findall(r"""(?:src|href)=["']?((?:https?:)?//[^"']*)""", page)) == cited
    assert not re.findall(r"<(?:link|img|iframe|object|script [^>]*src)|@import|url\(", page)


def test_every_link_leads_somewhere(out):
    pages = {path: unescape(path.read_text()) for path in list_pages(out)}
    anchors = {path: set(re.findall(r' id="([^"]+)"', text)) for path, text in pages.items()}
    targets = {
        ((path.parent / file).resolve() if file else path, anchor)
        for path, text in pages.items()
        for file, anchor in re.findall(r'href="(?!https?:)([^"#]*)#?([^"]*)"', text)
    }
    assert len(targets) > 300
    assert [of for of in targets if of[1] and of[1] not in anchors[of[0]]] == []
    files = {path for path, anchor in targets if not anchor}
    assert files == {*out.with_suffix("").glob("*.csv"), *list_pages(out)} - {out}
    assert re.search('property="og:image" content="([^"]+)"', pages[out])[1] == "verdicts/bar.png"
    assert (out.with_suffix("") / "bar.png").exists()


def test_the_dictionary_has_the_columns_of_every_table(out):
    paths = out.with_suffix("").glob("*.csv")
    kinds = {path: f"verdicts: {path.stem.rpartition('_')[2]}" for path in paths}
    assert {*kinds.values()} == {name for name in FILES if name.startswith("verdicts: ")}
    assert [path.name for path, kind in kinds.items() if unknown(kind, header(path))] == []


@pytest.mark.slow
def test_the_command_writes_the_same_page_of_one_study(out, results, tmp_path):
    alone = tmp_path / "verdicts.html"
    asked = ["--out", str(alone), "--results", str(results), "--study", "normalization"]
    assert verdicts.main([*asked, *CONFIG]) is None
    ours, theirs = (beside(of, "normalization").partition("<main>")[2] for of in (alone, out))
    # The rows of a study depend on the other studies.
    number = re.compile(r"(?:studies|tally)\.csv:\d+")
    ours, theirs = (number.sub("", of.partition("</main>")[0]) for of in (ours, theirs))
    assert ours == theirs != ""
    assert [path.stem for path in list_pages(alone)[1:]] == [
        *("all_rows", "normalization", "normalization_rows")
    ]


def test_marks_differ_by_shape_even_without_colours():
    shapes = [re.sub(r"#[0-9a-f]{3,6}", "", mark.shape) for mark in marks.MARKS.values()]
    assert len({*shapes}) == len(marks.MARKS)


# -- what it says ---------------------------------------------------------------------------------


def test_verdicts_are_those_of_the_product_claims(out, results):
    runs = evidence.make_reader("fedsls", "quick", GRID, results)
    sources = runs(STUDIES["fedsls"]["products"]["claims"])
    table = claims.draw(STUDIES["fedsls"], "quick", **sources)
    for ours, theirs in zip(rows(out, "fedsls_quick_claims.csv"), table.itertuples(), strict=True):
        assert (ours["our_verdict"], ours["verdict"]) == (theirs.our_verdict, theirs.verdict)
        if ours["difference"]:
            assert float(ours["difference"]) == theirs.difference


def test_a_part_of_a_grid_is_counted_and_compared(out):
    total, digits = rows(out, "fedsls_quick_runs.csv")
    grids = making.find_grids(STUDIES["fedsls"], "quick")
    every = {tuple(run.items()) for grid in grids for run in GRID.runs("fedsls", "quick", grid)}
    assert int(total["grid"]) == len(every) > 100
    assert (total["there"], total["kept"]) == ("54", "0")
    assert (digits["methods"], digits["names"]) == ("6", ", ".join(FEW))
    assert total["diverged_runs"] == "moon digits dir0.05 seed 1"
    first = rows(out, "fedsls_quick_claims.csv")[0]
    assert first["comparisons"] == "12"  # four of eight others, three partitions
    assert first["pairs_diverged"] == "1"
    counted = [int(first[name]) for name in ("held", "failed", "undecided")]
    assert sum(counted) == 12
    assert first["missing"] == "12"  # the four others without runs
    assert digits["rounds_of_client"] == "8.0"  # 40 rounds, a fifth of the clients in each
    assert digits["shared"] == ""
    assert "counted" in STUDIES["fedlmd"]["scales"]["small"]["grids"]  # of no accuracies
    assert "counted" not in making.find_grids(STUDIES["fedlmd"], "small")


def test_a_claim_does_not_hold_while_comparisons_have_no_runs():
    runs = made.runs({"fedsls": [60, 61, 63], "fedavg": [50, 51, 52]})
    every = pd.concat([runs, made.runs({"moon": [0, 0, 0]})])
    claim = {"says": "", "section": "", "method": "fedsls", "over": ["fedavg", "moon"]}
    bounds = ({"least": 0}, {"least": 0, "share": 0.4}, {"least": 12}, {"least": 13})
    study = {"claims": [claim | bound for bound in bounds]}
    study["products"] = {"claims": {"from": {"runs": "runs/main"}}}
    found = evidence.judge_claims(
        "p", "small", study, lambda entry: {"runs": runs}, every[making.RUN]
    )
    said = ["undecided", "holds", "undecided", judging.SMALLER]  # 12 is outside for k = 1 only
    assert found["claims"]["missing"].tolist() == [1, 1, 1, 1]
    assert found["claims"]["our_verdict"].tolist() == said
    smoothed = found["metrics"][found["metrics"]["metric"] == "smoothed"]
    assert smoothed["our_verdict"].tolist()[:2] == said[:2]


def test_a_method_without_the_measure_is_not_missing():
    names = made.runs({"ab": [50, 51, 52], "AB": [60, 61, 62]})[making.RUN]
    candidates = pd.concat([names, names.assign(protocol="p-lr2")])

    def count(wanted, runs=None, tuned=False, measure=("accuracy", "personal accuracy")) -> int:
        claim = {"method": "ab", "over": "AB", "measure": [*measure]}
        return judging.count_missing({"claims": [claim]}, wanted, runs, tuned)[1]

    assert (count(names, names), count(names, names[names["method"] == "ab"])) == (0, 2)
    assert (count(names), count(candidates), count(candidates, tuned=True)) == (2, 4, 2)
    assert count(names, measure=["ssim mean"]) == 0


@pytest.mark.slow
def test_what_all_seeds_share_is_said(tmp_path):
    runs = making.list_grid_runs("fedlmd", "small", GRID).to_dict("records")
    for names in (of for of in runs if of["method"] in ("fedavg", "fedlmd")):
        leave(tmp_path, {name: names[name] for name in making.RUN})
    ask(tmp_path / "page.html", tmp_path, "fedlmd")
    page = beside(tmp_path / "page.html", "fedlmd")
    total, *_ = rows(tmp_path / "page.html", "fedlmd_small_runs.csv")
    assert (total["shared"], total["rounds_of_client"]) == ("cohorts and partition", "6.0")
    assert "say nothing about other draws of" in page
    assert problems(look(page, tmp_path)["texts"], tmp_path / "page") == []


def test_hours_are_those_of_the_summaries(out, results, tmp_path):
    (row,) = rows(out, "fedsls_quick_made.csv")
    folders = (results / "runs/fedsls-quick").rglob("summary.json")
    seconds = [json.loads(path.read_text())["seconds"] for path in folders]
    assert float(row["hours"]) == pytest.approx(sum(seconds) / 3600, abs=1e-4)
    assert (row["runs"], row["code"], row["torch"]) == ("54", "0123456789ab", "2.8.0")
    (tmp_path / "summary.json").write_text(json.dumps({"seconds": 7, "trained_as": {}}))
    assert making.read_maker(tmp_path / "summary.json")["seconds"] == 0  # a link took no time


def test_every_comparison_has_its_seeds(out):
    seeds = rows(out, "fedsls_quick_seeds.csv")
    own = [row for row in rows(out, "fedsls_quick_contrasts.csv") if row["metric"] == "tail"]
    keys = ("claim", *judging.COMPARED)
    for contrast in own:
        ours = [row for row in seeds if all(row[key] == contrast[key] for key in keys)]
        assert len(ours) == int(contrast["seeds"]) > 0
        if np.isfinite(float(contrast["difference"] or "nan")):
            mean = np.mean([float(row["difference"]) for row in ours])
            assert mean == pytest.approx(float(contrast["difference"]), abs=1e-3)


def test_seeds_that_might_decide_are_said_of_undecided_claims(out):
    every = [row for study in PARTS for row in rows(out, f"{study}_quick_claims.csv")]
    seeds = [row["seeds_needed"] for row in every if row["our_verdict"] == judging.UNDECIDED]
    finite = [number for number in seeds if np.isfinite(float(number or "nan"))]
    page = "".join(beside(out, study) for study in PARTS)
    assert page.count("seeds might decide") == len(finite) > 0
    there = [row for row in rows(out, "fedsls_quick_claims.csv") if row["comparisons"] != "0"]
    lost = [row for row in there if row["pairs_diverged"] != "0"]
    said = beside(out, "fedsls").count("pairs of runs of which one diverged")
    assert said == len(lost) > 0


def test_a_comparison_that_is_decided_needs_no_further_seeds(tmp_path):
    """The claim is undecided, because others of its comparisons have no runs."""
    runs = making.list_grid_runs("fedsls", "quick", GRID)[making.RUN].to_dict("records")
    for names in (of for of in runs if of["method"] in ("fedavg", "fedsls")):
        leave(tmp_path, names)
        if names["method"] == "fedsls":
            path = tmp_path / "runs" / RUN.format(**names) / "metrics.csv"
            pd.read_csv(path).assign(accuracy=0.9).to_csv(path, index=False)
    ask(tmp_path / "page.html", tmp_path, "fedsls", grid=ONE_CLAIM)
    first = rows(tmp_path / "page.html", "fedsls_quick_claims.csv")[0]
    assert (first["our_verdict"], first["held"]) == ("undecided", "3")
    assert float(first["seeds_needed"]) == 3
    assert "might decide" not in card(tmp_path / "page.html", "fedsls-1")


def card(out: Path, anchor: str) -> str:
    """The card of a claim on the page of its paper."""
    page = beside(out, anchor.partition("-")[0])
    (found,) = re.findall(rf'<article class="claim split" id="{anchor}".*?</article>', page, re.S)
    return found


def test_metrics_that_change_a_verdict_are_said_in_words(out):
    words = {True: judging.ROBUST, False: judging.DEPENDS}
    for study in PARTS:
        by_claim: dict[str, set] = {}
        for row in rows(out, f"{study}_quick_metrics.csv"):
            by_claim.setdefault(row["claim"], set()).add(row["our_verdict"])
        for row in rows(out, f"{study}_quick_claims.csv"):
            assert row["robust"] == words[len(by_claim[row["claim"]]) == 1]


def test_other_metrics_have_comparisons_of_their_own(out):
    table = pd.read_csv(out.with_suffix("") / "fedsls_quick_contrasts.csv")
    sizes = table[table["measure"] == "accuracy"].groupby("metric").size()
    asked = STUDIES["fedsls"]["products"]["claims"]["with"]
    assert sorted(sizes.index) == sorted(evidence.list_ways(asked))
    assert sizes.nunique() == 1
    metrics = pd.read_csv(out.with_suffix("") / "fedsls_quick_metrics.csv")
    for row in metrics[np.isfinite(metrics["difference"])].itertuples():
        part = table[(table["claim"] == row.claim) & (table["metric"] == row.metric)]
        assert row.difference in {*part["difference"]}


def test_a_scale_without_runs_says_how_to_make_them(out):
    (row,) = rows(out, "fedlmd_quick_runs.csv")
    assert row["there"] == "0"
    asked = "snakemake --cores all --config study=fedlmd scale=quick"
    assert row["command"] == asked
    assert asked in beside(out, "fedlmd")
    assert not (out.with_suffix("") / "fedlmd_quick_claims.csv").exists()


def test_printed_tables_of_a_claim_are_those_that_it_compares():
    every = [printed_row((STUDIES["fedlmd"], one)) for one in STUDIES["fedlmd"]["claims"]]
    named = evidence.list_compared_tables(
        STUDIES["fedlmd"], [one["published_verdict"] for one in every]
    )
    assert named[0] == "table1 cifar10"
    assert named[15] == "table5 cifar10"
    assert "table3 all" in named[5]
    assert named[18] == ""  # no table has other betas
    words = {row["published_verdict"] for row in map(printed_row, all_claims())}
    assert words == {"", judging.CONSISTENT, judging.PARTLY, *judging.AGAINST}
    found = {marks.find_mark(word).name for word in words}
    assert found == {"none", "holds", "inconsistent", "narrowly"}


def test_runs_kept_in_another_way_are_shown(out):
    cells = pd.read_csv(find_study("fedlmd").with_name("reference") / "fedlmd.csv")[CELL]
    assert len(rows(out, "fedlmd_reference.csv")) == len(cells.drop_duplicates()) > 0
    assert "full setting</h3>" in beside(out, "fedlmd")


def test_the_tally_counts_every_sentence_of_a_paper_once_in_each_column(out):
    for row in rows(out, "tally.csv"):
        counts = [int(row[name]) for name in marks.MARKS]
        claims_of = STUDIES[row["study"]].get("claims", [])
        own = [claim for claim in claims_of if not claim.get("added")]
        assert sum(counts) == int(row["claims"]) == len(own)
        assert int(row["tested"]) == len(own) - int(row["none"])
    (facts,) = rows(out, "facts.csv")
    own = [(study, claim) for study, claim in all_claims() if not claim.get("added")]
    cited = [claim for study, claim in own if "cite" in study]
    assert int(facts["claims"]) == len(cited) > 0
    assert int(facts["added"]) == len(all_claims()) - len(own) > 0  # rows of ours
    assert facts["tested"] == "0"  # the quick scale is of no real data


# -- ties -----------------------------------------------------------------------------------------

TIE = "In this comparison both have the same value with every seed."


@pytest.mark.slow
def test_methods_that_are_equal_with_every_seed_are_said_to_be(tmp_path):
    runs = making.list_grid_runs("privatization", "quick", GRID)[making.RUN].to_dict("records")
    there = [names for names in runs if names["method"] in ("AB", "AaBb")]
    for names in there:
        leave(tmp_path, names)
    ask(tmp_path / "apart.html", tmp_path, "privatization")
    assert TIE not in beside(tmp_path / "apart.html", "privatization")
    for names in there:
        to, of = (tmp_path / "runs" / RUN.format(**names | {"method": m}) for m in ("AaBb", "AB"))
        shutil.copy(of / "metrics.csv", to)
    ask(tmp_path / "equal.html", tmp_path, "privatization")
    assert TIE in beside(tmp_path / "equal.html", "privatization")


# -- kept runs ------------------------------------------------------------------------------------


def test_kept_runs_count_and_are_said_to_be_kept(out, results, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "store_folder", lambda study, scale, *_: tmp_path / study / scale)
    monkeypatch.setattr(keep, "read_grid", lambda *_: GRID)
    asked = making.find_grids(STUDIES["fedsls"], "quick")
    keep.main(["fedsls", "quick", "--results", str(results), "--grid", *asked])
    page = tmp_path / "page.html"
    ask(page, tmp_path / "no results", "fedsls", grid=ONE_CLAIM)
    total, _ = rows(page, "fedsls_quick_runs.csv")
    assert (total["there"], total["kept"], total["diverged"]) == ("54", "54", "1")
    (made_with,) = rows(page, "fedsls_quick_made.csv")
    (before,) = rows(out, "fedsls_quick_made.csv")
    assert (made_with["kept"], before["kept"]) == ("True", "False")
    assert made_with["fedgrid"]
    assert made_with["hours"] == before["hours"]
    columns = (*judging.COMPARED, "seeds", "verdict")  # kept numbers have eight digits only
    ours, theirs = (
        [[row[name] for name in columns] for row in contrasts if row["claim"] == "1"]
        for contrasts in (rows(of, "fedsls_quick_contrasts.csv") for of in (page, out))
    )
    assert ours == theirs != []


# -- placebos -------------------------------------------------------------------------------------

CONTRAST = {"claim": 1, "measure": "accuracy", "method": "fedsls", "over": "fedavg"}
CONTRAST |= {"protocol": "p", "dataset": "digits", "partition": "dir0.5 to dir0.1"}
CONTROL = {"of": "accuracy", "method": "fedsls", "plain": "fedavg", "placebo": "uniform"}
CONTROL |= {"protocol": "p", "dataset": "digits", "partition": "dir0.1"}


def test_controls_of_the_study_are_beside_the_claims_about_its_method(out):
    controls = rows(out, "fedsls_quick_controls.csv")
    assert [row["placebo"] for row in controls] == ["fedsls+swapped"] * 3
    assert "verdict_tail" not in controls[0]  # the protocol's own metric
    for row in controls:
        found = {row["verdict"], row["verdict_best"], row["verdict_smoothed"]}
        assert row["changes"] == str(len(found) > 1)
    first = card(out, "fedsls-1")
    shown = set(re.findall(r'row="(fedsls_quick_controls.csv:\d)" data-column="gain"', first))
    assert shown == {f"fedsls_quick_controls.csv:{line}" for line in (2, 3, 4)}


@pytest.mark.parametrize(
    ("contrast", "control", "same"),
    [
        *((contrast, {}, True) for contrast in ({}, {"over": "uniform"})),
        ({}, {"partition": "dir0.5"}, True),
        *(({}, {field: "x"}, False) for field in ("method", "plain", "partition", "of")),
        *(({}, {field: "x"}, False) for field in ("protocol", "dataset")),
        ({"measure": "personal accuracy"}, {"of": "own_mean"}, True),
        ({"measure": "personal accuracy"}, {}, False),
        ({"measure": "steadiness"}, {}, False),  # it is another number of the same runs
    ],
)
def test_controls_of_a_claim_are_those_of_its_methods_settings_and_measure(
    contrast, control, same, tmp_path
):
    tables = {"contrasts": CONTRAST | contrast, "controls": CONTROL | control}
    sheets = {
        name: Sheet(tmp_path / f"{name}.csv", pd.DataFrame([row])) for name, row in tables.items()
    }
    assert sections.find_controls("1", sheets) == sheets["controls"].rows * same
    assert sections.find_controls("2", sheets) == []


@pytest.mark.slow
def test_a_claim_shows_the_three_differences_of_its_placebo(results, tmp_path, monkeypatch):
    control = CONTROL | {"protocol": "fedsls-quick", "plain": "fedsl-f2", "partition": "dir0.5"}
    control |= {f"{name}_label": f"{name} 7" for name in ("method", "plain", "placebo", "dataset")}
    control |= {"protocol_label": "P", "verdict": "the placebo gains, too"}
    control |= {"verdict_best": "undecided", "verdict_smoothed": "no gain", "changes": True}
    control |= {"gain_pairs": 3, "placebo_gain_pairs": 2, "beyond_placebo_pairs": 2}
    for at, name in enumerate(("gain", "placebo_gain", "beyond_placebo")):
        control |= {name: at + 0.25, f"{name}_low": at - 0.5, f"{name}_high": at + 1.5}
    table = {"controls": pd.DataFrame([control])}
    monkeypatch.setattr(
        evidence, "draw_controls", lambda n, scale, *_: table if scale == "quick" else {}
    )
    ask(tmp_path / "page.html", results, "fedsls")
    first = card(tmp_path / "page.html", "fedsls-1")
    shown = re.findall(r'data-column="(?:gain|placebo_gain|beyond_placebo)\w*">([^<]+)<', first)
    assert shown[:3] == ["+1.25", "0.50", "2.50"]  # beside the placebo's line of the plot
    assert shown[3:12] == [
        *("+0.25", f"{MINUS}0.50", "1.50"),
        *("+1.25", "0.50", "2.50"),
        *("+2.25", "1.50", "3.50"),
    ]
    assert shown[12:15] == ["3", "2", "2"]
    other = re.findall(r'data-column="verdict_(\w+)">([^<]+)<', first)
    assert other[:2] == [("best", "undecided"), ("smoothed", "no gain")]
    page = beside(tmp_path / "page.html", "fedsls")
    assert problems(look(page, tmp_path)["texts"], tmp_path / "page") == []


# -- without runs, and with broken ones -----------------------------------------------------------


def test_studies_without_runs_or_claims_and_with_a_damaged_run_are_on_the_page(tmp_path):
    study = {key: STUDIES["fedsls"][key] for key in ("title", "protocols", "scales", "variants")}
    plain = study | {"products": {}}
    grid = with_one_claim(plain=plain, cited=plain | {"cite": {"authors": "A and B"}})
    names = {"protocol": "fedsls-quick", "dataset": "digits", "partition": "dir0.1"}
    for method in ("fedavg", "fedsls"):
        leave(tmp_path / "results", names | {"method": method, "seed": 0})
    broken = tmp_path / "results/runs/fedsls-quick/digits/dir0.1/fedsls/seed0/metrics.csv"
    broken.write_text("round\n")
    out, without = tmp_path / "page.html", ("fedlmd", "baselines")
    page = unescape(ask(out, tmp_path / "results", "fedsls", *without, "plain", "cited", grid=grid))
    assert f"the run in {broken} cannot be read" in beside(out, "fedsls")
    assert page.count("The study has no claims.") == 2
    assert all(claim["says"] in page for name in without for claim in STUDIES[name]["claims"])
    tally = [row for row in rows(out, "tally.csv") if row["study"] in without]
    assert {row["study"] for row in tally} == {*without}
    assert all(of["column"] == write.PRINTED or of["none"] == of["claims"] for of in tally)


def test_a_baseline_alone_is_compared_with_nothing_and_an_empty_table_is_said(tmp_path):
    leave(tmp_path, GRID.runs("fedsls", "quick", "table1")[0])
    asked = ("fedsls", "quick", ONE_CLAIM, tmp_path)
    assert {*evidence.gather_scale(*asked)["claims"]["comparisons"]} == {0}
    scores = tmp_path / "studies/fedsls/quick/fidelity/scores.csv"
    scores.parent.mkdir(parents=True)
    scores.touch()
    tables = evidence.gather_scale(*asked)
    assert f"{scores} cannot be read as a table" in tables["runs"]["problem"][0]
    assert [*evidence.gather_scale("fedsls", "paper", GRID, tmp_path)] == ["runs"]


def test_tables_of_runs_that_are_gone_are_removed(results, judged_once, tmp_path):
    out = tmp_path / "verdicts.html"
    ask(out, results, "fedsls")
    assert (tmp_path / "verdicts/fedsls_quick_claims.csv").exists()
    (tmp_path / "verdicts/mine.csv").write_text("a\n1\n")
    ask(out, tmp_path / "nothing", "fedsls")
    assert not (tmp_path / "verdicts/fedsls_quick_claims.csv").exists()
    assert (tmp_path / "verdicts/mine.csv").exists()


def test_other_files_and_studies_are_refused(judged_once, tmp_path):
    with pytest.raises(UsageError, match=r"is not a page: give a name that ends with .html"):
        verdicts.main(["--out", str(tmp_path / "page.txt")])
    with pytest.raises(UsageError, match="no study is called `fedsl`: did you mean fedsls"):
        verdicts.main(["--study", "fedsl"])
    with pytest.raises(UsageError, match="--claim is about one study: name it with --study"):
        verdicts.main(["--out", str(tmp_path / "a.svg"), "--claim", "1"])
    with pytest.raises(UsageError, match=r"is not a picture: give a name that ends with .svg"):
        verdicts.main(["--out", str(tmp_path / "a.html"), "--claim", "1", "--study", "fedsls"])


# -- parts ----------------------------------------------------------------------------------------


def draw(tmp_path: Path, seeds: list[float], **values) -> tuple[str, bars.Axis]:
    """A line as SVG, of a row with these values, and its axis."""
    (row,) = Sheet(tmp_path / "a.csv", pd.DataFrame([values])).rows
    one, allowed = bars.Bar(row, seeds=seeds), (0.0, np.inf)
    axis = bars.fit_axis([one], allowed)
    return bars.draw_line(one, axis, allowed), axis


def test_a_number_names_its_row_and_that_of_diverged_runs_is_words(tmp_path):
    table = pd.DataFrame([dict(x=-1.256, text="<b>", y=np.inf, z=-np.inf, nothing=np.nan)])
    (row,) = Sheet(tmp_path / "a.csv", table).rows
    assert row.mark_number("x", "{:+.2f}") == (
        f'<span data-row="a.csv:2" data-column="x">{MINUS}1.26</span>'
    )
    link = '<a href="all_rows.html#a.csv:2" data-column="text">&lt;b&gt;</a>'
    assert row.link_text("text") == link
    assert "the other runs diverged" in row.mark_number("y")
    assert "its runs diverged" in row.mark_number("z")
    assert row.mark_number("nothing") == row.mark_number("none") == ""


def test_a_line_has_every_seed_and_shades_what_the_claim_allows(tmp_path):
    svg, axis = draw(tmp_path, [1.0, 3.0], difference=2.0, low=-1, high=5)
    assert svg.count('class="seed"') == 2
    zero = axis.place(0)
    assert f'class="allowed" x="{zero}%" width="{100 - zero:.2f}%"' in svg


def test_a_far_end_is_cut_off_with_an_arrow_and_an_infinite_mean_is_not_drawn(tmp_path):
    svg, axis = draw(tmp_path, [1.0, 3.0], difference=2.0, low=-90, high=3.5)
    assert -10 < axis.low < 3.5 < axis.high
    assert svg.count('class="arrow"') == svg.count('class="mean"') == 1
    svg, _ = draw(tmp_path, [np.inf], difference=np.inf, low=np.nan, high=np.nan)
    assert 'class="mean"' not in svg


@pytest.mark.parametrize("end", [np.inf, np.nan])
def test_a_line_without_an_interval_is_hollow(tmp_path, end):
    svg, _ = draw(tmp_path, [2.0], difference=2.0, low=-end, high=end)
    assert 'class="effect hollow"' in svg
    assert svg.count('class="seed"') == svg.count('class="mean"') == 1
    assert "arrow" not in svg
    assert 'class="ends"' not in svg


def test_what_is_drawn_differs_enough_from_what_it_is_drawn_on():
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [of / 12.92 if of <= 0.04 else ((of + 0.055) / 1.055) ** 2.4 for of in parts]
        return 0.05 + np.dot((0.2126, 0.7152, 0.0722), linear)

    for scheme in re.findall(r":root \{.*?\}", marks.read_part("plot.css")):
        colours = {name: light(of) for name, of in re.findall(r"--(\w+): #(\w{6})\b", scheme)}
        for name in ("effect", "seed", "placebo", "printed", "zero"):
            weak, strong = sorted((colours[name], colours["band"]))
            assert strong / weak >= 3, name


@pytest.mark.parametrize(("low", "high"), [(-0.003, 0.004), (-9, 31), (0, 4000), (-1e-7, 0)])
def test_an_axis_has_a_few_round_ticks(low, high):
    axis = bars.make_axis([low, high], [])
    assert 2 <= len(axis.ticks) <= 7
    assert 0 in axis.ticks
    assert all(axis.reaches(value) for value in [low, high, *axis.ticks])


# -- the picture of a claim -----------------------------------------------------------------------


def test_the_picture_of_a_claim_has_its_sentence_test_and_placebo(results, judged_once, tmp_path):
    asked = ["--claim", "1", "--study", "fedsls", "--results", str(results)]
    verdicts.main([*asked, *CONFIG, "--out", str(tmp_path / "claim.svg")])
    texts = ElementTree.parse(tmp_path / "claim.svg").getroot().itertext()
    text = " ".join(" ".join(texts).split())
    assert STUDIES["fedsls"]["claims"][0]["says"] in text
    assert "We test: FedSLS minus each of" in text
    assert "placebo: FedSLS, swapped" in text
    asked = ["--claim", "5", *asked[2:], *CONFIG, "--out", str(tmp_path / "claim.svg")]
    with pytest.raises(UsageError, match="claim 5 of fedsls has no runs to draw"):
        verdicts.main(asked)


@pytest.mark.slow
def test_readme_has_the_bar_and_the_findings_of_the_page_of_kept_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "store_folder", STORE_FOLDER)
    out = tmp_path / "verdicts.html"
    verdicts.main(["--results", str(tmp_path), *CONFIG, "--out", str(out)])
    monkeypatch.setattr(hooks, "VERDICTS", out)
    assert max(path.stat().st_size for path in list_pages(out)) < 10**6
    assert (tmp_path / "verdicts/bar.svg").read_text() == (ROOT / "docs/bar.svg").read_text()
    readme = (ROOT / "README.md").read_text()
    assert f"[start:findings] -->\n{hooks.findings()}\n<!--" in readme


def test_kept_runs_that_were_trained_again_are_counted(monkeypatch):
    """Two of the three runs of a scale are kept, and one of these was trained again."""
    names = {"protocol": "mini", "dataset": "digits", "partition": "dir0.1", "method": "fedavg"}
    finished = pd.DataFrame([names | {"seed": n, "kept": n < 2} for n in range(3)])
    noted = [
        {"path": f"runs/mini/digits/dir0.1/fedavg/seed{n}", "date": f"2026-01-0{n + 1}",
         "same": "False", "last": "0.0123", "device": "a", "kept_device": "a"}
        for n in (1, 2)
    ]  # fmt: skip
    monkeypatch.setattr(making.trained_again, "read_noted", lambda folder: noted)
    (row,) = COUNT_AGAIN("mine", "small", finished).to_dict("records")
    assert row.keys() == AGAIN.keys()
    assert (row["kept"], row["again"], row["first_date"]) == (2, 1, "2026-01-02")
    assert row["farthest"] == pytest.approx(1.23)
    monkeypatch.setattr(making.trained_again, "read_noted", lambda folder: [])
    assert COUNT_AGAIN("mine", "small", finished).empty


def test_the_first_page_says_how_many_methods_are_better_by_the_whole_rule(page):
    card = page.partition("By the whole rule of a comparison")[2].partition("</article>")[0]
    texts = re.findall('data-column="([^"]*)">([^<]*)<', card)
    first = {"better": "1", "others": "3", "baseline": "FedAvg", "better_methods": "SSP"}
    assert texts[:4] == [*first.items()]
    assert texts[-3:] == [("left_out", "the placebos"), ("better", "2"), ("more", "MOON")]


def test_the_page_of_a_paper_has_the_sentence_about_such_runs(out):
    assert "keep normalization quick --again N</code>" in beside(out, "normalization")
    assert AGAIN["said"] in beside(out, "normalization")
    assert "--again" not in beside(out, "fedsls")


def test_the_bar_has_a_part_for_each_verdict_that_sentences_have():
    counts = {"holds": 3, "direction": 0, "equal": 0, "undecided": 6, "fails": 1}
    facts = Row("facts.csv", 2, {f"real_{name}": str(n) for name, n in counts.items()})
    picture = ElementTree.fromstring(verdict_bar.draw_bar(facts))
    (title, *entries) = [of.text for of in picture.iter(f"{SVG}text")]
    assert title.startswith("10 sentences")
    assert entries == ["3 hold", "6 are undecided", "1 does not hold"]
    widths = [float(of.get("width")) for of in picture.iter(f"{SVG}rect") if of.get("fill")]
    assert len(widths) == 3
    assert widths[0] / widths[2] == pytest.approx(3, rel=0.1)


def finding(*printed: str) -> dict:
    """The headline of a paper that prints these differences, each with two placebos."""
    shown = []
    for at, text in enumerate(printed):
        names = {"label": f"comparison {at}", "difference": "1", "printed": text}
        placebos = [
            {"placebo_label": f"placebo {gain}", "placebo_gain": gain, "placebo_gain_low": "0"}
            for gain in ("2", "5")
        ]
        beneath = [bars.Bar(Row("b.csv", 2, of), "", "placebo_gain") for of in placebos]
        shown.append(bars.Bar(Row("a.csv", 2, names), placebos=beneath))
    row = Row("claims.csv", 2, {"claim": "1", "our_verdict": "holds"})
    at = sections.AtScale("small", row, [SimpleNamespace(bars=shown)])
    headline = {"at": at, "shown": SimpleNamespace(row={"says": "a sentence"})}
    (found,) = write.list_headlines([SimpleNamespace(name="mine", headline=headline)])
    return found


def test_the_headline_is_the_comparison_with_the_largest_printed_difference():
    assert finding("3", "7", "5")["label"] == "comparison 1"
    assert finding("", "")["label"] == "comparison 0"
    assert (finding("3")["placebo"], finding("3")["placebo_gain"]) == ("placebo 5", 5.0)


def test_a_comparison_in_words_has_labels_and_both_ends_of_a_growth():
    row = {"measure": "early accuracy", "method": "fedsls", "over": "fedavg", "dataset": "cifar10"}
    row |= {"partition": "dir0.5 to dir0.1", "protocol": ""}
    words = "FedSLS minus FedAvg; early accuracy; CIFAR-10, alpha=0.5 to alpha=0.1"
    assert claim_text.write_comparison(row, STUDIES["fedsls"]) == words


def test_scales_are_in_order_and_the_papers_is_the_last():
    study = {"scales": {"paper": {}, "quick": {}, "small": {}}}
    found = write.list_scales(SimpleNamespace(studies={"a": study}))
    assert found == ["quick", "small", "paper"]


def all_claims() -> list[tuple[dict, dict]]:
    return [(study, claim) for study in STUDIES.values() for claim in study.get("claims", [])]


def printed_row(of: tuple[dict, dict]) -> dict:
    study, claim = of
    return judging.judge_printed(claim, measure_printed(study["title"]), study)


@cache
def measure_printed(title: str) -> pd.DataFrame:
    """The printed means of the study of this title."""
    (study,) = (study for study in STUDIES.values() if study["title"] == title)
    return measures.measure_printed(study)
