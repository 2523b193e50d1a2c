"""The dictionary of columns (docs/columns.yaml) has every column of every CSV, and no other."""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from test_report import SMALL

import made
from conftest import copied, methods
from dictionary import ABOUT, ANYWHERE, FILES, header, hooks, unknown
from fedgrid.commands import collect, draw
from fedgrid.report import clients
from fedgrid.runtime.code import own_data
from fedgrid.runtime.names import listed, registered
from fedgrid.store import tables as collected
from fedgrid.store.measured import MADE
from fedgrid.study.grid import Grid
from fedgrid.study.paths import COLLECTED, RUN
from fedgrid.study.products import product_module
from fedgrid.study.protocol import HELD
from fedgrid.study.reading import read_studies
from made import STUDIES
from planned import answers, plan_of, product_of
from workflows import snakemake
from written import ROOT

WITH_SMALL = [name for name, study in STUDIES.items() if "small" in study["scales"]]

UNITS = {"", "percent", "points of percent", "share", "nats", "seconds", "hours", "MiB", "MB"}
UNITS |= {"bytes", "rounds", "clients", "samples", "images", "classes", "seeds", "runs", "threads"}
UNITS |= {"rounds per second", "FLOP", "GFLOP", "TFLOP"}
MEASURED = ("average_last", "metrics", *HELD)  # fields of a protocol that add columns
SHRUNK = ("partition", "protocol")  # axes of which a block keeps one name


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
        kept = path.stem if path.stem in ("index", "again") else "tables"
        kept = kept if path.parent != folder else "curves" if "_" in path.stem else "cells"
        measured = path.with_name(MADE).exists()  # tables of an experiment
        of = f"experiment: {path.parent.name}/{path.stem}" if measured else f"kept: {kept}"
        assert unknown(of, header(path)) == [], path


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
    """Every kind of file, of few runs: of those that have columns which no other has.

    Or, if `every`, of a run of each protocol and method, and products of each module, options and
    kinds of files. It takes minutes, because what training and Snakemake write is what it reads.
    """
    monkeypatch.setenv(own_data.VARIABLE, "{}")
    project = copied(tmp_path / "project")
    for path in (project / "workflow/studies").glob("*.yaml"):
        path.write_text(yaml.safe_dump(shrunk(yaml.safe_load(path.read_text())), sort_keys=False))
    studies = read_studies(project / "workflow/studies")
    seen, tables = set(), smallest_tables(studies)
    for study in STUDIES:
        grid = Grid(studies, asked(study))
        files = [*new_runs(grid, study, every, seen), *tables.get(study, [])]
        files += new_products(grid, study, seen) if every else []
        snakemake(project, *OPTIONS, "--config", f"study={study}", *CONFIG, "--", *files)
    kinds = {name for name in FILES if name.partition(":")[0] in ("run", "collected", "experiment")}
    assert kinds <= assert_explained(project)


OPTIONS = ("--cores", "2", "--scheduler", "greedy", "--quiet", "all")
CONFIG = ("seed=0", "device=cpu", "kept=false")


def asked(study: str) -> dict:
    """The configuration of what is trained."""
    return {"study": study, "scale": "quick", "seed": [0]}


def kept_products(study: str) -> list[str]:
    """The products of a study that are drawn from its kept runs, without training one."""
    plan = plan_of(study=study, scale="small")
    names = plan.grid.products(study, "small")
    return [name for name in names if "train" not in product_of(plan, name)]


def new_runs(grid: Grid, study: str, every: bool, seen: set) -> list[str]:
    """The files of runs that have a mark that nothing in `seen` has; it grows.

    The marks of a run are what its protocol measures, and the files of its method that add columns;
    or, if `every`, its protocol and method.
    """
    found = []
    for name in grid.studies[study]["scales"]["quick"]["grids"]:
        for one in grid.runs(study, "quick", name):
            marks = {one["protocol"], one["method"]} if every else marks_of_columns(grid, one)
            if marks - seen:
                found.append(f"results/runs/{RUN.format(**one)}/metrics.csv")
            seen |= marks
    return found


def marks_of_columns(grid: Grid, run: dict) -> set:
    """What a run's protocol measures, and the files of its method that add columns."""
    protocol, parts = grid.protocol(run["protocol"]), grid.method(run["method"], run["dataset"])
    made = {file: methods(file, **given) for file, given in parts.items()}
    adding = {f for f, one in made.items() if one.observe or one.evaluate or one.evaluate_server}
    return {repr([protocol[field] for field in MEASURED]), *adding}


def smallest_tables(studies: dict[str, dict]) -> dict[str, list[str]]:
    """By study, the tables that it makes: of each kind that of the fewest runs in any study."""
    found: dict[str, tuple[int, str, str]] = {}
    for study in studies:
        grid = Grid(studies, asked(study))
        drawn = [grid.sources(study, "quick", one) for one in grid.products(study, "quick")]
        for text in [text for sources in drawn for text in sources.values()]:
            kind, _, of = text.partition("/")
            runs = grid.runs(study, "quick", of) if kind in COLLECTED else ()
            mark, place = (kind, f"seed=0/{text}") if kind in COLLECTED else (text, text)
            path = f"results/studies/{study}/quick/{place}.csv"
            found[mark] = min(found.get(mark, (len(runs), study, path)), (len(runs), study, path))
    return {study: [path for _, of, path in found.values() if of == study] for study in studies}


def new_products(grid: Grid, study: str, seen: set) -> list[str]:
    """The products with another module, options or kinds of files than all in `seen`; it grows."""
    found = []
    for name in grid.products(study, "quick"):
        entry = STUDIES[study]["products"][name]
        kinds = sorted({text.partition("/")[0] for text in entry["from"].values()})
        mark = (product_module(study, name, entry), *sorted(entry.get("with", {})), *kinds)
        if mark not in seen:
            found.append(f"results/{name}.csv")
        seen.add(mark)
    return found


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


def kind_of(parts: tuple[str, ...]) -> str | None:
    """The name that the dictionary has for a file below results/; "" for a copy of another."""
    folder, stem = parts[0], parts[-1].removesuffix(".csv")
    if len(parts) == 1 or folder == "checkpoints":
        return ""
    if folder == "runs":
        return f"run: {stem}"
    if folder in ("saliency", "interpolation"):
        return f"run: {folder}"
    study, _, *rest = [part for part in parts[1:] if part != "seed=0"]
    if rest[0] in collected.READERS and len(rest) == 2:
        return f"collected: {rest[0]}"
    products = STUDIES[study]["products"]
    if len(rest) == 1 and stem in products:
        return product_module(study, stem, products[stem]).replace("report.", "product: ")
    return f"experiment: {'/'.join(rest).removesuffix('.csv')}"
