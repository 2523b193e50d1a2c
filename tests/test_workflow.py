"""The workflow as a whole: what it plans, makes, leaves alone, makes again, and goes on with.

Everything runs in a copy of the project, on a grid (`tiny.yaml`) that takes seconds.
"""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import psutil
import pytest

from conftest import ENVIRONMENT, copied, saved_round
from fedgrid import grid, spec

HERE = Path(__file__).parent
TABLE, CURVES = "results/table1.csv", "results/convergence.svg"
PRODUCTS = grid.read_study(HERE.parent / "workflow/studies/fedsls.yaml")["products"]
DRAWN = {"fedsls_table1": 1, "results_table1": 1}
SUMMED = DRAWN | {"runs_table": 1}
METHODS = ["fedavg", "moon", "fedau", "fedsls"]
RUNS = "results/runs/tiny/digits/dir0.1"


class Plan(NamedTuple):
    """What a dry run would do: jobs by rule, and the methods that would be trained."""

    jobs: dict[str, int]
    trained: set[str]


def start(project: Path, *arguments) -> subprocess.Popen:
    """Snakemake in the project, started and not waited for."""
    command = ["snakemake", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=project, env=ENVIRONMENT, text=True, encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def snakemake(project: Path, *arguments) -> str:
    """What Snakemake says, if it succeeds."""
    process = start(project, *arguments)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def planned(project: Path, *options, target: str = TABLE) -> Plan:
    """What has to be done for the target."""
    said = snakemake(project, "--dry-run", *options, "--", target)
    jobs = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)}
    assert jobs or "Nothing to be done" in said, said
    jobs.pop("total", None)
    return Plan(jobs, set(re.findall(r"train: (\S+) on ", said)))


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace what is there exactly once."""
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A project with its table made; read it, and change only copies (`project`)."""
    folder = copied(tmp_path_factory.mktemp("finished"))
    tex = TABLE.replace(".csv", ".tex")
    snakemake(folder, "--cores", 2, "--configfile", "tiny.yaml", "--", TABLE, tex, CURVES)
    return folder


@pytest.fixture
def project(finished, tmp_path) -> Path:
    """A copy of the finished project, times of files and all, for a test to change."""
    return shutil.copytree(finished, tmp_path / "project")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """A project without results, for dry runs."""
    return copied(tmp_path_factory.mktemp("fresh"))


# -- what there is to do ------------------------------------------------------------------------


def test_the_quick_table_has_81_runs(fresh):
    shared = dict.fromkeys(("partition", "pretrain", "saliency", "latents"), 9)
    assert planned(fresh).jobs == {"data": 1, "train": 81} | shared | SUMMED


def test_everything_is_planned_once(fresh):
    jobs = planned(fresh, "--quiet", "rules", target="all").jobs
    # beyond the table's: dynamic weights, three other taus, five readings, two protocols at two
    # alphas; maps of three encoders, of which one needs no seed
    assert jobs["train"] == 81 + 9 + 3 * 3 + 5 * 3 + 2 * 2 * 3
    assert {name: jobs[name] for name in ("originals", "maps", "scores", "costs")} == {
        **{"originals": 1, "maps": 3 + 3 + 1, "scores": 1, "costs": 1}
    }
    products = {name: n for name, n in jobs.items() if name.startswith("fedsls_")}
    assert products == {f"fedsls_{name}": 1 for name in PRODUCTS}
    copies = {name: n for name, n in jobs.items() if name.startswith("results_")}
    assert copies == {f"results_{name}": len(of["formats"]) for name, of in PRODUCTS.items()}


def test_products_of_emptied_grids_are_left_out(fresh):
    options = ("--quiet", "rules", "--config", "scale=paper", "dataset=cifar100", "seed=0")
    jobs = planned(fresh, *options, target="all").jobs
    assert not {name for name in jobs if "ablation" in name or "pilot" in name}
    assert jobs["fedsls_figure4"] == jobs["fedsls_claims"] == jobs["fedsls_resources"] == 1


EMPTY = ("--config", "scale=paper", "dataset=tinyimagenet")


