"""A full disk, in every stage: a clear sentence, nothing half written, and on when mended."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedgrid.runtime import files
from fedgrid.runtime.code import own_data
from fedgrid.study.protocol import AXES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.name != "posix" or os.geteuid() != 0, reason="only root can mount a small file system"
    ),
]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(files.__file__).parents[2]), "FEDGRID_WARM": ""}
NAME = "fedsls-quick/digits/dir0.1/fedsls/seed0"
SHORT = "fedsls-quick-rounds6-evaluate_every2-tail2/digits/dir0.1/fedsls/seed0"


@pytest.fixture
def small(tmp_path):
    """`small(size)` mounts a file system of that size; with "remount" it is changed."""
    place = tmp_path / "small"
    place.mkdir()

    def mount(size: str, *options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", ",".join((*options, f"size={size}")), "tmpfs"]
        done = subprocess.run([*command, str(place)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
        return place

    yield mount
    subprocess.run(["umount", str(place)], check=False)


@pytest.fixture(scope="module")
def ready(tmp_path_factory) -> Path:
    """Results that a run of FedSLS needs."""
    results = tmp_path_factory.mktemp("ready") / "results"
    said = [stage("data", "digits", "--out", results / "data/digits")]
    said += [
        stage(name, NAME, "--results", results) for name in ("partition", "pretrain", "saliency")
    ]
    assert all(done.returncode == 0 for done in said), said
    return results


def stage(name: str, *arguments) -> subprocess.CompletedProcess:
    """An entry point."""
    command = [sys.executable, "-m", "fedgrid", name, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, check=False)


def fails(done: subprocess.CompletedProcess) -> None:
    """One sentence and no traceback."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    sentence = done.stderr.strip().splitlines()[-1]
    assert sentence.startswith("error: "), done.stderr
    assert sentence.endswith(
        "cannot be read or written (No space left on device): fix that, and try again"
    )


def left(place: Path) -> list[str]:
    """The files below, but for locks, which say who was at work."""
    return sorted(str(f.relative_to(place)) for f in place.rglob("*") if f.is_file())


def test_while_data_are_prepared(small):
    place = small("100k")
    fails(stage("data", "digits", "--out", place / "digits"))
    assert not left(place)
    small("10m", "remount")
    assert stage("data", "digits", "--out", place / "digits").returncode == 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_while_data_of_ones_own_are_decoded(order, small, tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(20_000, 30)).astype(np.float32, order)
    y = np.arange(len(x)) % 2
    np.savez(tmp_path / "my.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
    entry = {"mine": {"npz": str(tmp_path / "my.npz")}}
    monkeypatch.setitem(ENVIRONMENT, own_data.VARIABLE, json.dumps(entry))
    place = small("2m")  # the array has 2.4 MB, and so has its copy
    fails(stage("data", "mine", "--out", place / "mine"))
    assert not left(place)
    small("10m", "remount")
    assert stage("data", "mine", "--out", place / "mine").returncode == 0
    assert (np.load(place / "mine/train_images.npy")[:, :, 0, 0] == x).all()


def test_while_the_results_of_a_stage_are_written(small, ready):
    place = small("4k")
    for name in ("partition", "saliency"):
        fails(stage(name, NAME, "--results", ready, "--out", place / f"{name}.npz"))
        assert not left(place)


def test_while_a_checkpoint_is_written(small, ready):
    place = small("64k")  # room for one checkpoint
    command = ("train", SHORT, "--save-every", 0, "--results", ready, "--out", ready.parent / "out")
    expected = stage(*command, "--checkpoint", ready.parent / "kept")
    assert expected.returncode == 0, expected.stderr
    whole = (ready.parent / "out/metrics.csv").read_bytes()
    shutil.rmtree(ready.parent / "out")

    fails(stage(*command, "--checkpoint", place / "kept"))
    assert not (ready.parent / "out/metrics.csv").exists()
    assert left(place) == ["kept", "kept.history"]
    small("10m", "remount")
    assert stage(*command, "--checkpoint", place / "kept").returncode == 0
    assert json.loads((ready.parent / "out/summary.json").read_text())["resumed_at"] > 0
    assert (ready.parent / "out/metrics.csv").read_bytes() == whole
    assert {name.partition("/")[0] for name in left(place)} == {
        *("kept.finished", "kept.ended", "kept.ended.history")
    }


def test_while_a_runs_results_are_written(small, ready):
    place = small("24k")
    command = ("train", SHORT, "--save-every", 0, "--results", ready, "--out", place / "out")
    command += ("--checkpoint", ready.parent / "kept-elsewhere")
    fails(stage(*command))
    assert not (place / "out/metrics.csv").exists()
    assert not [name for name in left(place) if name.endswith(".tmp")]
    small("10m", "remount")
    done = stage(*command)
    assert done.returncode == 0, done.stderr
    assert (place / "out/metrics.csv").exists()


def test_while_a_table_is_written(small, ready, tmp_path):
    place, values = small("4k"), ("fedsls-quick", "digits", "dir0.1", "fedsls", 0)
    grid = json.dumps([{axis: [value] for axis, value in zip(AXES, values, strict=True)}])
    fields = {"rounds": 40, "tail": 10, "recipe": "classwise", "clients": 20}
    protocols = json.dumps({"fedsls-quick": fields})
    command = ("collect", "partition", grid, "--protocols", protocols, "--results", ready)
    done = stage(*command, "--out", tmp_path / "partitions.csv")
    assert done.returncode == 0, done.stderr
    (place / "fill").write_bytes(b"0" * 4096)
    fails(stage(*command, "--out", place / "partitions.csv"))
    assert left(place) == ["fill"]
