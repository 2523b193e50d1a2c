"""The workflow as a whole: what it plans, makes, leaves alone, makes again, and goes on with.

Everything runs in a copy of the project, on a grid (`tiny.yaml`) that takes seconds.
"""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from conftest import CURVES, ENVIRONMENT, TABLE, TEX, copied, saved_round
from fedgrid.runtime.code import source
from fedgrid.study.grid import read_grid
from fedgrid.study.jobs import run_of_stage, stage_modules
from fedgrid.study.protocol import ANY_METHOD, AXES, STAGES, known_before
from made import GRID, STUDY
from workflows import (
    PART_OF_TINY,
    RUNS,
    new_times_on_every_file,
    planned,
    rewrite,
    snakemake,
    start,
)

HERE = Path(__file__).parents[1]
PRODUCTS = {name: STUDY["products"][name] for name in GRID.products("fedsls", "quick")}
DRAWN = {"fedsls_table1": 1, "results_table1": 1}
SUMMED = DRAWN | {"runs_table": 1}
METHODS = ["fedavg", "moon", "fedau", "fedsls"]
OF_TINY = f"studies/fedsls/quick/{PART_OF_TINY}"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """A project without results, for dry runs."""
    return copied(tmp_path_factory.mktemp("fresh"))


# -- what there is to do ------------------------------------------------------------------------


def test_everything_is_planned_once(fresh):
    """Of one seed, by Snakemake: six seconds. `tests/plan` asks the plan for all studies."""
    jobs = planned(fresh, "--quiet", "rules", "--config", "seed=0", target="all").jobs
    # the table's three partitions; no other grid has more
    cells = dict.fromkeys(("partition", "pretrain", "saliency", "latents"), 3)
    assert cells.items() <= jobs.items()
    # beyond the table's: dynamic weights, three other taus, five readings, two protocols at two
    # alphas, three controls and six more methods of `concentration`, and ten whose costs are
    # counted; maps of four encoders, of which one needs no seed
    assert jobs["train"] == 27 + 3 + 3 + 5 + 2 * 2 + (3 + 6) * 3 + 10
    assert {name: jobs[name] for name in ("originals", "maps", "scores", "costs")} == {
        **{"originals": 1, "maps": 3 + 3 + 3 + 1, "scores": 1, "costs": 1}
    }
    products = {name: n for name, n in jobs.items() if name.startswith("fedsls_")}
    assert products == {f"fedsls_{name}": 1 for name in PRODUCTS}
    copies = {name: n for name, n in jobs.items() if name.startswith("results_")}
    assert copies == {f"results_{name}": len(of["formats"]) for name, of in PRODUCTS.items()}


EMPTY = ("--config", "scale=paper", "dataset=tinyimagenet")


def test_a_product_without_runs_is_refused_before_anything_runs(fresh):
    process = start(fresh, "--cores", 1, *EMPTY, "--", "results/figure4.pdf")
    said, _ = process.communicate()
    assert process.returncode == 1
    sentence = "figure4 of fedsls has no runs at the paper scale with dataset tinyimagenet"
    assert said.splitlines()[-1].startswith(f"error: {sentence}"), said
    assert "Traceback" not in said
    assert not (fresh / "results/data").exists()


@pytest.mark.slow
def test_a_product_of_other_names_never_counts_as_made(tmp_path):
    """Of seed 1 it is made; of seed 2 it cannot be collected, however often it is tried."""
    project, figure = copied(tmp_path), "results/figure4.csv"
    made = "results/partition/digits/dir0.1/classwise-20/seed2.npz"
    snakemake(project, "--cores", 2, "--config", "seed=1", "--", figure, made)
    (project / made).write_bytes(b"damaged")
    for target in (figure, "results/studies/fedsls/quick/seed=2/figure4.csv"):
        process = start(project, "--cores", 2, "--config", "seed=2", "--", target)
        said, _ = process.communicate()
        assert process.returncode == 1, said
        assert "Nothing to be done" not in said
    (project / made).unlink()
    snakemake(project, "--cores", 2, "--config", "seed=2", "--", figure)
    assert {row["seed"] for row in csv.DictReader((project / figure).open())} == {"2"}


@pytest.mark.slow
def test_a_table_whose_runs_failed_never_counts_as_made(project):
    """The table is there; code behind it is edited so that it fails, and is tried again."""
    file = "methods/moon"
    rewrite(project / f"{PACKAGE}/{file}.py", "away = -F.log", "away = -F.no_such_function")
    for _ in range(2):
        process = start(project, "--cores", 2, "--configfile", "tiny.yaml", "--", TABLE)
        said, _ = process.communicate()
        assert process.returncode == 1, said
        assert said.splitlines()[-1].startswith(f"error: {file}.py, line "), said


