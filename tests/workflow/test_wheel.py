"""The wheel in an environment of its own, in another folder: with PyTorch, and with nothing."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from site import getsitepackages

import pytest

from conftest import ENVIRONMENT, HERE
from fedgrid.__main__ import stages

pytestmark = pytest.mark.slow
BIN = "Scripts" if os.name == "nt" else "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, as it is built from the repository."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out]
    done = subprocess.run([*command, HERE.parent], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


def installed(wheel: Path, folder: Path) -> Path:
    """The programs of a new environment that has the wheel and nothing else."""
    venv.create(folder, with_pip=False)
    programs = folder / BIN
    command = [sys.executable, "-m", "pip", "--python", programs / "python", "install"]
    more = ["--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    done = subprocess.run([*command, *more], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return programs


@pytest.fixture(scope="module")
def empty(wheel, tmp_path_factory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def whole(wheel, tmp_path_factory) -> Path:
    """The programs of an environment that has the wheel, and finds all packages of this one."""
    folder = tmp_path_factory.mktemp("whole")
    programs = installed(wheel, folder)
    (site,) = folder.glob("[Ll]ib/**/site-packages")
    (site / "others.pth").write_text("\n".join(getsitepackages()))
    return programs


def say(programs: Path, folder: Path, *command: str) -> subprocess.CompletedProcess:
    """What a command of the environment says in a folder."""
    clean = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [programs / command[0], *command[1:]], cwd=folder, env=clean, text=True, capture_output=True
    )


def test_the_wheel_has_all_that_is_not_code(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedgrid/")}
    for folder in ("studies", "schemas", "template"):
        there = (HERE.parent / "workflow" / folder).rglob("*.*")
        assert {f"fedgrid/{path.relative_to(HERE.parent / 'workflow')}" for path in there} <= names
    package = HERE.parent / "workflow/fedgrid"
    others = {p for p in package.rglob("*.*") if p.suffix not in (".py", ".pyc")}
    assert {f"fedgrid/{path.relative_to(package)}" for path in others} <= names


def test_all_stages_are_listed(empty, tmp_path):
    said = say(empty, tmp_path, "fedgrid", "--help").stdout
    assert all(f"\n  {name} " in said for name in stages())
    assert {"data", "partition", "train", "verdicts"} <= {*stages()}


@pytest.mark.parametrize(
    "command", [("fedgrid", "train", "x"), ("python", "-m", "fedgrid", "partition", "x")]
)
def test_a_stage_without_its_packages_says_what_is_missing(command, empty, tmp_path):
    done = say(empty, tmp_path, *command)
    assert done.returncode == 1
    assert done.stderr.startswith("error: fedgrid needs the package ")
    assert done.stderr.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_a_notebook_without_pytorch_says_so(empty, tmp_path):
    code = "import fedgrid\ntry: fedgrid.run()\nexcept ValueError as problem: print(problem)"
    done = say(empty, tmp_path, "python", "-c", code)
    assert done.stdout.startswith("fedgrid needs the package "), done.stderr
    assert "which is not installed" in done.stdout


def test_a_run_is_trained_by_the_command_and_by_the_function(whole, tmp_path):
    run = "fedsls-quick-rounds2-tail1/digits/dir0.1/fedavg/seed0"
    for command in (("data", "digits"), ("partition", run), ("train", run)):
        done = say(whole, tmp_path, "fedgrid", *command)
        assert done.returncode == 0, done.stderr
    code = "import fedgrid; print(fedgrid.__file__); r = fedgrid.run(rounds=2, tail=1)"
    code += "; r.metrics.to_csv('metrics.csv', index=False)"
    done = say(whole, tmp_path, "python", "-c", code)
    assert Path(done.stdout.strip()).is_relative_to(whole.parent), done.stderr
    made, said = (tmp_path / p for p in (f"results/runs/{run}/metrics.csv", "metrics.csv"))
    rows = [[float(x or "nan") for x in line.split(",")] for line in made.read_text().split()[1:]]
    others = [[float(x or "nan") for x in line.split(",")] for line in said.read_text().split()[1:]]
    assert repr(rows) == repr(others)


def test_a_paper_is_made_in_an_empty_folder_and_nothing_is_written_into_the_package(
    whole, tmp_path
):
    def contents() -> dict[Path, bytes]:
        (package,) = whole.parent.glob("[Ll]ib/**/site-packages/fedgrid")
        files = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {path: path.read_bytes() for path in files}

    before = contents()
    assert say(whole, tmp_path, "fedgrid", "new", "my-paper").returncode == 0
    folder = tmp_path / "my-paper"
    asked = ("--config", "method=fedavg,pull", "partition=dir0.1", "seed=0", "--")
    program = ("python", "-m", "snakemake", "--cores", "2")
    done = say(whole, folder, *program, *asked, "results/table.csv")
    assert done.returncode == 0, done.stderr
    assert len((folder / "results/table.csv").read_text().splitlines()) == 3
    assert say(whole, folder, "fedgrid", "keep", "my_paper", "quick").returncode == 0
    assert (folder / "studies/reference/my_paper/quick/index.csv").exists()
    assert say(whole, folder, "fedgrid", "verdicts", "--study", "my_paper").returncode == 0
    study = folder / "studies/my_paper.yaml"  # the grid of what is kept
    study.write_text(
        study.read_text().replace("[dir0.1, classes2]", "dir0.1").replace("[0, 1, 2]", "[0]")
    )
    study.write_text(study.read_text().replace("[fedavg, pull, pull_swapped]", "[fedavg, pull]"))
    assert say(whole, folder, "fedgrid", "bundle", "my_paper", "quick").returncode == 0
    (tmp_path / "review").mkdir()
    (folder / "my_paper-quick.zip").rename(tmp_path / "review/my_paper-quick.zip")
    again = ("--again", "1", "--cores", "2")
    done = say(whole, tmp_path / "review", "fedgrid", "review", "my_paper-quick.zip", *again)
    assert done.returncode == 0, done.stderr
    assert "table.csv has the same numbers" in done.stdout
    assert "has the kept evaluations" in done.stdout
    assert contents() == before


def test_a_figure_has_its_style_and_a_study_its_page(whole, tmp_path):
    done = say(whole, tmp_path, "fedgrid", "verdicts", "--study", "fedsls", "--out", "page.html")
    assert done.returncode == 0, done.stderr
    assert "FedSLS" in (tmp_path / "page.html").read_text()
    command = ("draw", "printed", "--study", "fedsls", "--out", "printed.html", "printed.csv")
    assert say(whole, tmp_path, "fedgrid", *command).returncode == 0
    code = "from fedgrid.analysis import figures\nwith figures.use_style(): pass"
    assert say(whole, tmp_path, "python", "-c", code).returncode == 0
