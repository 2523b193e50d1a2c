"""Parts of a study, shared runs and single claims, by Snakemake; `test_plan.py` asks the plan."""

import csv
import shutil
from pathlib import Path

import pytest

from conftest import TABLE
from fedgrid.analysis.verdicts import CONTRADICTED
from workflows import PART_OF_TINY, RUNS, planned, rewrite, snakemake

STUDY = "results/studies/fedsls/quick"


# --- parts ---------------------------------------------------------------------------------------


def test_the_product_of_a_part_has_a_folder_of_its_own(finished):
    there = {str(path.relative_to(finished)) for path in finished.rglob("table1.csv")}
    assert there == {
        *(TABLE, f"{STUDY}/{PART_OF_TINY}/table1.csv", f"{STUDY}/{PART_OF_TINY}/runs/table1.csv")
    }


# --- shared runs ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_renaming_a_protocol_trains_nothing(project):
    """The runs of the new name are links, and pretrained models and saliency are not made again."""
    rewrite(project / "tiny.yaml", "tiny: {base", "small: {base")
    rewrite(project / "tiny.yaml", "base: tiny", "base: small")
    rewrite(project / "tiny.yaml", "protocol: tiny", "protocol: small")
    command = ("--cores", 2, "--configfile", "tiny.yaml")
    plan = planned(project, *command)
    assert plan.jobs == {"train": 4, "runs_table": 1, "fedsls_table1": 1, "results_table1": 1}
    before = rows(project)
    snakemake(project, *command, "--", TABLE)
    assert [row | {"protocol": "tiny"} for row in rows(project)] == before
    for method in plan.trained:
        new = project / RUNS.replace("tiny", "small") / method / "seed0/model.safetensors"
        kept = f"results/checkpoints/runs/tiny/digits/dir0.1/{method}/seed0.safetensors.finished"
        assert new.samefile(project / kept / "model.safetensors")


def rows(project: Path) -> list[dict]:
    with (project / TABLE).open() as file:
        return list(csv.DictReader(file))


# --- one claim -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_claim_without_runs_at_this_scale_needs_nothing(project):
    shutil.rmtree(project / "results")
    snakemake(project, "--cores", 1, "--", "results/claims/5.csv")
    (row,) = csv.DictReader((project / "results/claims/5.csv").open())
    assert row["ours"] == "no runs at this scale"
    assert row["published_verdict"] == row["verdict"] == CONTRADICTED
    assert row["claim"] == "5"
