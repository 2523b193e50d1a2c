"""Files of datasets that are cut off or changed: one sentence that names them, or they are read."""

import re
import tarfile
from pathlib import Path
from zipfile import ZipFile

import leaf
import numpy as np
import pandas as pd
import pytest
from test_own_data import known_as, npz, pictures

from fedgrid import datasets
from fedgrid.commands import data
from fedgrid.datasets import cinic10, femnist, tinyimagenet
from fedgrid.runtime.names import UsageError

pytestmark = pytest.mark.usefixtures("elsewhere")


def own(**entry):
    """Data of one's own are decoded by the command, because they are written in parts."""
    known_as(mine=entry)
    data.main(["mine", "--out", "out/mine"])


def packed(save) -> Path:
    npz(clients_train=np.array([*"ab"] * 6))
    save("my.npz", **dict(np.load("my.npz")))
    return Path("my.npz")


def unpacked() -> Path:
    npz()
    Path("my").mkdir()
    for name, array in np.load("my.npz").items():
        np.save(f"my/{name}.npy", array)
    return Path("my/x_train.npy")


def photos() -> Path:
    pictures("photos")
    return Path("photos/ö/3.png")


def clients() -> Path:
    pictures("photos")
    rows = [f"{name}/{i}.png,x\n" for name in ("a b", "ö") for i in range(5)]
    Path("clients.csv").write_text("".join(["file,client\n", *rows]))
    return Path("clients.csv")


def text() -> Path:
    Path("shakespeare").mkdir()
    Path("shakespeare/input.txt").write_text(f"A:\n{'all ' * 30}\n\nB:\n{'or ' * 40}")
    return Path("shakespeare/input.txt")


def table() -> Path:
    Path("shakespeare").mkdir()
    rows = {"character_id": ["A"] * 6, "x": ["a" * 80] * 6, "y": ["b"] * 6}
    pd.DataFrame(rows).to_csv("shakespeare/s.csv", index=False)
    return Path("shakespeare/s.csv")


def tar() -> Path:
    pictures("train", classes=cinic10.NAMES[:2], count=1, size=(32, 32))
    with tarfile.open("CINIC-10.tar.gz", "w:gz") as archive:
        archive.add("train")
    return Path("CINIC-10.tar.gz")


def zipped() -> Path:
    pictures("train", classes=["n1", "n2"], count=1, size=(64, 64))
    with ZipFile("tiny-imagenet-200.zip", "w") as archive:
        for name in ("n1", "n2"):
            archive.write(f"train/{name}/0.png", f"train/{name}/{name}_0.JPEG")
    return Path("tiny-imagenet-200.zip")


def load(name: str):
    return lambda: datasets.load(name, Path())


# What writes a file, what reads it, and what some of the answers say.
READERS = {
    "npz": (lambda: packed(np.savez), lambda: own(npz="my.npz"), "x_train cannot be read"),
    "compressed npz": (
        lambda: packed(np.savez_compressed),
        lambda: own(npz="my.npz"),
        r"my\.npz is no \.npz file of numpy",
    ),
    "npy": (unpacked, lambda: own(npz="my"), "my/x_train.npy is no .npy file of numpy"),
    "picture": (photos, lambda: own(folder="photos"), "ö/3.png cannot be read as an image"),
    "clients": (
        clients,
        lambda: own(folder="photos", clients="clients.csv"),
        "clients.csv has no client for|needs the columns",
    ),
    "FEMNIST": (
        lambda: leaf.write(Path("femnist"), leaf.content({"A": ([[1.0] * 784] * 6, [3] * 6)})),
        load("femnist"),
        r"0.json is damaged \(JSONDecodeError",
    ),
    "text": (text, load("tinyshakespeare"), "a speech begins with"),
    "roles": (
        lambda: leaf.write(Path("shakespeare"), leaf.content({"A": (["a" * 80] * 6, "b" * 6)})),
        load("shakespeare"),
        r"0.json is damaged \(JSONDecodeError",
    ),
    "table": (table, load("shakespeare"), r"s\.csv is damaged \(ValueError|expected a text"),
    "tar": (tar, load("cinic10"), r"CINIC-10\.tar\.gz cannot be read"),
    "zip": (zipped, load("tinyimagenet"), r"tiny-imagenet-200\.zip cannot be read"),
}


@pytest.mark.parametrize("kind", READERS)
def test_no_damage_of_a_file_is_a_traceback(kind, monkeypatch):
    monkeypatch.setattr(femnist, "TOTALS", {"json": ((6, 1),)})
    for module in (cinic10, tinyimagenet):
        monkeypatch.setattr(module, "fetch", lambda url, path, *_: path)  # any checksum is right
        for constant, value in {"TRAIN": 2, "TEST": 0, "CLASSES": 2}.items():
            monkeypatch.setattr(module, constant, value)
    write, read, says = READERS[kind]
    path = write()
    content, random, answers = path.read_bytes(), np.random.default_rng(0), []
    read()
    for at in random.integers(len(content), size=12):
        for changed in (content[:at], content[:at] + random.bytes(2) + content[at + 2 :]):
            path.write_bytes(changed)
            try:
                read()
            except UsageError as problem:
                answers.append(str(problem))
    assert [answer for answer in answers if re.search(says, answer)]
    assert not [answer for answer in answers if "\n" in answer]
