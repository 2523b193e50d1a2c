"""Copies of checkpoints in another place, from which a job on another node goes on."""

import tarfile

import pytest

from fedgrid.runtime import synced
from fedgrid.runtime.names import UsageError

RUN = "results/checkpoints/runs/tiny/seed1.safetensors"
COPY = "runs/tiny/copy-of-seed1.safetensors.tar"


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """A function that enters the folder of a node; the place of checkpoints is beside it."""
    monkeypatch.setenv(synced.VARIABLE, str(tmp_path / "volume"))

    def enter(name: str):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
        return tmp_path / name / RUN

    return enter


def save(path, text: str) -> None:
    """Write a checkpoint of two files as a job does: the state replaces the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.history").write_text(f"history {text}")
    temporary = path.with_name("other")
    temporary.write_text(text)
    temporary.replace(path)


def test_a_job_on_another_node_finds_the_checkpoint_of_the_first(nodes):
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
    with synced.synced(path := nodes("second")):
        assert path.read_text() == "round 5"
        assert path.with_name(f"{path.name}.history").read_text() == "history round 5"


def copied(tmp_path) -> dict[str, str]:
    """The files in the copy of the run, with their texts; none without a copy."""
    if not (copy := tmp_path / "volume" / COPY).exists():
        return {}
    with tarfile.open(copy) as archive:
        return {one.name: archive.extractfile(one).read().decode() for one in archive}


def test_a_checkpoint_is_copied_while_the_job_runs(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(synced, "EVERY", 0.01)
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
        for _ in range(1000):
            if copied(tmp_path):
                break
            synced.threading.Event().wait(0.01)
        assert copied(tmp_path)["seed1.safetensors"] == "round 5"


def test_of_a_checkpoint_that_is_replaced_meanwhile_nothing_is_copied(nodes, tmp_path, monkeypatch):
    save(path := nodes("first"), "round 5")
    copy, add = synced.Copy(str(tmp_path / "volume"), path), tarfile.TarFile.add

    def replaced(archive, *names):
        add(archive, *names)
        save(path, "a longer round 6")

    monkeypatch.setattr(tarfile.TarFile, "add", replaced)
    assert copy.take()
    assert not copied(tmp_path)
    monkeypatch.setattr(tarfile.TarFile, "add", add)
    assert copy.is_new()
    assert copy.take()
    assert copied(tmp_path)["seed1.safetensors"] == "a longer round 6"


def test_evaluations_without_a_new_state_are_not_copied(nodes, tmp_path):
    save(path := nodes("first"), "round 5")
    copy = synced.Copy(str(tmp_path / "volume"), path)
    assert copy.is_new()
    copy.take()
    path.with_name(f"{path.name}.history").write_text("history round 5, and a row of round 6")
    assert not copy.is_new()


def test_what_a_finished_job_leaves_is_the_copy(nodes, tmp_path):
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
    with synced.synced(path):
        path.unlink()
        (path.with_name(f"{path.name}.finished")).mkdir()
        (path.with_name(f"{path.name}.finished") / "metrics.csv").write_text("round\n")
        path.with_name(f"{path.name}.lock").write_text("process 1")
        (path.with_name(f"{path.name}.clients") / ".000001.9.tmp").mkdir(parents=True)
        (path.with_name(f"{path.name}.clients") / ".000001.9.tmp/000001").write_text("half")
    names = {"seed1.safetensors.history", "seed1.safetensors.finished/metrics.csv"}
    assert copied(tmp_path).keys() == names
    assert not [*path.parent.glob(".copy-of-*")]


def test_folders_of_other_runs_are_left_alone(nodes, tmp_path):
    nodes("first")
    folder = tmp_path / "first/results/checkpoints/pretrain/digits"
    (folder / "seed10").mkdir(parents=True)
    (folder / "seed10/client0").write_text("of seed 10")
    with synced.synced(folder / "seed1"):
        (folder / "seed1").mkdir()
        (folder / "seed1/client0").write_text("of seed 1")
    nodes("second")
    folder = tmp_path / "second/results/checkpoints/pretrain/digits"
    with synced.synced(folder / "seed1"):
        assert [one.relative_to(folder).as_posix() for one in folder.rglob("*")] == [
            "seed1",
            "seed1/client0",
        ]
        for one in (folder / "seed1/client0", folder / "seed1"):
            one.unlink() if one.is_file() else one.rmdir()
    with synced.synced(folder / "seed1"):  # what is done was moved: the last copy stays
        assert (folder / "seed1/client0").read_text() == "of seed 1"


def test_what_this_disk_has_is_not_mixed_with_copies(nodes):
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
    save(path := nodes("second"), "round 7")
    with synced.synced(path):
        assert path.read_text() == "round 7"


def test_without_a_place_nothing_is_copied(nodes, tmp_path, monkeypatch):
    monkeypatch.delenv(synced.VARIABLE)
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
    assert not (tmp_path / "volume").exists()


def test_a_place_that_is_none_is_refused(nodes, monkeypatch):
    monkeypatch.setenv(synced.VARIABLE, "nowhere://bucket")
    with (
        pytest.raises(UsageError, match="checkpoints: nowhere://bucket"),
        synced.synced(nodes("a")),
    ):
        pass


def test_a_place_that_cannot_be_read_is_named(nodes, monkeypatch):
    monkeypatch.setattr(synced.Copy, "files", lambda self: 1 / 0)
    with pytest.raises(UsageError, match="volume cannot be read"), synced.synced(nodes("a")):
        pass


def test_a_copy_that_fails_does_not_end_the_job(nodes, tmp_path, caplog):
    with synced.synced(path := nodes("first")):
        (tmp_path / "volume").write_text("a file where the folder should be")
        save(path, "round 5")
    assert "no copy of" in caplog.text
    assert not [*path.parent.glob(".copy-of-*")]
