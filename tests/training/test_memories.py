"""What clients keep, and evaluations, on disk: `training/memories.py` and `training/history.py`."""

import random
from pathlib import Path

import pytest
import torch

from conftest import assert_same, simulate
from fedgrid.federation import array_files
from fedgrid.method import Method
from fedgrid.methods import scaffold
from fedgrid.training import checkpoint, memories
from fedgrid.training.history import History
from fedgrid.training.memories import Memories
from fedgrid.training.sealed import UnusableError, flatten

BYTES = 4 * 100  # of one client's tensors


def memory(value: float) -> dict:
    return {"w": torch.full((10, 9), value * 1.0), "deep": {"b": torch.full((10,), value * 1.0)}}


def value(kept: dict) -> float:
    flat = torch.cat([tensor.flatten() for tensor in flatten(kept).values()])
    assert (flat == flat[0]).all()
    return float(flat[0])


@pytest.fixture
def small(monkeypatch):
    """Segments of three clients, of which a few small ones may be there."""
    monkeypatch.setattr(memories, "SEGMENT", 3 * BYTES)
    monkeypatch.setattr(memories, "MOST_SMALL", 2)


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*"))


@pytest.mark.parametrize("seed", range(5))
def test_memories_are_a_dict_whatever_is_on_disk(seed, small, tmp_path):
    rng, expected = random.Random(seed), {}
    held = Memories(tmp_path / "held", limit=rng.choice([0, 2, 5, 100]) * BYTES)
    for step in range(300):
        client, what = rng.randrange(30), rng.random()
        if what < 0.5:
            held[client] = memory(step)
            expected[client] = float(step)
        elif what < 0.65:
            held.save(held.folder)
            held.sweep()
        elif what < 0.7:
            checksums = held.save(held.folder)
            held.sweep()
            held = Memories.open(held.folder, checksums, "cpu", held.limit)
        assert (client in held) == (client in expected)
        if client in expected:
            assert value(held[client]) == expected[client]
        assert held.bytes <= max(held.limit, BYTES)
    assert {k: value(held[k]) for k in held} == expected
    assert len(held) == len(expected)
    with pytest.raises(KeyError):
        held[31]


def test_a_checkpoint_writes_what_is_new(small, tmp_path, monkeypatch):
    written = []
    save_tensors = array_files.save_tensors

    def counted(tensors, path, about):
        written.extend(tensors[memories.CLIENTS].tolist())
        save_tensors(tensors, path, about)

    held = Memories(tmp_path / "held")
    held.update({client: memory(client) for client in range(300)})
    held.save(held.folder)
    monkeypatch.setattr(array_files, "save_tensors", counted)
    held[7] = memory(1.0)
    held.save(held.folder)
    held.save(held.folder)
    assert written == [7]


def test_the_disk_holds_at_most_twice_what_clients_keep(small, tmp_path):
    held, rng = Memories(tmp_path / "held"), random.Random(0)
    for round in range(200):
        for client in rng.sample(range(30), 3):
            held[client] = memory(round)
        held.save(held.folder)
        held.sweep()
        held.save(held.folder)
        held.sweep()
    alone = Memories(tmp_path / "alone")
    alone.update({client: held[client] for client in held})
    alone.save(alone.folder)
    assert len(held) == 30
    assert on_disk(held.folder) < 2.5 * on_disk(alone.folder)  # headers are large here


def test_segments_of_the_last_two_checkpoints_stay_as_they_are(small, tmp_path):
    held, saved = Memories(tmp_path / "held", limit=2 * BYTES), []
    rng = random.Random(1)
    for round in range(60):
        for client in rng.sample(range(12), 5):
            held[client] = memory(round)
        saved.append((held.save(held.folder), {k: value(held[k]) for k in held}))
        held.sweep()
        held.update({k: memory(-1.0) for k in rng.sample(range(12), 4)})  # not in a checkpoint
        for checksums, expected in saved[-2:]:
            there = Memories.open(held.folder, checksums, "cpu")
            assert {k: value(there[k]) for k in there} == expected
        held = Memories.open(held.folder, saved[-1][0], "cpu", held.limit)


def test_a_run_has_the_same_bits_whatever_stays_in_memory(small, tmp_path):
    method = scaffold.method()
    plain, stored = (simulate(method, participation=1 / 2) for _ in range(2))
    state, history = checkpoint.new(stored.run, tmp_path / "kept")
    state.memory.limit = 0
    stored.run = state
    assert_same(stored.play(5), plain.play(5))
    assert len(state.memory.used) == 1
    checkpoint.save(tmp_path / "kept", "key", stored.run, history)
    read, _ = checkpoint.load(tmp_path / "kept", "key", "cpu")
    assert_same(read, plain.run)


