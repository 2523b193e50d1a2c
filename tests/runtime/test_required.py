"""Versions of packages: what is declared, and what is said of an older one."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from alone import REPOSITORY
from fedgrid.runtime import cli, required
from fedgrid.runtime.names import UsageError


@pytest.fixture
def old(monkeypatch):
    """Two packages are older than what is needed, and one is newer than all that is known."""
    installed = {"pandas": "1.5.3", "pillow": "9.0.0", "torch": "99.0.0+cu999"}
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: installed.get(name) or real(name))


def test_the_installed_packages_are_new_enough():
    required.refuse_old_packages()


def test_old_packages_are_named_with_what_is_needed_and_answer_an_unexpected_error(old):
    with pytest.raises(UsageError, match=r"\(pandas 1\.5\.3, pillow 9\.0\.0\)") as problem:
        required.refuse_old_packages()
    assert re.search(r'pip install "pandas>=[0-9.]+" "pillow>=[0-9.]+"', str(problem.value))
    assert cli.refused(AttributeError("of a name that is new")) == str(problem.value)


def test_a_package_that_is_not_there_is_not_old(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    required.refuse_old_packages()


def test_an_installed_package_says_what_it_needs_without_a_clone(monkeypatch):
    """As it was stated when the environment of these tests was made."""
    there = required.read_requirements()
    monkeypatch.setattr(required, "PROJECT", REPOSITORY / "not/there.toml")
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=2", "torch>=2.8; extra == 'x'"])
    assert {one.name for one in there} > {one.name for one in required.read_requirements()}


def test_snakefile_and_notebook_say_it_first():
    """In a new process, whose first import of what a notebook uses it is."""
    code = (
        "from importlib import metadata\n"
        "metadata.version = lambda name: '0.1'\n"
        "import fedgrid\n"
        "try:\n    fedgrid.run\n"
        "except ValueError as problem:\n    print(problem)"
    )
    environment = {"PYTHONPATH": str(REPOSITORY / "workflow"), "PATH": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "snakemake 0.1" in done.stdout
    assert not done.stderr
    rules = (REPOSITORY / "workflow/rules/common.smk").read_text()
    assert rules.index("describe_old_packages()") < rules.index("from fedgrid.plan")


def test_the_lowest_versions_are_those_that_are_tested():
    """Each lower bound of pyproject.toml is pinned for `make test-lowest`, but the Snakefile's."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lowest = (REPOSITORY / "envs/lowest.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", lowest, flags=re.MULTILINE))
    for one in map(Requirement, project["dependencies"]):
        assert one.specifier.contains(pinned[one.name]), one.name
