"""What README.md and the documentation show works, and what they name is there.

A block of `sh` is run as it stands, in a copy of the project and after the blocks before it; the
files that a page shows with a title are written. A block of `{ .sh .plan }` takes too long, or
needs what a test does not have: its commands are planned in this process, as are those of README.md
and CONTRIBUTING.md, and by Snakemake itself with `-m exhaustive`. The blocks of `{ .python .run }`
of a page are one session. One of `{ .sh .slurm }` is planned here, and run by `tests/slurm`; one
of `{ .sh .storage }` is planned here, and its options are those of `test_storage.py`.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from snakemake.cli import parse_args, parse_config

from conftest import ENVIRONMENT, PROTOCOL, copied, simulate, slow_but, tiny, uneven
from fedgrid.__main__ import stages
from fedgrid.method import (
    Aggregated,
    Candidates,
    Client,
    Cohort,
    Method,
    Server,
    ServerData,
    Start,
    Step,
)
from fedgrid.runtime.names import UsageError, registered
from fedgrid.study import grid
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED
from fedgrid.study.reading import merge_configs, read_config, read_study
from fedgrid.study.stated import MEASURES, OF_MAPS
from made import STUDIES
from planned import jobs_of, plan_of, product_of
from shown import browse
from workflows import rewrite
from written import DOCS, OUTSIDE, PAGES, ROOT, Block, blocks

sys.path.insert(0, str(DOCS))
import hooks

# What stands for a program in a block that is planned: Snakemake plans, or words are written down.
BY_SNAKEMAKE = 'snakemake() { command snakemake --dry-run --quiet rules "$@"; }'
NOTED = 'snakemake() { { printf "%q " snakemake "$@"; echo; } >> "$PLANNED"; }'
OTHERS = """
make() { command make --dry-run "$@"; }
python() {
    if [ "${3-}" = new ]; then command python "$@"; return; fi
    { printf "%q " "$@"; echo; } >> "$PLANNED"
}
fedgrid() { python -m fedgrid "$@"; }
pip() { [ "$1" = install ]; }
"""
WITH_COMMANDS = [page for page in PAGES if blocks(page, "sh")]
FILES = r"`((?:workflow|tests|envs|docs)/[\w./-]+)`"
# Files that a reader writes, or that commands make.
WRITTEN = {one.file for page in PAGES for one in blocks(page)}


# -- commands -------------------------------------------------------------------------------------


def is_planned(one: Block, page: str) -> bool:
    """Whether the commands of a block are planned and not run."""
    return bool(one.classes) or page in OUTSIDE


def is_run(page: str) -> bool:
    """Whether something of a page is run, besides the first line of all pages."""
    run = [one.text for one in blocks(page, "sh") if not is_planned(one, page)]
    session = [one for one in blocks(page, "python") if "run" in one.classes]
    return bool(session or [text for text in run if not text.startswith(". .venv/bin/activate")])


PLANNED = [page for page in WITH_COMMANDS if not is_run(page)]


def test_the_guide_knows_what_snakemake_says_of_a_target_among_the_entries():
    with pytest.raises(ValueError, match="Unparsable value") as told:
        parse_config(["study=fedlmd", "results/table1.csv"])
    message = str(told.value).partition(" (")[0]
    guide = " ".join((DOCS / "guide/running.md").read_text("utf-8").split())
    assert f"`{message}`" in guide


@pytest.mark.parametrize("page", slow_but(PLANNED, WITH_COMMANDS))
def test_the_commands_of_a_page_work(page, tmp_path, monkeypatch):
    project = copy_for_readers(tmp_path)
    for one in blocks(page):
        follow(one, project, NOTED + OTHERS if is_planned(one, page) else "")
    session = "\n".join(one.text for one in blocks(page, "python") if "run" in one.classes)
    if session:
        say([sys.executable, "-c", session], project)
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(ROOT))
    for line in (project / "planned").read_text().splitlines():
        program, *words = shlex.split(line)
        if program == "snakemake":
            assert_planned(words)
        else:
            assert find_spec(words[0]), line
            assert words[0] != "fedgrid" or words[1].startswith("-") or words[1] in stages(), line


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_snakemake_plans_the_commands_of_a_page(page, tmp_path):
    project = copy_for_readers(tmp_path)
    for one in blocks(page):
        if "storage" not in one.classes:  # it would ask the storage
            follow(one, project, BY_SNAKEMAKE + OTHERS)


def copy_for_readers(folder: Path) -> Path:
    """The project as those have it who read its documentation, with a tenth of the quick rounds."""
    project = copied(folder / "project")
    rewrite(project / "workflow/studies/fedsls.yaml", "    rounds: 40\n", "    rounds: 4\n")
    for part in ("Makefile", "pyproject.toml", "mkdocs.yml", "README.md"):
        (project / part).write_bytes((ROOT / part).read_bytes())
    (project / "tests").symlink_to(ROOT / "tests")
    (project / "planned").touch()
    activate = project / ".venv/bin/activate"  # `make` installs the project that it is in
    activate.parent.mkdir(parents=True)
    activate.write_text('export PYTHONPATH="$PWD/workflow"\n')
    return project


def follow(one: Block, project: Path, before: str) -> None:
    """Write a file that a page shows, or run a block of commands after others, where these end."""
    here = project.parent / "here"
    place = Path(here.read_text().strip()) if here.exists() else project
    if one.file:
        path = place / one.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.text)
    elif one.language == "sh":
        text = f"{before}\n{one.text}\npwd > {here}"
        names = {"PLANNED": str(project / "planned"), "PYTHONPATH": str(project / "workflow")}
        say(["bash", "-euo", "pipefail", "-c", text], place, **names)


def assert_planned(words: list[str]) -> None:
    """Snakemake takes the options, and each target has jobs, by the plan of this process."""
    _, asked = parse_args(words)
    config: dict = {}
    for path in asked.configfile or []:
        config = merge_configs(config, read_config(path))
    config |= parse_config(asked.config)
    for target in asked.targets or ["all"]:
        assert asked.unlock or jobs_of_target(target, config), words


def jobs_of_target(target: str, config: dict) -> dict[str, set[str]]:
    """The jobs of a path, of a product, or of all products of a study."""
    folder, _, name = target.rpartition("/")
    if found := re.fullmatch("results/studies/([^/]+)/([^/]+)", folder):
        config, folder = config | {"study": found[1], "scale": found[2]}, "results"
    if target in STUDIES:
        config |= {"study": target}
    plan = plan_of(**config)
    if found := re.fullmatch(r"results/(\w+)/(\d+)\.\w+", target):  # one claim
        return product_of(plan, found[1], int(found[2]))
    products = plan.grid.products(plan.config["study"], plan.config["scale"])
    if folder == "results":
        assert name.partition(".")[0] in products, target
        products = [name.partition(".")[0]]
    elif folder:
        return jobs_of(plan, [target])
    return {rule: jobs for name in products for rule, jobs in product_of(plan, name).items()}


def say(command: list[str], place: Path, **more: str) -> None:
    """Run a command in a folder; it must succeed."""
    environment = ENVIRONMENT | {"PYTHONPATH": "workflow"} | more
    done = subprocess.run(command, cwd=place, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_block_says_whether_it_is_run(page):
    assert {one.classes for one in blocks(page, "sh")} <= {(), ("plan",), ("slurm",), ("storage",)}


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page):
    for module in set(re.findall(r"python -m (fedgrid\.\w+)", PAGES[page])):
        assert find_spec(module), module
    for path in set(re.findall(FILES, PAGES[page])) - WRITTEN:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", OUTSIDE)
def test_the_links_of_a_page_outside_of_the_documentation_lead_somewhere(page):
    """Those of other pages are checked by mkdocs, which knows the headings that it writes."""
    for file, anchor in re.findall(r"\]\((?!https?:)([^)#]+)#?([^)]*)\)", PAGES[page]):
        heading = rf"^#+ {anchor.replace('-', '.')}$" if anchor else ""
        assert re.search(heading, (ROOT / file).read_text(), re.MULTILINE | re.IGNORECASE), file


def test_the_readme_is_read_in_three_minutes():
    assert len(PAGES["README.md"].splitlines()) <= 130


@pytest.mark.parametrize(
    "record", [Step, Client, Cohort, Start, Candidates, Aggregated, Server, ServerData]
)
def test_the_page_of_a_round_has_every_field(record):
    """On a forge, where no code is listed, it is the only place that has them."""
    page = PAGES["guide/round.md"].partition("## Fields")[2].partition("## Rules")[0]
    table = page.partition(f"**`{record.__name__}`**")[2].partition("\n\n**`")[0] or page
    for field in {one.name for one in fields(record)} - {"differentiate"}:
        assert re.search(rf"`(data\.)?{field}(`|\()", table), field


# -- examples -------------------------------------------------------------------------------------


def test_the_method_of_the_tutorial_pulls():
    made = ModuleType("pull")
    exec(blocks("tutorials/method.md", "python")[0].text, made.__dict__)
    free, held = (
        simulate(made.method(mu=mu), "loop", uneven(), tiny, **PROTOCOL).play(2).server
        for mu in (0.0, 10.0)
    )
    initial = simulate(made.method(), "loop", uneven(), tiny, **PROTOCOL).run.server
    far, near = (torch.dist(state["head.weight"], initial["head.weight"]) for state in (free, held))
    assert near < far / 2


def test_the_method_with_memory_of_the_tutorial_goes_on():
    made = ModuleType("inertia")
    exec(blocks("tutorials/method.md", "python")[1].text, made.__dict__)
    none, some, plain = (
        simulate(method, "loop", uneven(), tiny, **PROTOCOL).play(2).server["head.weight"]
        for method in (made.method(mu=0.0), made.method(mu=0.1), Method())
    )
    assert torch.equal(none, plain)
    assert not torch.equal(some, plain)


def grid_of(text: str, folder: Path) -> Grid:
    """The grid of the studies and of one that is written in a file."""
    (folder / "mine.yaml").write_text(text)
    study = read_study(folder / "mine.yaml")
    return Grid(STUDIES | {"mine": study}, {"study": "mine", "scale": "quick"})


def test_the_least_study_is_one(tmp_path):
    made = grid_of(blocks("guide/study.md", "yaml")[0].text, tmp_path)
    assert made.products("mine", "quick") == ["convergence"]
    assert made.studies["mine"]["products"]["convergence"]["formats"] == ["csv", "svg", "txt"]
    assert len(made.runs("mine", "quick", "main")) == 2


def test_the_products_for_any_study_can_be_copied(tmp_path):
    study = yaml.safe_load(blocks("guide/study.md", "yaml")[0].text)
    given = yaml.safe_load(blocks("guide/products.md", "yaml")[0].text)
    kinds = {
        name: [s.partition("/")[0] for s in of["from"].values()]
        for name, of in given["products"].items()
    }
    (block,) = study["scales"]["quick"]["grids"]["main"]
    block["method"] += ["uniform", "power", "fedsls", "fedsls+swapped", "fedavg+norm"]
    block["method"] += ["fedavg+shuffled"]  # those that the options name
    study["products"] = {
        name: about for name, about in given["products"].items() if {*kinds[name]} <= {*COLLECTED}
    }
    made = grid_of(yaml.safe_dump(study, sort_keys=False), tmp_path)
    assert made.products("mine", "quick") == [*study["products"]]
    for about in made.studies["mine"]["products"].values():
        assert about["category"]
        assert about["formats"] in (["csv", "svg", "txt"], ["csv", "tex", "html"])


# -- pages that are made --------------------------------------------------------------------------


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_of_a_study_has_its_products_and_claims(study):
    page = hooks.on_page_markdown(PAGES[f"studies/{study}.md"])
    for product, about in STUDIES[study]["products"].items():
        assert f"**{product}**. " in page
        assert {*about["formats"]} & {*re.findall(rf"results/{product}\.(\w+)`", page)}
    for number, claim in enumerate(STUDIES[study].get("claims", []), start=1):
        link = f"[{number}](../verdicts.html#{study}-{number})"
        assert f"| {link} | {hooks.escape(claim['says'])} | {claim['section']} |" in page


def test_the_gallery_has_every_product_with_its_command():
    page = hooks.on_page_markdown(PAGES["gallery.md"])
    for study, about in STUDIES.items():
        for product, of in about["products"].items():
            assert page.count(f"**{product}**. "), (study, product)
            assert {*of["formats"]} & {*re.findall(rf"results/{product}\.(\w+)`", page)}


def test_a_study_with_a_mistake_is_left_out_of_the_lists(monkeypatch, request):
    wrong = STUDIES["fedsls"] | {"title": "wrong", "protocols": {}, "tuned": {"no": {}}}
    monkeypatch.setattr(grid, "read_studies", lambda: STUDIES | {"wrong": wrong})
    request.addfinalizer(hooks.everything.cache_clear)
    hooks.everything.cache_clear()
    for page in (hooks.studies(), hooks.papers()):
        assert "`fedsls`" in page
        assert "wrong" not in page
    with pytest.raises(UsageError, match=r"wrong\.yaml"):
        hooks.figures("wrong")


def test_every_method_is_in_one_section_of_the_list():
    sections = yaml.safe_load((DOCS / "papers.yaml").read_text())
    named = [name for papers in sections.values() for name in papers]
    assert sorted(named) == sorted(registered("methods"))
    page = hooks.on_page_markdown(PAGES["guide/methods.md"])
    for papers in sections.values():
        for name, paper in papers.items():
            (row,) = re.findall(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
            assert (f"]({paper})" in row) == bool(paper)
    papers = [paper for papers in sections.values() for paper in papers.values() if paper]
    assert f"| {len(papers)}, of {len({*papers})} papers |" in PAGES["README.md"]


def test_the_list_of_measures_has_every_measure():
    page = PAGES["guide/verdicts.md"].partition("## Measures")[2].partition("## Placebos")[0]
    listed = {*re.findall(r"`([^`]+)`", page)}
    parts = {word for name in OF_MAPS for word in name.split(" ", 1)}
    assert {*MEASURES} - {*OF_MAPS} | parts <= listed


def test_the_page_of_a_scale_counts_what_is_kept():
    """Marks are replaced in a page itself, not in what it includes."""
    for scale in ("small", "gpu"):
        page = hooks.on_page_markdown((DOCS / f"studies/{scale}.md").read_text())
        assert re.search(r"^\| `fedsls` \| [1-9]", page, re.MULTILINE), scale


def test_the_page_of_a_study_counts_the_claims_that_a_scale_does_not_test(tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "VERDICTS", tmp_path / "verdicts.html")
    assert hooks.untested("mine", "small") == []
    (tmp_path / "verdicts").mkdir()
    rows = (
        'reason,untested,claims,numbers\n,3,9,"2, 4, 5"\nthey are old,1,9,2\nno data,2,9,"4, 5"\n'
    )
    (tmp_path / "verdicts/mine_small_untested.csv").write_text(rows)
    (said,) = hooks.untested("mine", "small")
    assert said == (
        "At the scale `small`, 3 of 9 claims have no runs: 1, because they are old (2); "
        "2, because no data (4, 5)."
    )


def test_no_mark_of_a_page_is_left():
    for name, text in PAGES.items():
        marks = re.findall(r"<!-- (\w+)", text)
        if name not in OUTSIDE:
            assert {*marks} <= {"end", *hooks.TABLES}, name
            assert not re.search(r"^<!-- \w+( \w+)* -->$", hooks.on_page_markdown(text), re.M), name
            said = re.findall(r"^<!-- \w+[\w. ]* -->\n(.+?)\n<!-- end -->$", text, re.M | re.DOTALL)
            assert len(said) == text.count("<!-- end -->"), name  # a forge shows what is between
            assert all("`" in words for words in said), name


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the built documentation: of that which `.ci/run` has built, or of a new one."""
    if "FEDGRID_SITE" in os.environ:
        return Path(os.environ["FEDGRID_SITE"])
    folder = tmp_path_factory.mktemp("documentation") / "site"
    command = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    environment = ENVIRONMENT | {"PYTHONPATH": "workflow", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return folder


@pytest.mark.slow
def test_search_works_on_pages_that_are_opened_from_the_disk(site, tmp_path):
    address = (site / "index.html").as_uri()
    options = ("--virtual-time-budget=20000",)
    assert "md-search-result__item" in browse(f"{address}?q=dirichlet", tmp_path, *options)
    assert "md-search-result__item" not in browse(f"{address}?q=qwertz", tmp_path, *options)


@pytest.mark.slow
def test_the_documentation_is_built_without_a_network_and_has_every_page(site):
    assert (site / "verdicts.html").exists()
    assert (site / "verdicts/fedsls.html").exists()
    for page in PAGES.keys() - {*OUTSIDE}:
        text = (site / page).with_suffix(".html").read_text()
        assert not re.search(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?https?:""", text), page
        assert "--8<--" not in text
        assert not hooks.MARK.search(text), page