# -- from the raw data to the table -------------------------------------------------------------


def test_the_table_has_every_cell(finished):
    with (finished / TABLE).open() as file:
        cells = list(csv.DictReader(file))
    assert [cell["method"] for cell in cells] == METHODS
    said = {"dataset": "digits", "alpha": "0.1", "seeds": "1", "rounds": "2", "scale": "quick"}
    for cell in cells:
        assert said.items() <= cell.items()
        assert 0 < float(cell["mean"]) < 100
        assert {"std", "published", "difference"} <= cell.keys()
    written = (finished / TEX).read_text()
    assert all(STUDY["labels"][method] in written for method in METHODS)


def test_a_figure_of_the_same_runs_says_what_it_is_of(finished):
    said = "".join(ElementTree.parse(finished / CURVES).getroot().itertext())
    said = " ".join(said.split())
    assert all(word in said for word in ("FedAvg", "FedSLS", "quick scale", "2 rounds", "1 seed"))
    folder = finished / f"results/{OF_TINY}"
    assert {path.name for path in folder.glob("convergence.*")} == {
        *("convergence.csv", "convergence.pdf", "convergence.svg", "convergence.txt")
    }


def test_methods_share_a_partition_and_pretrained_models_do_not_stay(finished):
    results = finished / "results"
    partitions = [path.relative_to(results) for path in results.glob("partition/**/*.npz")]
    assert partitions == [Path("partition/digits/dir0.1/classwise-5/seed0.npz")]
    assert (results / ENCODED_IN).exists()
    assert not [path for path in (results / "pretrain").rglob("*") if path.is_file()]


def test_of_a_finished_run_only_its_last_state_takes_space(finished):
    kept = finished / "results/checkpoints"
    files = [path for path in (kept / "runs").rglob("*.*") if path.is_file()]
    others = {path.name for path in files if path.parent.name != "seed0.safetensors.finished"}
    state = {"seed0.safetensors.ended", "seed0.safetensors.ended.history"}
    assert others == state | {"000001.safetensors"}  # what MOON's clients keep
    notes = {path.suffix for path in (kept / "by_key").rglob("*.*") if path.is_file()}
    assert notes == {".note"}
    for path in kept.rglob("seed0.safetensors.finished/*"):
        run = path.parent.relative_to(kept).with_name("seed0")
        assert path.samefile(finished / "results" / run / path.name)


def test_every_run_was_shown_while_it_went_on(finished):
    """As tiny.yaml asks for; the file that grew is gone."""
    logs = finished / "results/logs/tensorboard/tiny/digits/dir0.1"
    shown = {path.parent.parent.name for path in logs.rglob("events.out.tfevents.*")}
    assert shown == {*METHODS}
    assert not [*finished.rglob("metrics.running.csv")]


def test_a_runs_summary_says_all_that_was_run(finished):
    run = json.loads((finished / RUNS / "moon/seed0/summary.json").read_text())["run"]
    everything = {"mu": 0.1, "tau": 0.5, "projection": 256, "before": "initial"}
    assert run["method"] == {"moon": everything}  # mu is the study's for digits
    assert run["name"] == dict(zip(AXES, ("tiny", "digits", "dir0.1", "moon", 0), strict=True))
    assert run["protocol"].keys() == set(STAGES["train"])
    assert (run["protocol"]["rounds"], run["protocol"]["lr"]) == (2, 0.3)


# -- what counts for a result -------------------------------------------------------------------

DATA, DEALT = "data/digits/meta.json", "partition/digits/dir0.1/classwise-5/seed0.npz"
CELL = "tiny/digits/dir0.1"
ENCODED_BY = read_grid(HERE / "tiny.yaml").cells("tiny")["saliency"]
SHARED = f"digits/dir0.1/{ENCODED_BY}/seed0"  # pretrained models, saliency
ENCODED_IN = f"saliency/{SHARED}.npz"
INPUTS = {  # by result: what it is made from
    DATA: [],
    DEALT: [DATA],
    f"pretrain/{SHARED}": [DATA, DEALT],
    ENCODED_IN: [DATA, DEALT, f"pretrain/{SHARED}"],
    f"runs/{CELL}/moon/seed0/metrics.csv": [DATA, DEALT],
    f"runs/{CELL}/fedsls/seed0/metrics.csv": [DATA, DEALT, ENCODED_IN],
    f"{OF_TINY}/runs/table1.csv": [f"runs/{CELL}/{method}/seed0/metrics.csv" for method in METHODS],
    f"{OF_TINY}/table1.csv": [f"{OF_TINY}/runs/table1.csv"],
    "table1.csv": [f"{OF_TINY}/table1.csv"],
}


