"""The workflow as a module of another one, and under an interpreter that nobody has activated."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ENVIRONMENT, copied

BIN = Path(sys.executable).parent
OUTER = """
module fedgrid:
    snakefile: "{project}/Snakefile"
    config: {config}

use rule * from fedgrid as fedgrid_*

rule mine:
    default_target: True
    input: "results/table1.csv"
    output: "mine.txt"
    shell: "echo PYTHONPATH=${{{{PYTHONPATH-unset}}}} > {{output}}; cat {{input}} >> {{output}}"
"""
SMALL = {"method": ["fedavg", "fedau"], "partition": "dir0.1", "seed": [0], "protocol": "short"}
SMALL["protocols"] = {"short": {"base": "fedsls-quick", "rounds": 2}}


def run(folder: Path, *arguments, **environment) -> tuple[int, str]:
    """Snakemake of this environment in a folder: how it ended, and what it said."""
    process = subprocess.run(
        [BIN / "snakemake", *map(str, arguments)], cwd=folder, text=True, encoding="utf-8",
        env=ENVIRONMENT | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return process.returncode, process.stdout


def outer(folder: Path, project: Path, config: dict, text: str = OUTER) -> Path:
    """Another workflow, with a config.yaml of its own, that has the project as a module."""
    folder.mkdir()
    (folder / "Snakefile").write_text(text.format(project=project, config=config))
    (folder / "config.yaml").write_text("something: else\n")
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project, which is no other workflow's folder."""
    return copied(tmp_path_factory.mktemp("project"))


def test_table_1_is_planned_by_another_workflow_in_another_folder(project, tmp_path):
    code, said = run(outer(tmp_path / "outer", project, SMALL), "--dry-run", "--quiet", "rules")
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE))
    assert code == 0, said
    assert jobs["fedgrid_train"] == "2"
    assert jobs["mine"] == jobs["fedgrid_fedsls_table1"] == "1"


@pytest.mark.slow
def test_table_1_is_made_by_another_workflow_in_another_folder(project, tmp_path):
    folder = outer(tmp_path / "outer", project, SMALL)
    code, said = run(folder, "--cores", 2)
    assert code == 0, said
    first, _, *rows = (folder / "mine.txt").read_text().splitlines()
    assert first == "PYTHONPATH=unset"
    assert len(rows) == 2
    assert not (project / "results/table1.csv").exists()
    assert "Nothing to be done" in run(folder, "--dry-run")[1]


@pytest.mark.slow
def test_a_module_without_a_configuration_has_the_projects_own(project, tmp_path):
    text = OUTER.replace("    config: {config}\n", "")
    code, said = run(outer(tmp_path / "outer", project, {}, text), "--dry-run", "--quiet", "rules")
    assert code == 0, said
    assert re.search(r"^fedgrid_train +81$", said, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "old", "new", "sentence"),
    [
        ({"sead": 1}, "", "", "no key is called `sead`: did you mean seed"),
        (SMALL, "    config:", '    prefix: "fed"\n    config:', "remove `prefix`"),
    ],
)
def test_a_wrong_module_is_answered(config, old, new, sentence, project, tmp_path):
    text = OUTER.replace(old, new) if old else OUTER
    code, said = run(outer(tmp_path / "outer", project, config, text), "--dry-run")
    assert code == 1
    assert sentence in said


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("env", path="/usr/bin:/bin"), reason="there is no /usr/bin/env"
)
def test_jobs_take_the_interpreter_that_snakemake_runs_in(tmp_path):
    """As when `.venv/bin/snakemake` is called and nothing has been activated."""
    project, figure = copied(tmp_path), "results/figure4.csv"
    code, said = run(project, "--cores", 2, "--", figure, PATH="/usr/bin:/bin")
    assert code == 0, said
    again = ("--dry-run", "--config", "device=cpu", "threads=2", "warm=False", "--", figure)
    for path in ("/usr/bin:/bin", f"{BIN}{os.pathsep}{os.environ['PATH']}"):
        assert "Nothing to be done" in run(project, *again, PATH=path)[1]
