"""Copies of checkpoints in another place, from which a job on another node goes on."""

import pytest

from fedgrid.runtime import synced
from fedgrid.runtime.names import UsageError

RUN = "results/checkpoints/runs/tiny/seed1.safetensors"
COPY = "runs/tiny/seed1.safetensors"


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


def test_a_checkpoint_is_copied_while_the_job_runs(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(synced, "EVERY", 0.01)
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
        copy = tmp_path / "volume" / COPY
        for _ in range(1000):
            if copy.exists():
                break
            synced.threading.Event().wait(0.01)
        assert copy.read_text() == "round 5"


def test_of_a_checkpoint_that_is_replaced_meanwhile_nothing_is_copied(nodes, tmp_path, monkeypatch):
    save(path := nodes("first"), "round 5")
    copies = synced.Copies(str(tmp_path / "volume"), path)
    link = synced.os.link

    def replaced(source, target):
        link(source, target)
        save(path, "a longer round 6")

    monkeypatch.setattr(synced.os, "link", replaced)
    copies.take()
    assert not (tmp_path / "volume" / COPY).exists()
    monkeypatch.setattr(synced.os, "link", link)
    copies.take()
    assert (tmp_path / "volume" / COPY).read_text() == "a longer round 6"


def test_what_a_job_deletes_is_deleted_there(nodes, tmp_path):
    with synced.synced(path := nodes("first")):
        save(path, "round 5")
    with synced.synced(path):
        path.unlink()
        (path.with_name(f"{path.name}.finished")).mkdir()
        (path.with_name(f"{path.name}.finished") / "metrics.csv").write_text("round\n")
    names = {file.name for file in (tmp_path / "volume").rglob("*") if file.is_file()}
    assert names == {"seed1.safetensors.history", "metrics.csv"}


def test_files_of_other_runs_are_left_alone(nodes, tmp_path):
    other = tmp_path / "volume/pretrain/digits/seed10/client0.safetensors"
    other.parent.mkdir(parents=True)
    other.write_text("of seed 10")
    nodes("first")
    path = tmp_path / "first/results/checkpoints/pretrain/digits/seed1"
    with synced.synced(path):
        assert not path.with_name("seed10").exists()
        path.mkdir()
        (path / "client0.safetensors").write_text("of seed 1")
    assert other.read_text() == "of seed 10"
    assert other.parents[1].joinpath("seed1/client0.safetensors").read_text() == "of seed 1"


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


def test_a_place_that_cannot_be_read_is_named(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(synced.Copies, "names", lambda self: 1 / 0)
    with pytest.raises(UsageError, match="volume cannot be read"), synced.synced(nodes("a")):
        pass


def test_a_place_that_cannot_be_reached_does_not_end_the_job(nodes, tmp_path, caplog):
    with synced.synced(path := nodes("first")):
        (tmp_path / "volume").write_text("a file where the folder should be")
        save(path, "round 5")
    assert "no copy of" in caplog.text