@pytest.fixture(scope="module")
def counted(finished) -> dict[str, dict]:
    """By result, what Snakemake has written down: it makes again where these have changed."""
    paths = (finished / ".snakemake/metadata").iterdir()
    return {b64decode(path.name).decode(): json.loads(path.read_text()) for path in paths}


@pytest.mark.parametrize("result", INPUTS)
def test_the_inputs_of_a_result_count(result, counted):
    expected = [f"results/{path}" for path in INPUTS[result]]
    assert sorted(counted[f"results/{result}"]["input"]) == sorted(expected)


def run_of(method: str) -> dict:
    """A run of tiny.yaml, every name spelled out."""
    everything = read_grid(HERE / "tiny.yaml")
    names = dict(zip(AXES, ("tiny", "digits", "dir0.1", method, 0), strict=True))
    return everything.resolve(names)


@pytest.mark.parametrize(
    ("stage", "method", "result", "before"),
    [
        ("pretrain", ANY_METHOD, f"pretrain/{SHARED}", ["partition"]),
        ("saliency", ANY_METHOD, ENCODED_IN, ["partition", "pretrain"]),
        ("train", "moon", f"runs/{CELL}/moon/seed0/metrics.csv", ["partition"]),
        (
            *("train", "fedsls", f"runs/{CELL}/fedsls/seed0/metrics.csv"),
            ["partition", "pretrain", "saliency"],
        ),
    ],
)
def test_the_run_and_the_code_behind_it_count(stage, method, result, before, counted):
    """The code of the stages before it too: they may fail, and leave what is old."""
    run, said = run_of(method), counted[f"results/{result}"]["params"]
    modules = {"stages.data", "datasets.digits"}
    modules |= {module for one in (*before, stage) for module in stage_modules(one, run)}
    assert repr(source.fingerprint(*sorted(modules))) in said
    asked = run_of_stage(stage, run)
    asked["protocol"] = known_before(asked["protocol"])
    assert repr(json.dumps(asked, sort_keys=True)) in said


@pytest.mark.parametrize(
    ("result", "modules"),
    [
        (DATA, ["stages.data", "datasets.digits"]),
        (DEALT, ["stages.data", "datasets.digits", "stages.partition", "partitions.dirichlet"]),
        (f"{OF_TINY}/runs/table1.csv", ["store.tables"]),
        (f"{OF_TINY}/table1.csv", ["report._formats", "report.fedsls.table1"]),
        (f"{OF_TINY}/convergence.pdf", ["report._formats", "report.convergence"]),
    ],
)
def test_the_code_of_a_stage_counts(result, modules, counted):
    assert repr(source.fingerprint(*modules)) in counted[f"results/{result}"]["params"]


# -- what makes nothing again -------------------------------------------------------------------


def comments_layout_and_docstrings(project: Path) -> None:
    """Nothing that a computer reads."""
    package = project / "workflow/fedgrid"
    for file in (package / "methods/moon.py", package / "engine/round.py"):
        text = file.read_text().replace('"""', '"""Note: ', 1)
        file.write_text(text.replace("\n\n\n", "\n\n\n\n# a comment\n\n\n"))
    rewrite(package / "methods/moon.py", "return mu * pushes", "return mu  *  pushes")


