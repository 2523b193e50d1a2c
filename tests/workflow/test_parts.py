"""Parts of a study, added rows, shared runs and single claims, by Snakemake."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from conftest import TABLE, copied
from workflows import PART_OF_TINY, RUNS, planned, rewrite, snakemake, start

STUDY = "results/studies/fedsls/quick"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """A project in which nothing has been made; only dry runs may be made in it."""
    return copied(tmp_path_factory.mktemp("fresh"))


def refused(project: Path, *arguments) -> str:
    """What Snakemake says when it refuses a command before anything runs."""
    process = start(project, "--cores", 1, *arguments)
    said, _ = process.communicate()
    assert process.returncode == 1, said
    assert "Traceback (most recent" not in said
    assert not (project / "results/data").exists()
    return said


# --- parts ---------------------------------------------------------------------------------------


def test_an_added_method_is_one_more_row(fresh):
    part = ("seed=0", "partition=dir0.1")
    plain = planned(fresh, "--config", *part)
    more = planned(fresh, "--config", *part, "method=+scaffold")
    assert more.trained == plain.trained | {"scaffold"}
    assert more.jobs["train"] == plain.jobs["train"] + 1 == 10


def test_the_product_of_a_part_has_a_folder_of_its_own(finished):
    there = {str(path.relative_to(finished)) for path in finished.rglob("table1.csv")}
    assert there == {
        *(TABLE, f"{STUDY}/{PART_OF_TINY}/table1.csv", f"{STUDY}/{PART_OF_TINY}/runs/table1.csv")
    }


def test_the_whole_studys_product_is_refused_for_a_part(fresh):
    said = refused(fresh, "--config", "seed=0", "--", f"{STUDY}/table1.csv")
    assert f"with this configuration table1 is in {STUDY}/seed=0" in said
    assert planned(fresh, "--config", "seed=0", target=f"{STUDY}/seed=0/table1.csv").jobs


def test_a_product_of_another_study_is_named_with_its_study(fresh):
    said = refused(fresh, "--", "results/leverage.csv")
    assert (
        "has no leverage: it is a product of normalization; add --config study=normalization"
        in said
    )


def test_a_sweep_from_the_configuration(fresh):
    """Of FedProx: 4 values with 3 seeds; one value is the default, which has another name."""
    (fresh / "mu.yaml").write_text(
        "sweep: {fedprox: {mu: [0.001, 0.01, 0.1, 1]}}\nmethod: [fedprox]\npartition: dir0.1\n"
    )
    plan = planned(fresh, "--configfile", "mu.yaml")
    assert plan.jobs["train"] == (4 + 1) * 3
    assert plan.trained == {"fedprox", *(f"fedprox-mu{mu}" for mu in ("0.001", "0.01", "0.1", "1"))}


def test_a_sweep_on_the_command_line(fresh):
    part = ("seed=0", "partition=dir0.1", "method=fedprox-mu0.2,fedavg")
    assert planned(fresh, "--config", *part).trained == {"fedavg", "fedprox-mu0.2"}
    said = refused(fresh, "--config", *part[:2], "method=fedprox-nu0.2", "--", TABLE)
    assert "a hyper-parameter of fedprox with its value" in said


def test_a_collected_table_can_be_asked_for_although_a_product_has_its_name(fresh):
    part = ("seed=0", "partition=dir0.1", "method=fedavg")
    folder = "results/studies/fedsls/quick/partition=dir0.1/method=fedavg/seed=0"
    jobs = planned(fresh, "--config", *part, target=f"{folder}/runs/table1.csv").jobs
    assert jobs == {"data": 1, "partition": 1, "train": 1, "runs_table": 1}


# --- shared runs ---------------------------------------------------------------------------------


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
    """The rows of the table."""
    with (project / TABLE).open() as file:
        return list(csv.DictReader(file))


def test_a_run_of_two_names_waits_for_the_first(fresh):
    """So that the second does not hold a core or a GPU while the first is trained."""
    run = "results/runs/{}/digits/dir0.1/fedavg/seed0/metrics.csv"
    same = run.format("fedsls-quick-tail3")
    said = snakemake(fresh, "--dry-run", "--config", "device=auto", "--", same)
    assert len(re.findall(r"^Job \d+: train: ", said, re.M)) == 2
    assert re.search(r"Reason: .*Input files updated by another job: .*runs/fedsls-quick/", said)


# --- one claim -----------------------------------------------------------------------------------


def test_one_claim_needs_its_own_runs_only(fresh):
    """Claim 7 compares static and dynamic weights at three partitions with three seeds."""
    plan = planned(fresh, target="results/claims/7.csv")
    assert plan.trained == {"fedsls", "fedsls_dynamic"}
    assert plan.jobs["train"] == 2 * 3 * 3
    assert not {"maps", "scores"} & plan.jobs.keys()
    one = planned(fresh, "--config", "seed=0", target="results/contrasts/7.html")
    assert one.jobs["train"] == 2 * 3


def test_a_claim_about_maps_needs_no_run(fresh):
    jobs = planned(fresh, target="results/claims/11.csv").jobs
    assert "train" not in jobs
    assert jobs["scores"] == 1


def test_a_claim_without_runs_at_this_scale_needs_nothing(project):
    shutil.rmtree(project / "results")
    snakemake(project, "--cores", 1, "--", "results/claims/5.csv")
    (row,) = csv.DictReader((project / "results/claims/5.csv").open())
    assert row["ours"] == "no runs at this scale"
    assert row["published_verdict"] == row["verdict"] == "contradicted by the paper's own table"
    assert row["claim"] == "5"


def test_a_claim_that_the_study_does_not_have_is_refused(fresh):
    said = refused(fresh, "--", "results/claims/99.csv")
    assert "the study fedsls has 17 claims: there is no claim 99" in said
