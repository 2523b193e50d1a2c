"""Bad data and hostile input: what is damaged, empty, out of range or meant to do harm.

Whatever is wrong is answered in one sentence, or recorded as a run that was lost, and leaves
nothing half written; what is only unusual works.
"""

import csv
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import conftest
import made as made_up
from conftest import (
    CLASSES,
    artifacts,
    brief,
    methods,
    pixel,
    simulate,
    slow_but,
    tiny,
    two_clients,
    uneven,
)
from fedgrid import models
from fedgrid.commands import collect, data
from fedgrid.datasets import _archives, cifar10, cinic10
from fedgrid.engine.device import prepare
from fedgrid.federation.federation import load_federation
from fedgrid.federation.members import fits, write_partition
from fedgrid.federation.stored import open_data
from fedgrid.method import Method
from fedgrid.partitions import dirichlet
from fedgrid.partitions.dirichlet import RECIPES
from fedgrid.report import _product
from fedgrid.report.fedsls import table1, weights
from fedgrid.runtime import cli, schema
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.places import PACKAGE
from fedgrid.stages import saliency
from fedgrid.store import tables as collected
from fedgrid.study.protocol import AXES
from fedgrid.training import results, rounds
from fedgrid.training.build import read_artifact
from planned import plan_of

t = torch.tensor
both_backends = pytest.mark.parametrize("backend", conftest.BACKENDS)


# --- archives and images -----------------------------------------------------------------------

SHAPE = (3, 32, 32)


def png(mode: str = "RGB", side: int = 32) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (side, side)).save(stream, "TIFF" if mode == "F" else "PNG")
    return stream.getvalue()


def archived(path: Path, members: list[tuple[str, bytes | tarfile.TarInfo]]) -> Path:
    """A .tar.gz of files, or of members as they are given."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name) if isinstance(content, bytes) else content
            member.size = len(content) if isinstance(content, bytes) else 0
            tar.addfile(member, io.BytesIO(content if isinstance(content, bytes) else b""))
    return path


def everything(name: str) -> str | None:
    return name if name.endswith(".png") else None


@pytest.mark.parametrize("name", ["../../x/test/cat/n.png", "/x/test/cat/n.png", "test/cat/n.png"])
def test_names_in_an_archive_point_nowhere(name, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    source = archived(inside / "a.tar.gz", [(name, png())])
    assert [len(content) for _, content in _archives.contents(source, everything)] == [len(png())]
    assert [path.name for path in tmp_path.rglob("*")] == ["inside", "a.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_in_an_archive_are_passed_over(kind, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    member = tarfile.TarInfo("CINIC-10/test/cat/link.png")
    member.type, member.linkname = kind, str(tmp_path / "secret.png")
    source = archived(tmp_path / "a.tar.gz", [("x", member)])
    assert list(_archives.contents(source, everything)) == []


@pytest.mark.parametrize("change", [(6, 1), (8, 99), (60, 7)], ids=["secret", "packed", "bytes"])
def test_a_changed_zip_cannot_be_read(change, tmp_path):
    """`tests/datasets/test_damage.py` cuts archives off."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", bytes(300))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    where, value = change
    content[where] = value
    if where < 20:  # in both the file's header and the directory
        content[content.rindex(b"PK\1\2") + where + 2] = value
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.zip cannot be read"):
        list(_archives.contents(tmp_path / "a.zip", everything))


def bomb() -> bytes:
    """A PNG of a hundred bytes that says it is 60,000 pixels wide and high."""
    content = bytearray(png("L", 1))
    content[16:24] = (60_000).to_bytes(4) * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a readable image"),
        (b"\x89PNG\r\n\x1a\n", "is not a readable image"),
        (png()[:60], "is not a readable image"),
        (png(side=31), r"has the shape \(3, 31, 31\)"),
        (png("I;16"), "is not a readable image: its pixels have more than 8 bits"),
        (png("F"), "is not a readable image: its pixels have more than 8 bits"),
        (bomb(), "is not a readable image"),
    ],
)
def test_an_image_of_another_kind_is_named(content, message):
    with pytest.raises(UsageError, match=f"^cat/n.png {message}"):
        _archives.decode("cat/n.png", content, SHAPE)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK"])