@pytest.mark.parametrize("place", ["results", "results/studies/fedsls/paper"])
def test_a_product_without_runs_is_refused_before_anything_runs(place, fresh):
    process = start(fresh, "--cores", 1, *EMPTY, "--", f"{place}/figure4.pdf")
    said, _ = process.communicate()
    assert process.returncode == 1
    sentence = "figure4 of fedsls has no runs at the paper scale with dataset tinyimagenet"
    assert len([line for line in said.splitlines() if sentence in line]) == 1, said
    assert "Traceback" not in said
    assert not (fresh / "results/data").exists()


def test_a_figure_of_one_seed_needs_the_partitions_of_one_seed(fresh):
    figure = {"data": 1, "partition": 3, "partition_table": 1}
    figure |= {"fedsls_figure4": 1, "results_figure4": 1}
    for seed in ("", "seed=2", "seed=7,8"):
        assert (
            planned(fresh, "--config", seed or "seed=", target="results/figure4.csv").jobs == figure
        )


def test_a_product_of_other_names_never_counts_as_made(tmp_path):
    """Of seed 1 it is made; of seed 2 it cannot be collected, however often it is tried."""
    project, figure = copied(tmp_path), "results/figure4.csv"
    made = "results/partition/digits/dir0.1/classwise-20/seed2.npz"
    snakemake(project, "--cores", 2, "--config", "seed=1", "--", figure, made)
    (project / made).write_bytes(b"damaged")
    for target in (figure, figure, "results/studies/fedsls/quick/figure4.csv"):
        process = start(project, "--cores", 2, "--config", "seed=2", "--", target)
        said, _ = process.communicate()
        assert process.returncode == 1, said
        assert "Nothing to be done" not in said
    (project / made).unlink()
    snakemake(project, "--cores", 2, "--config", "seed=2", "--", figure)
    assert {row["seed"] for row in csv.DictReader((project / figure).open())} == {"2"}
    assert planned(project, "--config", "seed=2", target=figure).jobs == {}
    assert planned(project, "--config", "seed=1", target=figure).jobs["fedsls_figure4"] == 1


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("methods/moon", "away = -F.log", "away = -F.no_such_function"),
     ("datasets/digits", "np.round(values", "np.no_such_function(values")],
)  # fmt: skip
def test_a_table_whose_runs_failed_never_counts_as_made(file, old, new, project):
    """The table is there; code behind it is edited so that it fails, and is tried again."""
    rewrite(project / f"{PACKAGE}/{file}.py", old, new)
    for _ in range(2):
        process = start(project, "--cores", 2, "--configfile", "tiny.yaml", "--", TABLE)
        said, _ = process.communicate()
        assert process.returncode == 1, said


def test_only_the_code_behind_a_figure_draws_it_again(tmp_path):
    project, figure = copied(tmp_path), "results/figure4.csv"
    snakemake(project, "--cores", 2, "--", figure)
    rewrite(project / f"{PACKAGE}/engine.py", "CHUNK = 64", "CHUNK = 65")
    assert planned(project, target=figure).jobs == {}
    rewrite(project / f"{PACKAGE}/partition.py", "GIVEN = 2", "GIVEN = 3")
    assert planned(project, target=figure).jobs["fedsls_figure4"] == 1


def test_the_papers_table_has_540_runs_and_is_planned_in_seconds(fresh):
    before = os.times()
    jobs = planned(fresh, "--quiet", "rules", "--config", "scale=paper").jobs
    seconds = sum(os.times()[2:4]) - sum(before[2:4])  # of children, user and system
    print(f"the paper's table was planned in {seconds:.1f} s of CPU")
    shared = dict.fromkeys(("partition", "pretrain", "saliency", "latents"), 60)
    stages = {"data": 4, "weights": 2, "train": 540} | shared
    assert jobs == stages | SUMMED
    assert seconds < 15


def test_a_part_of_the_papers_grid_can_be_asked_for(fresh):
    part = ["dataset=cifar10", "partition=dir0.05", "method=fedavg,fedsls", "seed=0", "scale=paper"]
    plan = planned(fresh, "--config", *part)
    assert (plan.jobs["train"], plan.trained) == (2, {"fedavg", "fedsls"})
    assert plan.jobs["partition"] == plan.jobs["data"] == 1


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
    assert all(method in (finished / "results/table1.tex").read_text() for method in METHODS)


