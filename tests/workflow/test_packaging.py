"""Files outside of the package that say the same: versions, packages, linters, rules."""

import re
import subprocess
import sys
import tomllib
from html import unescape

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import fedgrid
from conftest import ENVIRONMENT
from written import DOCS, ROOT

IN_CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # packages with another name there
# What Snakemake itself and `fedgrid bundle` need; jobs run without it.
OF_SNAKEMAKE = {"pygments", "snakemake", "snakemake-executor-plugin-slurm"}
OF_SNAKEMAKE |= {"snakemake-logger-plugin-rich", "rocrate"}
GRAPH = DOCS / "reference/rulegraph.svg"


def read_yaml(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text())


# -- versions -------------------------------------------------------------------------------------


def test_the_built_package_has_the_version_of_the_code():
    assert ProjectMetadata(str(ROOT), PluginManager()).version == fedgrid.__version__


def test_the_citation_and_the_changelog_are_of_this_version():
    heading = r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$"
    latest = re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = read_yaml("CITATION.cff")
    assert latest.groups() == (cited["version"], str(cited["date-released"]))
    assert cited["version"] == fedgrid.__version__


# -- packages and linters -------------------------------------------------------------------------


def test_a_conda_environment_has_what_a_job_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = dict(re.fullmatch(r"([\w-]+)(.*)", one).groups() for one in project["dependencies"])
    named = {
        IN_CONDA.get(name, name): at for name, at in wanted.items() if name not in OF_SNAKEMAKE
    }
    there = dict(one.split(" ") for one in read_yaml("envs/fedgrid.yaml")["dependencies"])
    assert there == named | {"python": project["requires-python"]}


def test_a_commit_is_checked_by_the_commands_of_make_lint():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (local,) = read_yaml(".pre-commit-config.yaml")["repos"]
    entries = [re.sub(r"^(env \S+ )?\.venv/bin/", "", hook["entry"]) for hook in local["hooks"]]
    assert entries == [line.strip() for line in recipe[1].splitlines()]


# -- rules ----------------------------------------------------------------------------------------


def named_arrows(names: dict[str, str], arrows: list[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(names[start], names[end]) for start, end in arrows}


def drawn_arrows() -> set[tuple[str, str]]:
    text = unescape(GRAPH.read_text())
    names = dict(re.findall(r"<title>(\d+)</title>.*?<text[^>]*>(\w+)</text>", text, re.DOTALL))
    return named_arrows(names, re.findall(r"<title>(\d+)->(\d+)</title>", text))


@pytest.mark.slow
def test_the_graph_in_the_documentation_is_that_of_the_rules():
    drawn = drawn_arrows()
    last = {end for _, end in drawn} - {start for start, _ in drawn}
    targets = [f"{rule.replace('_', '/', 1)}.csv" for rule in last]  # results/table1.csv
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "dot"]
    command += ["--config", "scale=paper", "kept=false", "--", *targets]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    names = dict(re.findall(r'(\d+)\[label = "(\w+)"', done.stdout))
    assert drawn == named_arrows(names, re.findall(r"(\d+) -> (\d+)", done.stdout))