def test_images_of_other_modes_become_three_channels_of_8_bits(mode):
    stream = io.BytesIO()
    Image.new(mode, (32, 32)).save(stream, "TIFF")
    pixels = _archives.decode("n.png", stream.getvalue(), SHAPE)
    assert (pixels.shape, pixels.dtype) == (SHAPE, np.uint8)


def test_a_damaged_list_of_annotations_is_named(tmp_path):
    from fedgrid.datasets import tinyimagenet

    (tmp_path / "val").mkdir()
    for content in (b"one.JPEG\n", b"\xff\xfe\n"):
        (tmp_path / "val/val_annotations.txt").write_bytes(content)
        with pytest.raises(UsageError, match=r"val_annotations\.txt is damaged"):
            tinyimagenet._annotations(tmp_path)


class Runs:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_no_archive_is_unpickled_before_its_checksum_is_right(tmp_path):
    evil = pickle.dumps(Runs(tmp_path / "evil"))
    names = [f"cifar-10-batches-py/{n}" for n in ("data_batch_1", "test_batch", "batches.meta")]
    archived(tmp_path / "cifar-10-python.tar.gz", [(name, evil) for name in names])
    folder = tmp_path / "extracted"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(evil)
    for root in (tmp_path, folder):
        with pytest.raises(UsageError, match=r"has the checksum md5:.* is expected"):
            cifar10.load(root)
    assert not (tmp_path / "evil").exists()


def test_a_failed_decoding_leaves_no_dataset(tmp_path, monkeypatch):
    for constant, value in {"TRAIN": 1, "TEST": 0, "CLASSES": 1}.items():
        monkeypatch.setattr(cinic10, constant, value)
    (tmp_path / "CINIC-10/train/cat").mkdir(parents=True)
    (tmp_path / "CINIC-10/train/cat/n.png").write_bytes(b"torn")
    with pytest.raises(UsageError, match="is not a readable image"):
        data.main(["cinic10", "--root", str(tmp_path), "--out", str(tmp_path / "out/cinic10")])
    assert [*(tmp_path / "out").iterdir()] == []


# --- decoded data that was damaged -------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The folder of a decoded dataset."""
    folder = tmp_path_factory.mktemp("made") / "digits"
    data.main(["digits", "--out", str(folder)])
    return folder


@pytest.fixture
def decoded(made, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(made, tmp_path / "digits")


def array(name: str, change):
    def spoil(folder: Path) -> None:
        changed = change(np.load(folder / f"{name}.npy"))
        np.save(folder / f"{name}.npy", changed, allow_pickle=True)

    return spoil


def meta(**fields):
    def spoil(folder: Path) -> None:
        found = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps(found | fields))

    return spoil


def content(name: str, text: bytes):
    return lambda folder: (folder / name).write_bytes(text)


def evil_array(folder: Path) -> None:
    np.save(folder / "train_labels.npy", np.array([Runs(folder / "evil")]), allow_pickle=True)


def zipped(folder: Path) -> None:
    with (folder / "train_images.npy").open("wb") as file:
        np.savez(file, a=np.zeros(3))


@pytest.mark.parametrize(
    "spoil",
    [
        array("train_images", lambda a: a.astype(np.float32)),
        array("train_images", lambda a: np.full(a.shape, np.nan)),
        array("train_images", lambda a: a[:, 0]),
        array("train_images", lambda a: a[:-1]),
        array("train_labels", lambda a: a.astype(np.int32)),
        array("train_labels", lambda a: a.astype(object)),
        array("train_labels", lambda a: np.full(a.shape, np.nan)),
        array("train_labels", lambda a: a - 1),
        array("test_labels", lambda a: a * 0 + 10),
        evil_array,
        zipped,
        meta(classes="10"),
        meta(classes=None),
        meta(shape=3),
        meta(sizes=[1442, 355]),
        content("meta.json", b"[]"),
        content("meta.json", b"\xff\xfe"),
        content("meta.json", b"[" * 10**5),
        content("train_labels.npy", b"\x93NUMPY\x01\x00\x04\x00(((("),
        content("train_labels.npy", b"\x93NUMPY\x09\x00"),
    ],
)
def test_damaged_data_is_answered_in_one_sentence(spoil, decoded):
    spoil(decoded)
    with pytest.raises(UsageError) as problem:
        open_data(decoded)
    assert str(decoded) in str(problem.value)
    assert "\n" not in str(problem.value)
    assert not (decoded / "evil").exists()