def test_a_figure_of_the_same_runs_says_what_it_is_of(finished):
    said = "".join(ElementTree.parse(finished / CURVES).getroot().itertext())
    said = " ".join(said.split())
    assert all(word in said for word in ("FedAvg", "FedSLS", "quick scale", "2 rounds", "1 seed"))
    folder = finished / "results/studies/fedsls/quick"
    assert {path.name for path in folder.glob("convergence.*")} == {
        *("convergence.csv", "convergence.pdf", "convergence.svg")
    }


def test_the_table_can_be_shown(finished):
    command = [sys.executable, "-m", "fedgrid.draw", "table1", "--study", "fedsls"]
    here = ENVIRONMENT | {"PYTHONPATH": "workflow"}
    said = subprocess.check_output([*command, "--show", TABLE], cwd=finished, env=here, text=True)
    assert "quick scale" in said
    assert all(re.search(rf"^{method} +\d+\.\d\d", said, re.MULTILINE) for method in METHODS)


def test_methods_share_a_partition_and_pretrained_models_do_not_stay(finished):
    results = finished / "results"
    partitions = [path.relative_to(results) for path in results.glob("partition/**/*.npz")]
    assert partitions == [Path("partition/digits/dir0.1/classwise-5/seed0.npz")]
    assert (results / "saliency/tiny/digits/dir0.1/seed0.npz").exists()
    assert not [path for path in (results / "pretrain").rglob("*") if path.is_file()]


def test_of_a_finished_run_nothing_is_kept_that_takes_space(finished):
    kept = finished / "results/checkpoints"
    assert {path.parent.name for path in kept.rglob("*.*") if path.is_file()} == {
        "seed0.safetensors.finished"
    }
    for path in kept.rglob("seed0.safetensors.finished/*"):
        run = path.parent.relative_to(kept).with_name("seed0")
        assert path.samefile(finished / "results" / run / path.name)


def test_a_runs_summary_says_all_that_was_run(finished):
    run = json.loads((finished / RUNS / "moon/seed0/summary.json").read_text())["run"]
    everything = {"mu": 0.1, "tau": 0.5, "projection": 256, "before": "initial"}
    assert run["method"] == {"moon": everything}  # mu is the study's for digits
    assert run["name"] == dict(zip(spec.AXES, ("tiny", "digits", "dir0.1", "moon", 0), strict=True))
    assert run["protocol"].keys() == set(spec.STAGES["train"])
    assert (run["protocol"]["rounds"], run["protocol"]["lr"]) == (2, 0.3)


# -- what makes nothing again -------------------------------------------------------------------


def a_second_call(project: Path) -> None:
    """The copy is a project that has been moved, too."""


def new_times_on_every_file(project: Path) -> None:
    """Now, with every input newer than what was made of it."""
    files = [
        path for path in project.rglob("*") if path.is_file() and ".snakemake" not in path.parts
    ]
    files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    now = time.time() - len(files)
    for second, path in enumerate(files):
        os.utime(path, (now + second, now + second))


def comments_layout_and_docstrings(project: Path) -> None:
    """Nothing that a computer reads."""
    package = project / "workflow/fedgrid"
    for file in (package / "methods/moon.py", package / "engine.py"):
        text = file.read_text().replace('"""', '"""Note: ', 1)
        file.write_text(text.replace("\n\n\n", "\n\n\n\n# a comment\n\n\n"))
    rewrite(package / "methods/moon.py", "return mu * step", "return mu  *  step")


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


@pytest.mark.parametrize(
    "change",
    [a_second_call, new_times_on_every_file, comments_layout_and_docstrings, a_new_checkout],
)
def test_nothing_is_made_again_after(change, project):
    change(project)
    assert planned(project, "--configfile", "tiny.yaml").jobs == {}


# -- what is made again -------------------------------------------------------------------------

PACKAGE, STUDY = "workflow/fedgrid", "workflow/studies/fedsls.yaml"
ENCODED = SUMMED | {"pretrain": 1, "saliency": 1}