def a_new_checkout(project: Path) -> None:
    """The same files, written again by git."""
    git = ["git", "-C", project, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "Snakefile", "config.yaml", "workflow", "envs"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
    for tracked in ("workflow", "envs"):
        shutil.rmtree(project / tracked)
    for tracked in ("Snakefile", "config.yaml"):
        (project / tracked).unlink()
    subprocess.run([*git, "checkout", "-q", "--", "."], check=True)


def test_nothing_is_made_again_in_another_place_for_what_changes_no_number(project):
    """A project that was moved, checked out, touched and commented on, in one dry run.

    Only Snakemake knows what it makes again: with git this takes six seconds.
    """
    comments_layout_and_docstrings(project)
    for file, old, new in HARMLESS:
        rewrite(project / "workflow" / file, old, new)
    a_new_checkout(project)
    new_times_on_every_file(project)
    assert planned(project, "--configfile", "tiny.yaml", "--config", "log=none").jobs == {}


# -- what is made again -------------------------------------------------------------------------

PACKAGE, WRITTEN = "workflow/fedgrid", "workflow/studies/fedsls.yaml"
ENCODED = SUMMED | {"pretrain": 1, "saliency": 1}

EDITED = (
    (WRITTEN, "digits: {mu: 0.1}", "digits: {mu: 0.2}"),  # of MOON
    (f"{PACKAGE}/encoders/guided.py", "return maps.mean(1)", "return 1.0 * maps.mean(1)"),
    (f"{PACKAGE}/methods/fedau.py", "cutoff: int = 50", "cutoff: int = 51"),
)


HARMLESS = (
    ("fedgrid/study/jobs.py", "round(4000 +", "round(5000 +"),  # the memory of a job
    ("fedgrid/engine/device.py", "torch sees no GPU", "there is no GPU"),  # an error
    ("fedgrid/report/convergence.py", ".round(4)", ".round(5)"),  # another product
    ("fedgrid/runtime/watch/progress.py", "EVERY = 10", "EVERY = 5"),
    ("schemas/study.schema.yaml", "its heading in report.html", "the heading"),
)


@pytest.mark.slow
def test_edits_of_methods_and_hyper_parameters_train_these_again(project):
    """MOON's hyper-parameter, FedAU's code and FedSLS's encoder; FedAvg is left alone.

    Of more edits `tests/plan/test_stale.py` asks in its own process.
    """
    for edit in EDITED:
        rewrite(project / edit[0], *edit[1:])
    trained = {"moon", "fedau", "fedsls"}
    assert planned(project, "--configfile", "tiny.yaml") == (ENCODED | {"train": 3}, trained)


@pytest.mark.slow
def test_a_figure_is_drawn_again_without_training(project):
    shown = 'set_xlabel("round")', 'set_xlabel("round of training")'
    rewrite(project / f"{PACKAGE}/analysis/figures.py", *shown)
    jobs = {"fedsls_convergence": 1, "results_convergence": 1}
    assert planned(project, "--configfile", "tiny.yaml", target=CURVES) == (jobs, set())
    said = snakemake(project, "--cores", 2, "--configfile", "tiny.yaml", "--", CURVES)
    assert "round of training" in (project / CURVES).read_text()
    assert said.count(f"Open {CURVES}") == 1


# -- the same bits ------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_job_at_a_time_gives_the_bits_of_two_at_a_time(finished, project):
    for made in ("runs", "checkpoints", "saliency"):
        shutil.rmtree(project / "results" / made)
    runs = [f"{RUNS}/{method}/seed0/metrics.csv" for method in ("moon", "fedsls")]
    snakemake(project, "--cores", 1, "--configfile", "tiny.yaml", "--", *runs)
    for run in runs:
        assert (project / run).read_bytes() == (finished / run).read_bytes()


@pytest.mark.slow
def test_a_forced_run_is_trained(project):
    forced = ("--force", f"{RUNS}/moon/seed0/metrics.csv")
    snakemake(project, "--cores", 2, "--configfile", "tiny.yaml", *forced)
    logs = project / RUNS.replace("results/", "results/logs/")
    said = {method: (logs / method / "seed0.log").read_text() for method in METHODS}
    assert [method for method in METHODS if "is forced" in said[method]] == ["moon"]


@pytest.mark.slow
def test_a_job_of_a_cluster_is_forced_only_if_its_command_forces_it(project):
    """Snakemake starts each job of a cluster with --force."""
    names = "protocol=tiny,dataset=digits,partition=dir0.1,method=moon,seed=0"
    command = ["snakemake", "--cores", "1", "--configfile", "tiny.yaml", "--mode", "remote"]
    command += ["--force", "--nolock", "--target-jobs", f"train:{names}"]
    for told, said in [
        ("", "is not trained again"),
        ('{"stages": ["train"], "command": "1"}', "is forced"),
    ]:
        done = subprocess.run(
            command, cwd=project, env=ENVIRONMENT | {"FEDGRID_FORCED": told}, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        log = project / RUNS.replace("results/", "results/logs/") / "moon/seed0.log"
        assert said in log.read_text()


LONG = "fedsls-quick-clients5-participation0.4-local2-rounds60-evaluate_every3"


def train(project: Path, method: str, out: str, save_every: float) -> subprocess.Popen:
    """`python -m fedgrid train`, without Snakemake, of a run that takes long enough to stop it."""
    run = f"{LONG}/digits/dir0.1/{method}/seed0"
    command = [sys.executable, "-m", "fedgrid", "train", run, "--out", out]
    options = ["--device", "cpu", "--save-every", save_every]
    return subprocess.Popen(
        [*command, *map(str, options)], cwd=project, env=ENVIRONMENT | {"PYTHONPATH": "workflow"},
        text=True, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_round(process: subprocess.Popen, checkpoint: Path, wanted: int = 5) -> None:
    """Until the process has saved the state of a round in the middle of its run."""
    deadline = time.monotonic() + 600
    while saved_round(checkpoint) < wanted:
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline, "no checkpoint within ten minutes"
        time.sleep(0.01)


def finish(process: subprocess.Popen) -> str:
    """What the process says on its way to a successful end."""
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def uninterrupted(finished, tmp_path_factory) -> Callable[[str], Path]:
    """`uninterrupted(method)` has what a long run leaves that goes from beginning to end."""
    project = shutil.copytree(finished, tmp_path_factory.mktemp("uninterrupted") / "project")

    def trained(method: str) -> Path:
        if not (project / method).exists():
            finish(train(project, method, method, 60))
        return project / method

    return trained


@pytest.mark.slow
def test_a_terminated_run_saves_says_so_and_continues(uninterrupted, project):
    method, checkpoint = "fedau", project / "ended/checkpoint"
    process = train(project, method, "ended", 0.1)
    wait_for_round(process, checkpoint)
    process.terminate()
    _, said = process.communicate(timeout=600)
    assert process.returncode not in (0, -signal.SIGTERM)
    at = int(re.search(r"^stopped after round (\d+): the same command resumes", said, re.M)[1])
    assert saved_round(checkpoint) == at
    finish(train(project, method, "ended", 60))
    assert summary(project / "ended")["resumed_at"] == at
    expected = (uninterrupted(method) / "metrics.csv").read_bytes()
    assert (project / "ended/metrics.csv").read_bytes() == expected


def trainer(snakemake: subprocess.Popen) -> psutil.Process:
    """The training process under a running Snakemake."""
    for process in psutil.Process(snakemake.pid).children(recursive=True):
        if process.cmdline()[1:4] == ["-m", "fedgrid", "train"]:
            return process
    raise AssertionError("no training process")


@pytest.mark.slow
def test_a_run_that_ended_after_snakemake_was_killed_is_not_trained_again(project):
    rewrite(project / f"{PACKAGE}/stages/train.py", "SAVE_EVERY = 120", "SAVE_EVERY = 0")
    run = "long/digits/dir0.1/fedau/seed0"
    wanted = ("--configfile", "tiny.yaml", "--", f"results/runs/{run}/metrics.csv")
    out = project / "results/runs" / run
    killed = start(project, "--cores", 1, *wanted)
    wait_for_round(killed, project / f"results/checkpoints/runs/{run}.safetensors")
    orphan = trainer(killed)
    killed.kill()
    orphan.wait(600)
    expected = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "metrics.csv" in expected

    snakemake(project, "--unlock", *wanted)
    refused = start(project, "--cores", 1, *wanted)  # what is there passes for half a result
    assert refused.wait(600) != 0
    snakemake(project, "--cores", 1, "--rerun-incomplete", *wanted)
    assert "was finished before" in (project / f"results/logs/runs/{run}.log").read_text()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == expected


@pytest.mark.slow
def test_snakemake_continues_a_run_whose_process_was_killed(uninterrupted, project):
    rewrite(project / f"{PACKAGE}/stages/train.py", "SAVE_EVERY = 120", "SAVE_EVERY = 0")
    run = "long/digits/dir0.1/moon/seed0"
    command = ("--cores", 1, "--configfile", "tiny.yaml", "--", f"results/runs/{run}/metrics.csv")
    checkpoint = project / f"results/checkpoints/runs/{run}.safetensors"
    killed = start(project, *command)
    wait_for_round(killed, checkpoint)
    trainer(killed).kill()
    killed.communicate(timeout=600)
    at = saved_round(checkpoint)
    assert killed.returncode != 0

    snakemake(project, *command)
    assert summary(project / "results/runs" / run)["resumed_at"] == at > 0
    expected = (uninterrupted("moon") / "metrics.csv").read_bytes()
    assert (project / "results/runs" / run / "metrics.csv").read_bytes() == expected