def dealt(folder: Path, path: Path) -> Path:
    """A partition of the data in `folder` over five clients."""
    labels = np.load(folder / "train_labels.npy")
    write_partition(dirichlet.draw(labels, 10, 5, "classwise", 0.1, 0), path)
    return path


def load(folder: Path, path: Path):
    names = dict(zip(AXES, ("fedsls-quick", "digits", "dir0.1", "fedavg", 0), strict=True))
    run = made_up.GRID.resolve(names)
    run = run | {"protocol": run["protocol"] | {"clients": 5}}
    return load_federation(run, {"data": folder, "partition": path}, torch.device("cpu"))


@pytest.mark.parametrize(
    "statistics",
    [
        {},
        {"standard": [[0.3], [0.0]]},
        {"standard": [[0.3], [-1.0]]},
        {"standard": [[float("nan")], [1.0]]},
        {"standard": [[0.3], [float("inf")]]},
        {"standard": [[0.3, 0.3, 0.3], [1, 1, 1]]},
        {"standard": [["a"], [1]]},
        {"standard": 3},
    ],
)
def test_a_normalisation_that_cannot_be_divided_by_is_damage(statistics, decoded, tmp_path):
    path = dealt(decoded, tmp_path / "p.npz")
    meta(statistics=statistics)(decoded)
    with pytest.raises(UsageError, match=r"the dataset in .* is damaged"):
        load(decoded, path)


# --- partitions, saliency, latents, models -----------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"indices": lambda a: a + 1},
        {"indices": lambda a: np.zeros_like(a)},
        {"indices": lambda a: -a},
        {"indices": lambda a: a.astype(float)},
        {"indices": lambda a: a[:-1]},
        {"offsets": lambda a: a[::-1].copy()},
        {"offsets": lambda a: a + 5},
        {"offsets": lambda a: a * 0},
        {"offsets": lambda a: a.reshape(-1, 1)},
        {"counts": lambda a: a[::-1].copy()},
        {"counts": lambda a: a[:, :-1]},
        {"counts": lambda a: a.sum()},
        {"counts": lambda a: np.full(a.shape, np.nan)},
        {"counts": lambda a: a.astype(object)},
    ],
)
def test_a_file_that_is_no_partition_is_refused(change, made, tmp_path):
    path = dealt(made, tmp_path / "p.npz")
    assert load(made, path).counts.sum() == 1442
    with np.load(path) as found:
        arrays = {name: change[name](a) if name in change else a for name, a in found.items()}
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match=r"p\.npz is (damaged|not a partition)"):
        load(made, path)


GOOD = {"contributions": np.ones((3, 2, 2, 5, 3)), "main": np.array([True, True, False])}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("saliency", {}),
        ("saliency", GOOD | {"contributions": np.ones((3, 2, 2, 4, 3))}),
        ("saliency", GOOD | {"contributions": np.ones((3, 2, 2, 5, 2))}),
        ("saliency", GOOD | {"contributions": np.ones((3, 2, 2, 5, 3), np.float32)}),
        ("saliency", GOOD | {"contributions": np.array(None)}),
        ("saliency", GOOD | {"main": np.ones(3)}),
        ("saliency", GOOD | {"main": np.array(True)}),
        ("latents", {"norms": np.ones((3, 3, 4))}),
        ("latents", {"norms": np.ones(5)}),
        ("latents", {"norms": np.array([["a"]])}),
        ("latents", None),
    ],
)
def test_other_saliency_or_latents_are_refused(name, content, tmp_path):
    path = tmp_path / "s.npz"
    with path.open("wb") as file:
        if content is None:  # an array alone
            np.save(file, np.ones(3))
        else:
            np.savez(file, **content)
    with pytest.raises(UsageError, match=r"s\.npz is damaged"):
        read_artifact(name, path, torch.device("cpu"), 5)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("text", [b"", b"{", b"PK\3\4", bytes(100), b"\xff" * 100])
def test_weights_of_noise_are_refused(suffix, text, tmp_path):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=f"w{suffix} is damaged"):
        models.read_weights(path)