EDITS = {
    "a method": (
        f"{PACKAGE}/methods/moon.py", "away = -F.log", "away = -1.0 * F.log",
        SUMMED | {"train": 1}, {"moon"},
    ),
    "a hyper-parameter": (
        STUDY, "digits: {mu: 0.1}", "digits: {mu: 0.2}", SUMMED | {"train": 1}, {"moon"},
    ),
    "the encoder of one method": (
        f"{PACKAGE}/encoder.py", "return maps.mean(1)", "return 1.0 * maps.mean(1)",
        ENCODED | {"train": 1}, {"fedsls"},
    ),
    "the engine": (
        f"{PACKAGE}/engine.py", "import torch\n", "import torch\n\nUNUSED = 1\n",
        ENCODED | {"train": 4}, set(METHODS),
    ),
    "the table": (
        f"{PACKAGE}/report/fedsls/table1.py", '"mean"] - table', '"mean"] - 1 * table',
        DRAWN, set(),
    ),
    "another product": (
        f"{PACKAGE}/report/convergence.py", "alpha=0.12", "alpha=0.13", {}, set(),
    ),
    "a label": (STUDY, "  fedavg: FedAvg\n", "  fedavg: Averaging\n", DRAWN, set()),
    "a published value": (STUDY, "[[70.77, 0.1]", "[[70.78, 0.1]", DRAWN, set()),
    "how runs are summed up": ("tiny.yaml", "tail: 2", "tail: 1", SUMMED, set()),
    "how progress is shown": (f"{PACKAGE}/progress.py", "EVERY = 10", "EVERY = 5", {}, set()),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_again_only_what_depends_on_it(edit, project):
    file, old, new, jobs, trained = EDITS[edit]
    rewrite(project / file, old, new)
    assert planned(project, "--configfile", "tiny.yaml") == (jobs, trained)


def test_a_figure_is_drawn_again_without_training(project):
    rewrite(project / f"{PACKAGE}/report/convergence.py", "test accuracy (%)", "accuracy, percent")
    jobs = {"fedsls_convergence": 1, "results_convergence": 1}
    assert planned(project, "--configfile", "tiny.yaml", target=CURVES) == (jobs, set())
    snakemake(project, "--cores", 2, "--configfile", "tiny.yaml", "--", CURVES)
    assert "accuracy, percent" in (project / CURVES).read_text()
    assert planned(project, "--configfile", "tiny.yaml", target=CURVES) == ({}, set())


def test_another_scale_makes_the_current_table_again(project):
    assert planned(project, "--quiet", "rules", "--config", "scale=paper").jobs["train"] == 540


# -- the same bits ------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_job_at_a_time_gives_the_bits_of_two_at_a_time(finished, project):
    for made in ("runs", "checkpoints", "saliency"):
        shutil.rmtree(project / "results" / made)
    runs = [f"{RUNS}/{method}/seed0/metrics.csv" for method in ("moon", "fedsls")]
    snakemake(project, "--cores", 1, "--configfile", "tiny.yaml", "--", *runs)
    for run in runs:
        assert (project / run).read_bytes() == (finished / run).read_bytes()


LONG = ("clients=5", "participation=0.4", "local=2", "rounds=60", "evaluate_every=3")


def train(project: Path, method: str, out: str, save_every: float) -> subprocess.Popen:
    """`python -m fedgrid.train`, without Snakemake, of a run that takes long enough to stop it."""
    partition = "results/partition/digits/dir0.1/classwise-5/seed0.npz"
    run = f"fedsls-quick/digits/dir0.1/{method}/seed0"
    command = [sys.executable, "-m", "fedgrid.train", run, "--set", *LONG, "--out", out]
    options = ["--inputs", f"partition={partition}", "--device", "cpu", "--save-every", save_every]
    return subprocess.Popen(
        [*command, *map(str, options)], cwd=project, env=ENVIRONMENT | {"PYTHONPATH": "workflow"},
        text=True, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_round(process: subprocess.Popen, checkpoint: Path, wanted: int = 5) -> None:
    """Until the process has saved the state of a round in the middle of its run."""
    deadline = time.monotonic() + 60
    while saved_round(checkpoint) < wanted:
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline, "no checkpoint within a minute"
        time.sleep(0.01)


def finish(process: subprocess.Popen) -> str:
    """What the process says on its way to a successful end."""
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def uninterrupted(finished, tmp_path_factory) -> Path:
    """Long runs of the stateful methods, from beginning to end, by method."""
    project = shutil.copytree(finished, tmp_path_factory.mktemp("uninterrupted") / "project")
    for process in [train(project, method, method, 60) for method in ("moon", "fedau")]:
        finish(process)
    return project


@pytest.mark.parametrize("method", ["moon", "fedau"])
def test_a_killed_run_continues_to_the_same_bits(method, uninterrupted, project):
    checkpoint = project / "killed/checkpoint"
    process = train(project, method, "killed", 0)
    wait_for_round(process, checkpoint)
    process.kill()
    process.communicate()
    at = saved_round(checkpoint)
    assert not (project / "killed/metrics.csv").exists()
    finish(train(project, method, "killed", 60))
    assert summary(project / "killed")["resumed_at"] == at > 0
    assert not checkpoint.exists()
    for file in ("metrics.csv", "model.safetensors"):
        expected = (uninterrupted / method / file).read_bytes()
        assert (project / "killed" / file).read_bytes() == expected


def test_a_terminated_run_saves_says_so_and_continues(uninterrupted, project):
    method, checkpoint = "fedau", project / "ended/checkpoint"
    process = train(project, method, "ended", 0.1)
    wait_for_round(process, checkpoint)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode not in (0, -signal.SIGTERM)
    at = int(re.search(r"^stopped after round (\d+): the same command continues", said, re.M)[1])
    assert saved_round(checkpoint) == at
    finish(train(project, method, "ended", 60))
    assert summary(project / "ended")["resumed_at"] == at
    expected = (uninterrupted / method / "metrics.csv").read_bytes()
    assert (project / "ended/metrics.csv").read_bytes() == expected


def trainer(snakemake: subprocess.Popen) -> psutil.Process:
    """The training process under a running Snakemake."""
    for process in psutil.Process(snakemake.pid).children(recursive=True):
        if process.cmdline()[1:3] == ["-m", "fedgrid.train"]:
            return process
    raise AssertionError("no training process")


@pytest.mark.slow
def test_a_run_that_ended_after_snakemake_was_killed_is_not_trained_again(project):
    rewrite(project / f"{PACKAGE}/train.py", "SAVE_EVERY = 120", "SAVE_EVERY = 0")
    run = "long/digits/dir0.1/fedau/seed0"
    wanted = ("--configfile", "tiny.yaml", "--", f"results/runs/{run}/metrics.csv")
    out = project / "results/runs" / run
    killed = start(project, "--cores", 1, *wanted)
    wait_for_round(killed, project / f"results/checkpoints/runs/{run}.safetensors")
    orphan = trainer(killed)
    killed.kill()
    orphan.wait(60)
    expected = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "metrics.csv" in expected

    snakemake(project, "--unlock", *wanted)
    refused = start(project, "--cores", 1, *wanted)  # what is there passes for half a result
    assert refused.wait(60) != 0
    snakemake(project, "--cores", 1, "--rerun-incomplete", *wanted)
    assert "was finished before" in (project / f"results/logs/runs/{run}.log").read_text()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == expected


@pytest.mark.slow
def test_snakemake_continues_a_run_whose_process_was_killed(uninterrupted, project):
    rewrite(project / f"{PACKAGE}/train.py", "SAVE_EVERY = 120", "SAVE_EVERY = 0")
    run = "long/digits/dir0.1/moon/seed0"
    command = ("--cores", 1, "--configfile", "tiny.yaml", "--", f"results/runs/{run}/metrics.csv")
    checkpoint = project / f"results/checkpoints/runs/{run}.safetensors"
    killed = start(project, *command)
    wait_for_round(killed, checkpoint)
    trainer(killed).kill()
    killed.communicate(timeout=60)
    at = saved_round(checkpoint)
    assert killed.returncode != 0

    snakemake(project, *command)
    assert summary(project / "results/runs" / run)["resumed_at"] == at > 0
    expected = (uninterrupted / "moon/metrics.csv").read_bytes()
    assert (project / "results/runs" / run / "metrics.csv").read_bytes() == expected
