"""The tests of a checkout see its sources, and nothing else that is there."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alone import REPOSITORY
from conftest import ENVIRONMENT

MADE = ("results", "data", "workflow", "envs", "Snakefile", "config.yaml")
SET = ("FEDGRID_DEVICE", "FEDGRID_BACKEND", "FEDGRID_OWN_DATA", "SNAKEMAKE_PROFILE", "MPLBACKEND")


def fill(project: Path) -> None:
    """Add the other sources to a finished project, and damage all that is no source."""
    for there in REPOSITORY.iterdir():
        if there.name not in MADE and there.name[0] != ".":
            (shutil.copytree if there.is_dir() else shutil.copy)(there, project / there.name)
    runs = project / "results/runs"
    shutil.copytree(runs / "tiny", runs / "fedsls-quick")
    for summary in runs.rglob("summary.json"):
        summary.write_text("{")
    for folder in ("data", "caches/fedgrid", ".snakemake/metadata"):
        (project / folder).mkdir(parents=True, exist_ok=True)
        (project / folder / "digits").write_text("damaged")


def list_files(project: Path) -> set[Path]:
    """The files of a project without bytecode."""
    return {path for path in project.rglob("*") if "__pycache__" not in path.parts}


ROOMS = [pytest.param(room, marks=pytest.mark.exhaustive) for room in ("store", "report", "page")]


@pytest.mark.parametrize("tests", ["plan/test_plan.py", *ROOMS])
@pytest.mark.slow
def test_what_lies_in_a_checkout_and_its_environment_changes_no_test(tests, project):
    """These ask what results there are. `.ci/run` has all tests beside those of a table."""
    fill(project)
    environment = {k: v for k, v in ENVIRONMENT.items() if not k.startswith("PYTEST_")}
    environment |= dict.fromkeys(SET, "nonsense") | {"FEDGRID_KEEP_STATE_GB": "0"}
    environment |= {"XDG_CACHE_HOME": str(project / "caches")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0"]
    before = list_files(project)
    done = subprocess.run(
        [*command, f"tests/{tests}"], cwd=project, env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert list_files(project) == before


def test_no_setting_of_a_person_reaches_the_tests():
    """In a new process: tests change variables of this one, too."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= dict.fromkeys(SET, "nonsense") | {"PYTHONPATH": str(REPOSITORY / "tests")}
    code = "import os, alone; print([name for name in os.environ if name.startswith(alone.SET)])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, capture_output=True
    )
    assert not {*SET} & {*ast.literal_eval(done.stdout)}
    assert [*Path.cwd().iterdir()] == []