def test_weights_that_are_no_tensors_or_would_run_code_are_refused(tmp_path):
    path, evil = tmp_path / "w.pth", Runs(tmp_path / "evil")
    for value in ([1, 2], {"epoch": 3}, t(1.0), {"conv1.weight": evil}, None):
        torch.save(value, path)
        if value is None:  # a pickle as Python writes it
            path.write_bytes(pickle.dumps(evil))
        with pytest.raises(UsageError, match=r"w\.pth is damaged"):
            models.read_weights(path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value, tmp_path):
    body = models.build("cnn", (1, 8, 8), 10).body.state_dict()
    first = next(iter(body))
    body[first] = body[first].clone()
    body[first].view(-1)[3] = value
    save_file(body, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=f"`{first}` has numbers that are not finite"):
        models.build("cnn", (1, 8, 8), 10, tmp_path / "w.safetensors")


@pytest.mark.parametrize("text", [b"", b"noise" * 20, None])
def test_a_damaged_pretrained_model_is_named(text, tmp_path):
    engine = simulate(Method()).engine
    path = tmp_path / "client0.safetensors"
    if text is None:
        save_file({"a": torch.zeros(3)}, path)  # of another model
    else:
        path.write_bytes(text)
    with pytest.raises(UsageError, match=r"client0\.safetensors is damaged"):
        saliency.encoded(engine, tmp_path)


# --- what runs leave ---------------------------------------------------------------------------

METRICS = "round,accuracy,loss,train_loss,effective_clients\n0,0.1,2.3,,\n5,0.4,1,1,2\n"
METRICS += "10,0.6,1.0,1.1,2\n"


@pytest.mark.parametrize("length", [0, 20, 55, -1 - len("10,0.6,1.0,1.1,2"), -10, -4])
def test_a_cut_table_of_metrics_is_not_taken_for_a_run(length, tmp_path):
    (tmp_path / "summary.json").write_text('{"rounds": 10}')
    path = tmp_path / "metrics.csv"
    path.write_text(METRICS)
    assert not collected.read_checked(collected.read_metrics, path)["diverged"].any()
    path.write_text(METRICS[:length])
    with pytest.raises(UsageError, match=r"metrics\.csv cannot be read"):
        collected.read_checked(collected.read_metrics, path)


