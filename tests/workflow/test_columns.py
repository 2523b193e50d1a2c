"""The dictionary of columns (docs/columns.yaml) has every column of every CSV, and no other."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from test_report import SMALL

import made
from conftest import ENVIRONMENT, copied, methods
from fedgrid.commands import collect, draw
from fedgrid.method import Method
from fedgrid.report import clients
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import listed, registered
from fedgrid.store import tables as collected
from fedgrid.store.measured import MADE
from fedgrid.study.grid import Grid
from fedgrid.study.options import WAYS
from fedgrid.study.paths import COLLECTED, RUN
from fedgrid.study.products import product_module
from fedgrid.study.reading import read_studies
from made import STUDIES
from made_products import MANY_RUNS, make_table
from planned import answers, plan_of, product_of
from written import DOCS, ROOT

sys.path.insert(0, str(DOCS))
import hooks

WITH_SMALL = [name for name, study in STUDIES.items() if "small" in study["scales"]]

ABOUT = hooks.dictionary()
FILES = {of["name"]: of["columns"] for of in ABOUT["files"]}
UNITS = {
    "",
    "percent",
    "points of percent",
    "share",
    "nats",
    "seconds",
    "hours",
    "MiB",
    "MB",
    "bytes",
}
UNITS |= {"rounds", "clients", "samples", "images", "classes", "seeds", "runs", "threads"}
UNITS |= {"rounds per second", "FLOP", "GFLOP", "TFLOP"}
# What the marks in names of columns stand for.
FAMILIES = {"<k>": r"\d+", "<l>": r"\d+", "<class>": r".+", "<layer>": r"[\w.]+\.\w+"}
FAMILIES |= {"<metric>": "|".join(WAYS), "<name>": r"\w+", "<model>": "server|own"}
FAMILIES |= {"<statistic>": r"weighted|mean|spread|worst|best|decile\d", "<source>": r".+"}
# In collected tables and products, if there are any.
ANYWHERE = {"kept", "code_changed", "chosen", "chosen_by", "cited", "clients_without_tests"}
FEW = 12  # runs of a product that are trained for its columns without -m exhaustive
# By module, a product that it draws at the quick scale: of FedSLS, if that has one.
DRAWN = {
    product_module(study, name, STUDIES[study]["products"][name]): (study, name)
    for study in (*STUDIES, "fedsls")
    for name in made.GRID.products(study, "quick")
}
SHRUNK = ("partition", "protocol")  # axes of which a block keeps one name
OPTIONAL = {"of", "alpha"}  # of metrics other than accuracy; of Dirichlet partitions


def pattern(column: str) -> str:
    """A regular expression for the names of a column."""
    parts = re.split("(<[a-z]+>)", column)
    return "".join(f"({FAMILIES[p]})" if p in FAMILIES else re.escape(p) for p in parts)


def unknown(name: str, header: list[str]) -> list[str]:
    """The columns of a file that the dictionary does not have for it."""
    there = [pattern(one) for one in (*hooks.columns_of(name, FILES), *ANYWHERE, *OPTIONAL)]
    return [one for one in header if not any(re.fullmatch(p, one) for p in there)]


def header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file))


# -- the dictionary itself ------------------------------------------------------------------------


def test_every_column_has_a_unit_of_the_list_and_a_sentence():
    for name, (unit, meaning) in ABOUT["columns"].items():
        assert unit in UNITS, name
        assert re.fullmatch(r"[A-Z].*\.", meaning), name


def test_every_column_is_of_a_file_and_every_column_of_a_file_is_explained():
    used = {one for name in FILES for one in hooks.columns_of(name, FILES)} | ANYWHERE
    assert used == ABOUT["columns"].keys()


def test_every_module_that_draws_a_product_is_there():
    modules = {f"product: {name}" for name in registered("report")}
    for study in STUDIES:
        modules |= {f"product: {study}.{name}" for name in registered(f"report/{study}")}
    assert modules <= FILES.keys()
    assert {f"collected: {kind}" for kind in COLLECTED} <= FILES.keys()


def test_every_kept_table_is_explained():
    folder = ROOT / "workflow/studies/reference"
    for path in folder.rglob("*.csv"):
        kept = "index" if path.stem == "index" else "tables"
        kept = kept if path.parent != folder else "curves" if "_" in path.stem else "cells"
        measured = path.with_name(MADE).exists()  # tables of an experiment
        of = f"experiment: {path.parent.name}/{path.stem}" if measured else f"kept: {kept}"
        assert unknown(of, header(path)) == [], path


@pytest.mark.parametrize(
    ("module", "study", "name"),
    [
        pytest.param(module, *one, marks=pytest.mark.slow if one[1] in MANY_RUNS else ())
        for module, one in DRAWN.items()
    ],
)
def test_a_product_of_made_up_runs_is_explained(module, study, name):
    table = make_table(study, name)
    assert unknown(module.replace("report.", "product: "), [*table]) == []


def test_an_unknown_column_is_noticed():
    assert unknown("run: predictions", ["round", "class", "predicted", "new"]) == ["new"]
    assert unknown("run: metrics", ["server_decile3", "recall_7", "server_decile"]) == [
        "server_decile"
    ]


def test_the_deciles_of_clients_are_explained():
    rows = [made.client_rows([0.1, 0.5], [0.2, 0.6], seed=seed) for seed in (0, 1)]
    table = clients.draw(pd.concat(rows), study=made.STUDY, scale="quick")
    assert unknown("product: clients", [*table]) == []


# -- files of all studies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(s, marks=pytest.mark.slow if s == "fedsls" else pytest.mark.exhaustive)
        for s in WITH_SMALL
    ],
)
def test_every_column_of_products_of_kept_runs_is_explained(study, tmp_path, monkeypatch):
    monkeypatch.setenv(own_data.VARIABLE, "{}")
    for name in kept_products(study):
        draw_kept(study, name, tmp_path)
    assert_explained(tmp_path)


def draw_kept(study: str, name: str, project: Path) -> None:
    """Draw a product from kept runs as the workflow does, with the tables that it is drawn from."""
    plan = plan_of(study=study, scale="small")
    folder, sources = project / f"results/studies/{study}/small", []
    for source, text in plan.grid.sources(study, "small", name).items():
        kind, _, grid = text.partition("/")
        path = folder / f"{text}.csv"
        if kind not in COLLECTED:
            path = answers(plan).experiments.file(study, "small", text)
        elif not path.exists():
            words = answers(plan).tables.words(kind, study, "small", grid)
            collect.main([kind, *words, "--results", str(project / "none"), "--out", str(path)])
        sources.append(f"{source}={path}")
    options = ["--study", study, "--scale", "small", "--out", str(folder / f"{name}.csv")]
    draw.main([name, *options, *(["--sources", *sources] if sources else [])])


def assert_explained(project: Path) -> set[str]:
    """The dictionary has every column of the files under results/; the kinds of files."""
    found = [*(project / "results").rglob("*.csv")]
    named = {path: kind_of(path.relative_to(project / "results").parts) for path in found}
    assert None not in named.values(), [path for path, name in named.items() if name is None]
    wrong = {path: unknown(name, header(path)) for path, name in named.items() if name}
    assert {path: columns for path, columns in wrong.items() if columns} == {}
    return {*named.values()}


@pytest.mark.parametrize(
    "every",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.exhaustive)],
)
def test_every_column_of_files_of_short_runs_is_explained(every, tmp_path, monkeypatch):
    """Of a run of each protocol and of each method that adds a column; or of all runs.

    Of products those that are drawn from a kind of file that no other is, if they have few runs; or
    one of each module, options and kinds of files.
    """
    monkeypatch.setenv(own_data.VARIABLE, "{}")
    project = copied(tmp_path / "project")
    for path in (project / "workflow/studies").glob("*.yaml"):
        path.write_text(yaml.safe_dump(shrunk(yaml.safe_load(path.read_text())), sort_keys=False))
    studies = read_studies(project / "workflow/studies")
    seen = set()
    for study in STUDIES:
        options = ("--config", f"study={study}", "seed=0", "device=cpu", "kept=false", "--")
        snakemake(project, *options, *targets(Grid(studies, asked(study)), study, every, seen))
    run(project, sys.executable, "-m", "fedgrid", "verdicts", "--out", "results/verdicts.html")
    kinds = assert_explained(project)
    assert {"run: clients", "run: saliency", "verdicts: tally"} <= kinds


def snakemake(project: Path, *arguments: str) -> None:
    """Make files in the project, on a CPU."""
    command = ["snakemake", "--cores", "2", "--scheduler", "greedy", "--quiet", "all"]
    run(project, *command, *arguments)


def asked(study: str) -> dict:
    """The configuration of what is trained."""
    return {"study": study, "scale": "quick", "seed": [0]}


def kept_products(study: str) -> list[str]:
    """The products of a study that are drawn from its kept runs, without training one."""
    plan = plan_of(study=study, scale="small")
    names = plan.grid.products(study, "small")
    return [name for name in names if "train" not in product_of(plan, name)]


def targets(grid: Grid, study: str, every: bool, seen: set) -> list[str]:
    """The files of runs and products that have a mark that nothing in `seen` has; it grows.

    The marks of a run are its protocol, and the files of its method that add columns or, if
    `every`, the method.
    """
    found = []
    for name in grid.studies[study]["scales"]["quick"]["grids"]:
        for one in grid.runs(study, "quick", name):
            parts = grid.method(one["method"], one["dataset"])
            adding = (file for file, given in parts.items() if adds_columns(methods(file, **given)))
            marks = {one["protocol"], *([one["method"]] if every else adding)}
            if marks - seen:
                found.append(f"results/runs/{RUN.format(**one)}/metrics.csv")
            seen |= marks
    for name in grid.products(study, "quick"):
        cheap = every or len(runs_of(grid, study, name)) <= FEW
        marks = marks_of_product(study, name, every)
        if cheap and marks - seen:
            found.append(f"results/{name}.csv")
            seen |= marks
    return found


def adds_columns(method: Method) -> bool:
    """Whether a method's runs have columns that FedAvg's do not have."""
    return bool(method.observe or method.evaluate or method.evaluate_server)


def runs_of(grid: Grid, study: str, product: str) -> list[dict]:
    """The runs that a product is drawn from."""
    parts = [text.partition("/") for text in grid.sources(study, "quick", product).values()]
    grids = {of for kind, _, of in parts if kind in COLLECTED}
    return [run for name in grids for run in grid.runs(study, "quick", name)]


def marks_of_product(study: str, name: str, every: bool) -> set:
    """The kinds of files that a product is drawn from; if `every`, one mark of all that it has."""
    product = STUDIES[study]["products"][name]
    kinds = {text.partition("/")[0] for text in product["from"].values()}
    options = sorted(product.get("with", {}))
    return {(product_module(study, name, product), *options, *sorted(kinds))} if every else kinds


def shrunk(study: dict) -> dict:
    """A study of two rounds; a block has one partition, protocol and rate; small experiments."""
    for name, fields in study["protocols"].items():
        if "quick" in name:
            fields |= {"rounds": 2, "tail": 2, "evaluate_every": 1, "pretrain_epochs": 1}
    quick, before = study["scales"]["quick"], names_of_grids(study)
    for block in (block for blocks in quick["grids"].values() for block in blocks):
        block |= {axis: listed(block[axis])[:1] for axis in SHRUNK if axis in block}
        for field, values in block.get("sweep", {}).get("protocol", {}).items():
            block["sweep"]["protocol"][field] = values[:1]
    quick |= {name: quick[name] | small for name, small in SMALL.items() if name in quick}
    gone = before - names_of_grids(study)
    study["claims"] = [
        claim for claim in study.get("claims", []) if not gone & names_of_claim(claim)
    ]
    return study


def names_of_grids(study: dict) -> set[str]:
    """The partitions and protocols in all grids."""
    grids = [grid for scale in study["scales"].values() for grid in scale["grids"].values()]
    blocks = [block for grid in grids for block in grid]
    return {n for block in blocks for axis in SHRUNK for n in listed(block.get(axis))}


def names_of_claim(claim: dict) -> set[str]:
    """The partitions and protocols of a claim, which must be in a grid."""
    given = [claim.get("partition"), claim.get("protocol"), *claim.get("along", {}).values()]
    return {name for names in given for name in listed(names)}


def run(project: Path, *command: str) -> None:
    environment = ENVIRONMENT | {"PYTHONPATH": "workflow"}
    done = subprocess.run(command, cwd=project, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def kind_of(parts: tuple[str, ...]) -> str | None:
    """The name that the dictionary has for a file below results/; "" for a copy of another."""
    folder, stem = parts[0], parts[-1].removesuffix(".csv")
    if len(parts) == 1 or folder == "checkpoints":
        return ""
    if folder == "runs":
        return f"run: {stem}"
    if folder in ("saliency", "interpolation"):
        return f"run: {folder}"
    if folder == "verdicts":
        return f"verdicts: {stem.rpartition('_')[2]}"
    study, _, *rest = [part for part in parts[1:] if part != "seed=0"]
    if rest[0] in collected.READERS and len(rest) == 2:
        return f"collected: {rest[0]}"
    products = STUDIES[study]["products"]
    if len(rest) == 1 and stem in products:
        return product_module(study, stem, products[stem]).replace("report.", "product: ")
    return f"experiment: {'/'.join(rest).removesuffix('.csv')}"
