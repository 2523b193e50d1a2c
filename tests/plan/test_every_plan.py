"""Every study is planned at every scale with all of its products, which read what is kept.

`pytest -rP tests/plan/test_every_plan.py` prints study, scale, jobs and seconds of each, and with
`-m exhaustive` those of Snakemake itself.
"""

import json
import math
import subprocess
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import ENVIRONMENT, copied
from fedgrid.checking.model import try_model
from fedgrid.plan.configuration import variables
from fedgrid.plan.runs import FILES, Runs
from fedgrid.runtime.code import own_data
from fedgrid.stages import train
from fedgrid.study import sizes
from fedgrid.study.jobs import measure_model
from made import STUDIES
from planned import answers, listed, plan_of, rules_of, walked, wildcards

PLACES = [(study, scale) for study, about in STUDIES.items() for scale in about["scales"]]


def told(place: tuple[str, str], jobs: int, began: float) -> None:
    print(f"{place[0]:14} {place[1]:6} {jobs:6} jobs {time.monotonic() - began:6.1f} s")


@pytest.fixture
def plan(monkeypatch):
    """A plan of another study, whose runs keep no state but those that a product reads."""
    monkeypatch.setattr(sizes, "measure_sizes", lambda model, inputs: sizes.UNKNOWN)
    monkeypatch.setattr(train, "identify", lambda *_: SimpleNamespace(key=""))
    plan = plan_of(keep_state_gb=0)
    for name, value in {**variables(plan), own_data.VARIABLE: "{}"}.items():
        monkeypatch.setenv(name, value)
    return plan


@cache
def jobs_of_products(study: str, scale: str) -> list:
    """All jobs that the products of a study at a scale need."""
    plan, place = plan_of(keep_state_gb=0), wildcards(scale=scale)
    products, names = answers(plan).products, plan.grid.products(study, scale)
    tables = [path for n in names for path in products.sources(study, n)(place).values()]
    return [*walked(plan, tables)]


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_every_product_is_planned(plan, place):
    began = time.monotonic()
    jobs = jobs_of_products(*place)
    assert {rule for rule, *_ in jobs} > {"train", "runs_table"} or place[1] != "paper"
    told(place, len(jobs), began)


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_no_model_of_a_study_is_measured_to_plan_it(place):
    """`make sizes` measures those that this names."""
    grid, (study, scale) = plan_of(keep_state_gb=0).grid, place
    grids = grid.studies[study]["scales"][scale]["grids"]
    names = [names for one in grids for names in grid.runs(study, scale, one)]
    first = {(one["protocol"], one["dataset"]): one for one in names}
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "measure_sizes", lambda *one: asked.append(one) or sizes.UNKNOWN)
        for one in first.values():
            measure_model(grid.resolve(one))
    there = json.loads(sizes.SHIPPED.read_text())
    assert asked
    assert [one for one in asked if sizes.name_sizes(*one) not in there] == []


def test_the_shipped_size_of_a_model_is_that_of_today():
    inputs = json.dumps({"shape": [1, 8, 8], "classes": 10, "tokens": 0})
    shipped = json.loads(sizes.SHIPPED.read_text())[sizes.name_sizes("cnn", inputs)]
    assert shipped == try_model("cnn", inputs)


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_what_a_product_reads_is_kept_by_its_run(plan, place):
    """Also if the run is trained under another name: the state of a finished run is kept there."""
    rules, runs = rules_of(plan), Runs(plan)
    ends = {Path(path).name for path in FILES.values()}
    for rule, _, names in jobs_of_products(*place):
        read = map(Path, listed(rules[rule][1], names))
        assert {path.name for path in read if path.is_relative_to("results/runs")} <= ends
        if rule == "interpolation":
            run = runs.resolve(names)
            for one in (run, runs.plan.grid.resolve(runs.first_name(run) or run["name"])):
                assert train.ended_states(one, {}, Path("checkpoint"), None).limit == math.inf


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_snakemake_plans_every_product(place, tmp_path):
    began, (study, scale) = time.monotonic(), place
    command = ["snakemake", "-n", "--config", f"scale={scale}", "--", study]
    folder = copied(tmp_path)
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told(place, int((done.stdout + done.stderr).partition("\ntotal")[2].split()[0]), began)