@pytest.mark.parametrize(("old", "new"), [("0.4", "0.4x"), ("10,", "ten,"), ("0.6", "\udcff")])
@pytest.mark.parametrize(
    "kind", ["runs", "seconds", "settings", "encoding", "saliency", "partition"]
)
def test_results_with_other_bytes_are_refused(kind, old, new, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(METRICS.replace(old, new).encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"the run in .*file"):
        collected.read_checked(collected.READERS[kind], path)


# --- federations ---------------------------------------------------------------------------------


METHODS = sorted(path.stem for path in (PACKAGE / "methods").glob("[!_]*.py"))
EVERY = [*((name, "loop") for name in METHODS), ("fedavg", "stacked"), ("fedsls", "stacked")]
RAREST = "one sample each, empty clients, classes without samples"
UNUSUAL = {  # sizes of the clients, classes that have samples
    "one client in all": ((9,), CLASSES),
    RAREST: ((1, 0, 1, 1), 1),
}


def least_cohort(name: str) -> int:
    """How many clients a method needs in a round."""
    return source.literal(f"methods.{name}", "LEAST_COHORT", 1)


@pytest.mark.parametrize("unusual", slow_but([RAREST], UNUSUAL))
@pytest.mark.parametrize(("name", "backend"), EVERY)
def test_every_method_works_on_an_unusual_federation(name, backend, unusual):
    sizes, labels = UNUSUAL[unusual]
    used = {"participation": 1.0, "rounds": 2}
    needed = artifacts(name, len(sizes))
    simulation = simulate(brief(name), backend, uneven(sizes, labels), tiny, needed, **used)
    history: list[dict] = []
    if len(simulation.engine.plan(simulation.run).clients) < least_cohort(name):
        with pytest.raises(UsageError, match="has one client"):
            simulation.play()
        return
    *_, state = rounds.rounds(simulation.engine, simulation.run, history)
    assert state.round == 2
    assert rounds.diverged(history) is None
    assert all(tensor.isfinite().all() for tensor in state.server.values())


@pytest.mark.parametrize(("name", "backend"), [of for of in EVERY if least_cohort(of[0]) == 1])
def test_a_round_in_which_nobody_can_train_changes_nothing(name, backend):
    # One of four clients takes part, who is empty in some rounds.
    needed = artifacts(name, 4)
    used = {"participation": 0.25, "evaluate_every": 1, "rounds": 3}
    simulation = simulate(brief(name), backend, uneven((0, 0, 0, 5)), tiny, needed, **used)
    before, idle, history = simulation.run, 0, []
    for state in rounds.rounds(simulation.engine, simulation.run, history):
        same = all(torch.equal(state.server[n], before.server[n]) for n in state.server)
        trained = "train_loss" in history[-1]
        assert same or trained
        idle, before = idle + (not trained), state
    assert idle > 0 or methods(name).choose  # a method may choose who trains
    assert before.round == 3
    assert rounds.diverged(history) is None


def test_a_run_whose_last_round_was_idle_is_finished_and_not_lost(tmp_path):
    engine = simulate(Method(), "loop", uneven((0, 5)), participation=0.5, rounds=3).engine
    state = engine.start(0)
    found = engine.evaluation.evaluate(state.server)
    told = {"train_loss": 1.0, "effective_clients": 1.0}
    history = [{"round": 0} | found, {"round": 1} | found | told, {"round": 3} | found]
    state.round = 3
    results.write(tmp_path, state, history, {})
    assert not collected.read_checked(collected.read_metrics, tmp_path / "metrics.csv")[
        "diverged"
    ].any()


def test_clients_that_no_round_samples_keep_nothing_and_change_nothing():
    simulation = simulate(methods("moon"), federation=uneven((5, 4, 3, 2)), participation=0.25)
    simulation.play(1)
    assert len(simulation.run.memory) == 1


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("labels", [np.arange(40) % 2 * 2, np.zeros(40, int), np.arange(40) // 39])
def test_classes_with_no_or_one_sample_are_dealt_out(recipe, labels):
    for clients in (1, 2, 3):
        made = dirichlet.draw(labels, 4, clients, recipe, 0.5, 0)
        assert fits(made, labels, 4)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("alpha", [1e-300, 1e-18, 1e-9, 1e9, 1e18, 1e300, np.inf, np.nan])
def test_an_extreme_alpha_is_drawn_with_or_refused(recipe, alpha, monkeypatch):
    monkeypatch.setattr(dirichlet, "RESTARTS", 256)
    labels = np.arange(200) % 4
    try:
        made = dirichlet.draw(labels, 4, 5, recipe, alpha, 0)
    except UsageError as problem:
        assert "alpha" in str(problem) or "no balanced partition" in str(problem)  # noqa: PT017
    else:
        assert fits(made, labels, 4)


# --- numbers -------------------------------------------------------------------------------------

LOST = float("nan")


def spoilt(value: float, who: str) -> Method:
    """A penalty that is `value` for the clients `who`: in `two_clients` one has one sample.

    If it is not finite, it begins in the second round: before, it is a mistake of the method.
    """
    first = 0 if np.isfinite(value) else 1
    mine = {"one": lambda step: step.counts[0] > 0, "all": lambda step: step.counts[0] >= 0}[who]

    def penalty(step):
        w = step.params["head.weight"].sum()
        return torch.where(mine(step) & (step.round >= first), w * value, w * 0)

    return Method(penalty=penalty)


def written(simulation, folder: Path) -> dict:
    """A run to its end, as files; its summary."""
    history: list[dict] = []
    *_, state = simulation.run, *rounds.rounds(simulation.engine, simulation.run, history)
    results.write(folder, state, history, {})
    return json.loads((folder / "summary.json").read_text())


def hand(method: Method, backend: str, **used):
    fields = conftest.HAND | {"rounds": 4, "evaluate_every": 2} | used
    return simulate(method, backend, two_clients(), pixel, **fields)


def shown(tmp_path: Path, *simulations) -> tuple[pd.DataFrame, str]:
    """Table 1 of a cell whose seeds are these runs, with numbers and as text."""
    names = {"protocol": "p", "dataset": "d", "partition": "dir0.1", "method": "m"}
    for seed, simulation in enumerate(simulations):
        written(simulation, tmp_path / f"runs/p/d/dir0.1/m/seed{seed}")
    blocks = [{k: [v] for k, v in names.items()} | {"seed": [*range(len(simulations))]}]
    collect.main([
        *("runs", json.dumps(blocks), "--results", str(tmp_path)),
        *("--out", str(tmp_path / "runs.csv")),
        *("--protocols", json.dumps({"p": {"rounds": 4, "tail": 4}})),
    ])  # fmt: skip
    table = table1.draw(_product.read_table(tmp_path / "runs.csv"), {}, "quick")
    return table, table1.wide(table).to_string()


@both_backends
@pytest.mark.parametrize("who", ["one", "all"])
@pytest.mark.parametrize("value", [LOST, float("inf"), 1e308])
def test_a_client_of_lost_numbers_is_recorded_and_not_averaged(value, who, backend, tmp_path):
    summary = written(hand(spoilt(value, who), backend), tmp_path / "summary")
    assert summary["diverged"] == 2  # the first evaluation after it
    assert summary["rounds"] == 2
    lost, good = hand(spoilt(value, who), backend), hand(Method(), backend)
    table, text = shown(tmp_path, good, lost, good)
    assert table["mean"].isna().all()
    assert "1/3 diverged" in text


@both_backends
@pytest.mark.parametrize(
    ("given", "effective", "options"),
    [([0.0, 1.0], 1.0, {}), ([1.0, -1.0], 0, {"any_sum": True})],
)
def test_a_client_may_weigh_nothing_or_be_subtracted(given, effective, options, backend, tmp_path):
    method = Method(weigh=lambda cohort: t(given).double(), **options)
    summary = written(hand(method, backend), tmp_path)
    assert summary["diverged"] is None
    assert summary["final"]["effective_clients"] == effective


@both_backends
@pytest.mark.parametrize("name", ["fedsls", "fedsl"])
@pytest.mark.parametrize("value", [0.0, LOST, float("inf")])
def test_saliency_that_weighs_nobody_is_refused_or_loses_the_run(value, name, backend, tmp_path):
    needed = artifacts(name, 2)
    for found in needed.values():
        for key in {"contributions", "norms"} & found.keys():
            found[key] = torch.full_like(found[key], value)
    fields = conftest.HAND | {"rounds": 4}
    simulation = simulate(methods(name), backend, two_clients(), pixel, needed, **fields)
    if value == 0:  # shares of nothing
        with pytest.raises(
            UsageError, match=rf"methods/{name}.py, line .*`weigh` gives .*not finite"
        ):
            written(simulation, tmp_path)
    else:
        assert written(simulation, tmp_path)["diverged"] is not None


@both_backends
def test_a_client_without_weight_does_not_hide_its_lost_numbers(backend, tmp_path):
    method = spoilt(LOST, "one") | Method(weigh=lambda cohort: t([0.0, 1.0]).double())
    assert written(hand(method, backend), tmp_path)["diverged"] == 2


def test_a_run_lost_before_its_first_round_is_collected_and_shown(tmp_path):
    broken, good = hand(Method(), "loop"), hand(Method(), "loop")
    for tensor in broken.run.server.values():
        tensor.fill_(LOST)
    table, text = shown(tmp_path, good, good, broken)
    assert "1/3 diverged" in text
    assert table["mean"].isna().all()
    rows = list(csv.DictReader((tmp_path / "runs/p/d/dir0.1/m/seed2/metrics.csv").open()))
    assert [row["round"] for row in rows] == ["0"]


def test_saliency_of_a_lost_client_is_drawn(tmp_path):
    names = dict(zip(AXES, ("p", "digits", "dir0.1", "fedsls", 0), strict=True))
    table = pd.DataFrame({"client": [0, 1], "size": [3, 4], "R": [LOST, 1.0]})
    table = table.assign(R_per_sample=[LOST, 0.25], weight=LOST, effective_clients=LOST, **names)
    product = weights.draw(table, {}, "quick")
    weights.plot(product, {})


# --- the command line ----------------------------------------------------------------------------

# What makes root obey the permissions of files; anyone else does.
OBEYS = ["env"] if os.geteuid() else ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
OBEYS = OBEYS if shutil.which(OBEYS[0]) else []


def command(folder: Path, *arguments, env=None) -> subprocess.CompletedProcess:
    """A command of the package; its streams arrive as one."""
    environment = conftest.ENVIRONMENT | {"PYTHONPATH": str(PACKAGE.parent)} | (env or {})
    return subprocess.run(
        [*map(str, arguments)], cwd=folder, env=environment, text=True, timeout=600,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def staged(folder: Path, *arguments) -> subprocess.CompletedProcess:
    return command(folder, sys.executable, "-m", *arguments)


def assert_one_sentence(process: subprocess.CompletedProcess, *words: str) -> None:
    lines = [line for line in process.stdout.splitlines() if line.startswith("error: ")]
    assert process.returncode == 1, process.stdout
    assert len(lines) == 1, process.stdout
    assert "Traceback" not in process.stdout
    assert "defect" not in process.stdout
    assert all(word in lines[0] for word in words), process.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--out", "file/digits"),
        ("--out", "new", "--log", "file/log"),
        ("--out", "new", "--log", "."),
        ("--out", "x" * 300),
    ],
)
def test_a_place_where_nothing_can_be_written_is_named(arguments, tmp_path):
    (tmp_path / "file").write_text("kept")
    process = staged(tmp_path, "fedgrid.commands.data", "digits", *arguments)
    assert_one_sentence(process, "cannot be read or written")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(not OBEYS, reason="root may write anywhere, and setpriv is not there")
def test_a_results_folder_that_may_only_be_read_is_named(tmp_path):
    (tmp_path / "results").mkdir(mode=0o555)
    process = command(tmp_path, *OBEYS, sys.executable, "-m", "fedgrid", "data", "digits")
    assert_one_sentence(process, "results/data", "cannot be read or written (Permission denied)")
    assert not list((tmp_path / "results").iterdir())


@pytest.mark.parametrize(
    ("device", "threads", "vram", "message"),
    [
        ("cpu", 0, "", "--threads is 0, not at least 1"),
        ("cpu", -2, "", "--threads is -2, not at least 1"),
        ("auto", 1, "many", "FEDGRID_VRAM_GB is 'many', not a whole number"),
        ("auto", 1, "-1", "FEDGRID_VRAM_GB is '-1', not a whole number"),
        ("tpu", 1, "", "no device is called `tpu`: did you mean cpu"),
    ],
)
def test_a_machine_that_there_is_not_is_named(device, threads, vram, message, monkeypatch):
    monkeypatch.setenv("FEDGRID_VRAM_GB", vram)
    with pytest.raises(UsageError, match=message):
        prepare(device, threads, "fp32")


def test_numbers_that_a_cpu_is_slow_at_count_as_zero():
    prepare("cpu", 1, "fp32")
    smallest = torch.finfo(torch.float32).tiny
    assert float(torch.tensor(smallest) * 0.5) == 0
    assert float(torch.tensor(2 * smallest) * 0.5) > 0


def test_a_backend_that_there_is_not_is_named():
    with pytest.raises(UsageError, match="no backend is called `fast`"):
        simulate(Method(), "fast")


def test_control_characters_in_a_name_do_not_reach_the_terminal(tmp_path):
    process = staged(tmp_path, "fedgrid.commands.data", "di\x1b[31mgits\nerror: x")
    assert_one_sentence(process, r"di\x1b[31mgits\nerror: x")


def test_more_memory_than_there_is_is_said():
    problem = MemoryError("Unable to allocate 7 TiB")
    assert cli.refused(problem) == "not enough memory (Unable to allocate 7 TiB)"
    assert cli.refused(OSError(28, "No space left on device", "x")).startswith("x cannot be")
    assert cli.refused(FileNotFoundError(2, "No such file", "x")) == ""


# --- whole workflows -----------------------------------------------------------------------------

TINY = ("--cores", "1", "--configfile", "tiny.yaml", "--config", "method=fedavg,fedsls")
TABLE = "results/table1.csv"


def snakemake(project: Path, *options) -> subprocess.CompletedProcess:
    env = {"PYTHONPATH": ""}
    return command(project, "snakemake", *TINY, *options, "--", TABLE, env=env)


@pytest.fixture(scope="module")
def strange(tmp_path_factory) -> Path:
    """The project in a folder whose name a shell would stumble over."""
    name = """it's a "project" $(touch evil) `touch evil` & ünï;touch evil"""
    (folder := tmp_path_factory.mktemp("strange") / name).mkdir()
    return conftest.copied(folder)


@pytest.mark.slow
def test_folders_may_have_any_name(strange):
    root = """data_root=it's {here} $(touch evil) "quoted" `touch evil` ünï"""
    process = snakemake(strange, root)
    assert process.returncode == 0, process.stdout
    assert len(_product.read_table(strange / TABLE)) == 2
    assert not list(strange.parent.rglob("evil*"))


@pytest.mark.slow
@pytest.mark.parametrize("brace", ["{", pytest.param("}", marks=pytest.mark.exhaustive)])
def test_a_folder_with_braces_is_named(brace, tmp_path):
    (folder := tmp_path / f"a{brace}b").mkdir()
    process = snakemake(conftest.copied(folder), "--dry-run")
    assert process.returncode != 0
    assert "Traceback" not in process.stdout
    assert f"the project is in {folder}: no folder of this path may have braces" in process.stdout


HOSTILE = ["$(touch evil)", "`touch evil`", "a;touch evil", "a'b", 'a"b', "a b", "../x", "a\nb"]


@pytest.mark.slow
def test_names_for_the_shell_are_refused(strange, tmp_path):
    for kind in ("variants", "protocols"):
        for name in HOSTILE:
            overlay = {kind: {name: {"fedavg": {}} if kind == "variants" else {"rounds": 3}}}
            try:
                schema.check_schema("config.yaml", overlay | CONFIG, CONFIG_RULES)
            except UsageError as problem:
                assert "is not a name" in str(problem)  # noqa: PT017
            else:
                pytest.fail(f"{name} was accepted")
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(json.dumps({"variants": {"$(touch evil)": {"fedavg": {}}}}))
    process = command(strange, "snakemake", "-n", "--configfile", overlay, env={"PYTHONPATH": ""})
    assert process.returncode != 0
    assert "`$(touch evil)` is not a name" in process.stdout
    for axis in ("dataset", "method", "study", "scale", "protocol"):
        with pytest.raises(UsageError, match="is called `"):
            plan_of(**{axis: "'{x}};`touch evil`$(touch evil)"})
    assert not list(strange.parent.rglob("evil*"))


CONFIG_RULES = PACKAGE.parent / "schemas/config.schema.yaml"
CONFIG = {"study": "fedsls", "scale": "quick", "data_root": "data", "device": "cpu"}
CONFIG |= {"backend": "auto", "threads": 1, "vram_gb": 0, "warm": True}


@pytest.mark.slow
def test_a_name_of_letters_of_any_script_works(tmp_path):
    project = conftest.copied(tmp_path)
    overlay = {"variants": {"größer+=1": {"fedprox": {"mu": 0.1}}}, "method": "größer+=1"}
    (project / "overlay.yaml").write_text(json.dumps(overlay))
    options = ("--cores", 1, "--configfile", "tiny.yaml", "overlay.yaml", "--", TABLE)
    process = command(project, "snakemake", *options, env={"PYTHONPATH": ""})
    assert process.returncode == 0, process.stdout
    assert _product.read_table(project / TABLE)["method"].tolist() == ["größer+=1"]


@pytest.mark.slow
def test_a_second_snakemake_in_the_folder_says_that_the_first_is_at_work(tmp_path):
    project = conftest.copied(tmp_path)
    process = ["snakemake", *TINY, "protocol=long", "--", TABLE]
    first = subprocess.Popen(
        process, cwd=project, env=conftest.ENVIRONMENT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not any(lock.stat().st_size for lock in project.glob(".snakemake/locks/*.output.*")):
            assert first.poll() is None
            time.sleep(0.1)
        os.killpg(first.pid, signal.SIGSTOP)  # however long the second takes to start
        second = snakemake(project)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert second.returncode != 0
    assert "no other Snakemake process is trying to create the same files" in second.stdout
    assert "--unlock" in second.stdout
    unlocked = command(project, "snakemake", "--unlock", env={"PYTHONPATH": ""})
    assert unlocked.returncode == 0, unlocked.stdout
    assert snakemake(project, "--rerun-incomplete").returncode == 0