@pytest.mark.parametrize("form", ["", "~1", "a/b", "a~b/", "/"])
def test_any_name_and_an_empty_dict_are_kept(form, tmp_path):
    held = Memories(tmp_path / "held")
    held[3] = {form: torch.ones(2), "nothing": {}, "none": torch.zeros(0, 4), "one": {form: {}}}
    held[4] = {"of another form": torch.tensor(True)}
    read = Memories.open(held.folder, held.save(held.folder), "cpu")
    assert read[3].keys() == held[3].keys()
    assert read[3]["nothing"] == {}
    assert read[3]["one"] == {form: {}}
    assert read[3]["none"].shape == (0, 4)
    assert torch.equal(read[3][form], torch.ones(2))
    assert read[4]["of another form"].dtype == torch.bool
    assert read[4]["of another form"].shape == ()


@pytest.mark.parametrize("damage", ["lost", "flipped", "swapped"])
def test_a_damaged_segment_is_seen(damage, small, tmp_path):
    held = Memories(tmp_path / "held")
    held.update({client: memory(client) for client in range(6)})
    checksums = held.save(held.folder)
    first, second = sorted(held.folder.glob("*"))[:2]
    if damage == "lost":
        first.unlink()
    elif damage == "swapped":
        first.write_bytes(second.read_bytes())
    else:
        content = bytearray(first.read_bytes())
        content[-5] ^= 1
        first.write_bytes(content)
    with pytest.raises(UnusableError, match="damaged"):
        Memories.open(held.folder, checksums, "cpu")


# --- evaluations ----------------------------------------------------------------------------------


def row(number: int, clients: int | None = None) -> dict:
    made = {"round": number, "loss": 1 / 3, "none": None}
    return made if clients is None else made | {"clients": [{"client": k} for k in range(clients)]}


def listed(history) -> list[dict]:
    return [r | {"clients": [*r["clients"]]} if "clients" in r else r for r in history]


def test_evaluations_are_read_as_they_were_written(tmp_path):
    lost = {"round": 4, "loss": float("nan"), "none": None}
    rows = [row(0), row(1, 3), row(2), row(3, 0), lost]
    written = History.copied(tmp_path / "history", rows)
    assert str(listed(written)) == str(rows)
    read = History.read(tmp_path / "history", written.save(tmp_path / "history"))
    assert str(listed(read)) == str(rows)
    read.append(row(5, 1))
    again = History.read(tmp_path / "history", read.save(tmp_path / "history"))
    assert str(listed(again)) == str([*rows, row(5, 1)])


def test_evaluations_after_a_checkpoint_are_left_out(tmp_path):
    path, other = tmp_path / "history", tmp_path / "other"
    written = History.copied(path, [row(0), row(1, 2)])
    about = written.save(path)
    written.append(row(2, 2))
    assert (longer := written.save(other)) != about
    resumed = History.read(path, about)
    resumed.append(row(7))
    assert listed(History.read(path, resumed.save(path))) == [row(0), row(1, 2), row(7)]
    assert listed(History.read(other, longer)) == [row(0), row(1, 2), row(2, 2)]


def test_a_new_history_leaves_a_second_name_of_the_old_one(tmp_path):
    path, other = tmp_path / "history", tmp_path / "other"
    about = History.copied(path, [row(0)]).save(other)
    History(path).append(row(9))
    assert listed(History.read(other, about)) == [row(0)]


@pytest.mark.parametrize("change", [(b"{", b""), (b"{", b"x"), (b"0.333", b"0.444"), None])
def test_a_damaged_history_is_seen(change, tmp_path):
    about = History.copied(tmp_path / "history", [row(0), row(1, 2)]).save(tmp_path / "history")
    content = (tmp_path / "history").read_bytes()
    (tmp_path / "history").unlink()
    if change:
        (tmp_path / "history").write_bytes(content.replace(*change, 1))
    with pytest.raises(UnusableError, match="damaged"):
        History.read(tmp_path / "history", about)


def test_a_run_of_many_rows_of_clients_has_a_checkpoint(tmp_path):
    """More than the hundred megabytes that a header of safetensors can have."""
    run = simulate(Method())
    state, history = checkpoint.new(run.run, tmp_path / "kept")
    named = [{"client": k, "client_name": "x" * 1000} for k in range(1000)]
    for number in range(120):
        history.append({"round": number, "clients": named})
    checkpoint.save(tmp_path / "kept", "key", state, history)
    _, read = checkpoint.load(tmp_path / "kept", "key", "cpu")
    assert [*read[-1]["clients"]] == named
    assert (tmp_path / "kept").stat().st_size < 1e6
