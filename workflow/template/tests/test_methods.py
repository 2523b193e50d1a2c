"""Every method of this paper passes fedgrid's checks, and everything is planned."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]
METHODS = sorted(path.stem for path in (FOLDER / "methods").glob("[!_]*.py"))


@pytest.mark.parametrize("method", METHODS)
def test_the_method_passes_the_checks(method):
    subprocess.run([sys.executable, "-m", "fedgrid", "check", method], cwd=FOLDER, check=True)


def test_every_table_and_figure_is_planned():
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "rules"]
    subprocess.run(command, cwd=FOLDER, check=True)
