"""The folder of a paper of one's own: what is in it is found beside what fedgrid has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ENVIRONMENT
from fedgrid.commands import new
from fedgrid.runtime.names import UsageError, registered
from fedgrid.runtime.places import PACKAGE

FOUND = """
import json
from fedgrid.runtime.code import source
from fedgrid.runtime.names import registered
from fedgrid.study.grid import read_grid
from fedgrid.store.kept import store_folder
from fedgrid.runtime.own_config import CONFIG
methods = registered("methods")
grid = read_grid(CONFIG)
print(json.dumps({
    "methods": methods,
    "code": {one: source.fingerprint_of_file(f"methods.{one}") for one in methods},
    "all": source.fingerprint("stages.train", "methods.pull"),
    "engine": source.fingerprint("stages.train"),
    "studies": [*grid.studies],
    "runs": len(grid.runs("my_paper", "quick", "main")),
    "kept": str(store_folder("my_paper", "quick")),
    "kept_elsewhere": str(store_folder("fedsls", "small")),
}))
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    new.main([str(tmp_path / "my-paper")])
    return tmp_path / "my-paper"


def say(folder: Path, *command: str) -> subprocess.CompletedProcess:
    """What a command of this Python says in a folder."""
    environment = ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, text=True, capture_output=True
    )


def find(folder: Path) -> dict:
    """What fedgrid finds in a folder."""
    done = say(folder, "-c", FOUND)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_in_the_folder_is_found_beside_what_fedgrid_has(folder):
    found = find(folder)
    assert found["methods"] == sorted([*registered("methods"), "pull", "pull_swapped"])
    assert "fedsls" in found["studies"]
    assert found["runs"] == 18
    assert found["kept"] == str(folder / "studies/reference/my_paper/quick")
    assert found["kept_elsewhere"] == str(PACKAGE.parent / "studies/reference/fedsls/small")
    (folder / "config.yaml").write_text("study: fedsls\nscale: quick\n")
    assert say(folder, "-m", "fedgrid", "check", "pull").returncode == 1  # no key `paper`


def test_an_edit_counts_for_the_method_that_is_edited_and_for_no_other(folder):
    before, file = find(folder), folder / "methods/pull.py"
    file.write_text(file.read_text().replace('"""Pull: ', '"""It pulls: '))
    assert find(folder) == before
    file.write_text(file.read_text().replace("mu * (", "2 * mu * ("))
    after = find(folder)
    changed = {name for name, code in after["code"].items() if before["code"][name] != code}
    assert changed == {"pull"}
    assert (after["engine"], after["all"] != before["all"]) == (before["engine"], True)


@pytest.mark.parametrize("file", ["methods/fedprox.py", "studies/fedsls.yaml", "models/_size.py"])
def test_a_name_that_fedgrid_has_is_refused(file, folder):
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("")
    said = say(folder, "-c", FOUND).stderr
    assert f"{folder / file} has the name of a file of fedgrid: give it another name" in said


@pytest.mark.parametrize("command", ["keep", "bundle"])
def test_nothing_is_written_beside_a_study_of_fedgrid(command, folder):
    done = say(folder, "-m", "fedgrid", command, "fedsls", "small")
    assert done.returncode == 1
    assert "is beside a study of fedgrid, where nothing is written" in done.stderr


PARTITION = 'PATTERN = "{}"\nEXAMPLE = "mine0.1"\nLABEL = "mine={{}}"\n'


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("methods/pull.py", "def method(:\n", "methods/pull.py, line 1, is not Python"),
        (
            "methods/pull.py",
            "import helper\n",
            "helper.py of this folder, on which no result would",
        ),
        ("partitions/mine.py", "x = 1\n", "partitions/mine.py has no PATTERN, which is a text"),
        ("partitions/mine.py", "def (\n", "partitions/mine.py, line 1, is not Python"),
        ("partitions/mine.py", PARTITION.format("mine("), "PATTERN is no pattern"),
        ("partitions/mine.py", PARTITION.format("yours"), "does not match EXAMPLE, mine0.1"),
        (
            *("partitions/mine.py", PARTITION.format("(?:mine|dir)(.*)")),
            "is a partition of partitions/mine.py and of dir",
        ),
    ],
)
def test_a_mistake_in_a_file_of_the_folder_is_named(file, text, problem, folder):
    (folder / "helper.py").write_text("def weight(): return 1.0\n")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    done = say(folder, "-m", "fedgrid", "check", "pull")
    assert done.returncode == 1
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "is_paper"),
    [
        ("\ufeffpaper: x\nstudy: my_paper\n", True),
        ('"paper": x\nstudy: my_paper\n', True),
        ("paper: a4\nmethod: laser\n", False),
        ("study: my_paper\n", False),
    ],
)
def test_the_key_paper_of_fedgrids_configuration_makes_a_folder_a_papers(text, is_paper, folder):
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    code = "from fedgrid.runtime import places; print(places.paper())"
    assert say(folder, "-c", code).stdout.strip() == (str(folder) if is_paper else "None")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for name, problem in {
        "full": "is not an empty folder",
        "full/file": "is not an empty folder",
        "2024": "with a letter first",
        "my paper": "give it a name",
        "fedsls": "fedsls cannot be the name of a study",
        "train": "train cannot be the name",
        "comparison": "comparison cannot be the name",
        "True": "true cannot be the name",
    }.items():
        with pytest.raises(UsageError, match=problem):
            new.main([str(tmp_path / name)])
    assert os.listdir(tmp_path) == ["full"]


def test_an_empty_folder_is_filled(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    new.main(["here"])
    texts = [path.read_text() for path in (tmp_path / "here").rglob("*") if path.is_file()]
    assert len(texts) == 10
    assert not any("{{" in text for text in texts)
