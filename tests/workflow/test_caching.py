"""Checkouts that share partitions, pretraining and saliency, and never one for another."""

import re
import subprocess
from pathlib import Path

import pytest

from conftest import ENVIRONMENT, copied
from fedgrid.study.grid import read_grid
from fedgrid.study.paths import input_paths

pytestmark = pytest.mark.slow
NAMES = {"protocol": "tiny", "dataset": "digits", "partition": "dir0.1", "seed": "0"}


def saliency_of(project: Path, names: dict) -> str:
    """The file of a cell's saliency."""
    run = read_grid(project / "tiny.yaml").resolve(names | {"method": "fedsls"})
    return f"results/{input_paths(run)['saliency']}"


def made(project: Path, cache: Path, **names) -> tuple[set[str], set[str]]:
    """Make a cell's saliency; the stages that ran, and those that came out of the cache."""
    names = NAMES | names
    command = ["snakemake", "--cores", "1", "--configfile", "tiny.yaml", "--cache"]
    command += ["--workflow-profile", "workflow/profiles/default"]
    done = subprocess.run(
        [*command, "--", saliency_of(project, names)],
        **{"cwd": project, "env": ENVIRONMENT | {"SNAKEMAKE_OUTPUT_CACHE": str(cache)}},
        **{"text": True, "check": False, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
    )
    assert done.returncode == 0, done.stdout
    moved = set(re.findall(r"^Moving output file results/(\w+)/", done.stdout, re.M))
    taken = set(re.findall(r"^Symlinking output file results/(\w+)/", done.stdout, re.M))
    return moved, taken - moved


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A project whose results are in the cache beside it."""
    place = tmp_path_factory.mktemp("caching")
    (place / "cache").mkdir()
    (place / "first").mkdir()
    moved, taken = made(copied(place / "first"), place / "cache")
    assert (moved, taken) == ({"partition", "pretrain", "saliency"}, set())
    return place


@pytest.fixture
def second(first, tmp_path) -> Path:
    return copied(tmp_path)


def saliency(project: Path) -> bytes:
    return (project / saliency_of(project, NAMES)).read_bytes()


def test_a_second_checkout_makes_nothing_again(first, second):
    assert made(second, first / "cache") == (set(), {"partition", "pretrain", "saliency"})
    assert saliency(second) == saliency(first / "first")


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        pytest.param({"dataset": "synthetic"}, set(), marks=pytest.mark.exhaustive),
        pytest.param({"partition": "dir0.5"}, set(), marks=pytest.mark.exhaustive),
        ({"seed": "1"}, set()),
        ({"protocol": "long"}, {"pretrain", "saliency", "partition"}),
        ({"protocol": "faster"}, {"partition"}),
    ],
)
def test_another_cell_never_gets_this_ones(first, second, names, shared):
    tiny = second / "tiny.yaml"
    text = tiny.read_text()
    tiny.write_text(text.replace("protocols:\n", "protocols:\n  faster: {base: tiny, lr: 0.4}\n"))
    moved, taken = made(second, first / "cache", **names)
    assert taken <= shared
    assert moved == {"partition", "pretrain", "saliency"} - taken


@pytest.mark.parametrize(
    ("module", "old", "new", "kept"),
    [
        ("partitions/_restarts", "SMALLEST = 10", "SMALLEST = 9", set()),
        ("encoders/guided", "maps.mean(1)", "maps.sum(1)", {"partition", "pretrain"}),
        ("models/cnn", "width: int = 64", "width: int = 65", {"partition"}),
    ],
)
def test_other_code_never_gets_this_ones(first, second, module, old, new, kept):
    path = second / f"workflow/fedgrid/{module}.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert made(second, first / "cache")[1] == kept
