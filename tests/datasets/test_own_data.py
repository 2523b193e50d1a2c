"""Data of one's own: folders of images, .npz files, given clients; and what is refused."""

import csv
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedgrid
from conftest import read_once
from fedgrid.commands import data, partition
from fedgrid.datasets import _stream
from fedgrid.datasets._order import natural
from fedgrid.federation.augment import normalise
from fedgrid.federation.members import read_partition
from fedgrid.federation.stored import open_data, read_statistics
from fedgrid.notebook import names
from fedgrid.partitions import given
from fedgrid.report import _product
from fedgrid.runtime import records
from fedgrid.runtime.code import contract, own_data, source
from fedgrid.runtime.names import UsageError
from fedgrid.store import identity, keeping
from fedgrid.store import tables as collected
from fedgrid.study import checks
from fedgrid.study.grid import Grid
from fedgrid.study.jobs import fingerprint_stages
from fedgrid.study.paths import RUN, held_fields
from fedgrid.study.reading import check_schema, use_studies
from made import STUDIES

NAMES = {"protocol": "fedsls-quick", "partition": "iid", "method": "fedavg", "seed": 0}
pytestmark = pytest.mark.usefixtures("elsewhere", "_package_is_right")


@pytest.fixture
def _package_is_right(monkeypatch):
    """The package and its studies, which have no data of one's own, are read and checked before."""
    note = source._note()
    monkeypatch.setattr(source, "_note", lambda: note)
    read_once(monkeypatch, names)
    monkeypatch.setattr(Grid, "_check_study", lambda *_: None)


def known_as(**entries: dict) -> None:
    own_data.give({"datasets": entries})
    source.forget()


def pictures(folder: str, classes=("a b", "ö"), count=5, size=(9, 7), mode="RGB", apart=100):
    """A folder of PNG files for each class; the first pixel of a picture is its number."""
    for c, name in enumerate(classes):
        Path(folder, name).mkdir(parents=True)
        for i in range(count):
            image = Image.new("L", size, apart * c + i).convert(mode)
            image.save(Path(folder, name, f"{i}.png"))


def npz(**arrays) -> None:
    """An .npz file of 12 vectors and labels, with other arrays instead."""
    random = np.random.default_rng(0)
    whole = {"x_train": random.normal(5, 2, (12, 3)), "y_train": np.arange(12) % 3}
    whole |= {"x_test": random.normal(5, 2, (6, 3)), "y_test": np.arange(6) % 3}
    kept = {key: value for key, value in (whole | arrays).items() if value is not None}
    np.savez("my.npz", **kept)


def decoded(name: str):
    """The dataset as later stages read it."""
    data.main([name, "--out", name])
    return open_data(Path(name))


# -- folders --------------------------------------------------------------------------------------


def test_an_image_is_turned_scaled_and_cut_around_its_middle():
    pictures("photos", count=2)
    wide = Image.new("RGB", (6, 2), "black")
    wide.paste("white", (2, 0, 4, 2))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    wide.save("photos/ö/wide.png", exif=exif)
    known_as(photos={"folder": "photos", "size": 2, "test": 0.01})
    images = decoded("photos").train_images
    assert any((image == 255).all() for image in images)


@pytest.mark.parametrize("rows", ["file,client\n{}", "file, client\n {}", "\ufefffile,client\n{}"])
def test_clients_of_a_folder_come_from_a_file(rows):
    """Also from one with blanks after its commas, and from one that a spreadsheet wrote."""
    pictures("photos/train", count=3)
    pictures("photos/test", count=2)
    comma = ", " if ", " in rows else ","
    lines = [f"{c}/{i}.png{comma}{'xyz'[i]}" for c in ("a b", "ö") for i in range(3)]
    Path("clients.csv").write_text(rows.format("\n".join(lines)))
    known_as(photos={"folder": "photos", "clients": "clients.csv"})
    made = decoded("photos")
    assert (made.train_images.shape, made.test_images.shape) == ((6, 3, 32, 32), (4, 3, 32, 32))
    assert made.writer_names == ("x", "y", "z")
    drawn = given.draw(made.train_labels, 2, 3, "", "", writers=made.train_writers)
    assert [ids.tolist() for ids in drawn.members] == [[0, 3], [1, 4], [2, 5]]


# -- arrays ---------------------------------------------------------------------------------------


def test_floats_are_kept_and_normalised_by_their_own_mean_and_deviation():
    """A number that never changes becomes 0."""
    random = np.random.default_rng(0)
    npz(x_train=np.hstack([random.normal(5, 2, (12, 2)), np.full((12, 1), 7.0)]))
    known_as(mine={"npz": "my.npz"})
    made, given_x = decoded("mine"), np.load("my.npz")["x_train"].astype(np.float32)
    assert (made.shape, made.classes) == ((3, 1, 1), 3)
    assert made.train_images.dtype == np.float32
    np.testing.assert_array_equal(made.train_images[:, :, 0, 0], given_x)
    mean, std = (torch.tensor(v)[:, None, None] for v in read_statistics(made, "standard", Path()))
    images = torch.from_numpy(np.array(made.train_images))
    before, z = images.clone(), normalise(images, mean, std)
    assert torch.equal(images, before)  # a batch may be a part of the data themselves
    np.testing.assert_allclose(z.mean(0).flatten(), 0, atol=1e-5)
    np.testing.assert_allclose(z.std(0, correction=0).flatten(), [1, 1, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "options", "read"),
    [
        ((8, 8), {}, (1, 8, 8)),
        ((6, 12), {"shape": [1, 6, 12]}, (1, 6, 12)),
        ((6, 12), {"shape": [6, 1, 12]}, (6, 1, 12)),
        ((8, 8), {"shape": [8, 1, 8]}, (8, 1, 8)),
        ((2, 5, 6), {}, (2, 5, 6)),
        ((5, 6, 3), {"channels_last": True}, (3, 5, 6)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_arrays_are_images_or_signals_with_their_channels_first(given, options, read, dtype):
    x = np.random.default_rng(0).integers(0, 255, (18, *given)).astype(dtype)
    npz(x_train=x[:12], x_test=x[12:])
    known_as(mine={"npz": "my.npz"} | options)
    made = decoded("mine")
    assert made.shape == read
    first = np.moveaxis(x, 3, 1) if "channels_last" in options else x.reshape(18, *read)
    np.testing.assert_array_equal(made.train_images, first[:12])
    (unit,) = {len(part) for part in read_statistics(made, "standard", Path())}
    assert unit == read[0]


def test_tokens_are_sequences_and_labels_may_be_texts():
    x = np.arange(36).reshape(12, 3) % 7
    npz(x_train=x, x_test=x[:6], y_train=np.array([*"xyz"] * 4), y_test=np.array([*"zyx"] * 2))
    known_as(mine={"npz": "my.npz", "tokens": 7})
    made = decoded("mine")
    assert (made.tokens, made.shape, made.classes) == (7, (3,), 3)
    np.testing.assert_array_equal(made.train_images, x)
    assert made.test_labels.tolist() == [2, 1, 0, 2, 1, 0]


def test_a_partition_that_protocols_share_tells_the_log_alone(capsys, caplog):
    """The workflow names no batch; a warning on the screen might be of no run."""
    data.main(["digits"])
    shared = {"protocol": {"clients": 240, "recipe": "classwise"} | held_fields("")}
    shared |= {"name": NAMES | {"dataset": "digits"}, "dataset": "digits", "partition": "iid"}
    with caplog.at_level("INFO"):
        partition.main([json.dumps(shared | {"method": {}, "seed": 0})])
    told = "240 of 240 clients have too few training samples, and never train: a client needs 8"
    assert told in caplog.text
    assert told not in capsys.readouterr().err


# -- more data than memory -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pictures", "uint8", "float32"])
def test_pictures_and_memory_maps_are_decoded_in_little_memory(kind, monkeypatch):
    """And neither the size of the parts nor the kind of file changes a byte."""
    random, y = np.random.default_rng(0), np.arange(60) % 2
    x = random.integers(0, 256, (60, 3, 120, 120)).astype("uint8" if kind == "pictures" else kind)
    if kind == "pictures":
        for i, pixels in enumerate(np.moveaxis(x, 1, 3)):
            Path(f"many/{i % 2}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(f"many/{i % 2}/{i}.png", compress_level=0)
        whole = entry = {"folder": "many", "size": 120}
    else:
        npz(x_train=x, y_train=y, x_test=x[:20] + 1, y_test=y[:20])
        Path("many").mkdir()
        for name, array in np.load("my.npz").items():
            np.save(f"many/{name}.npy", array)
        whole, entry = {"npz": "my.npz"}, {"npz": "many"}
    known_as(many=whole)
    data.main(["many", "--out", "whole"])
    known_as(many=entry)
    monkeypatch.setattr(_stream, "AT_ONCE", 2**17)
    tracemalloc.start()
    data.main(["many", "--out", "parts"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    images = np.load("whole/train_images.npy")
    assert most < images.nbytes / 2
    for path in Path("whole").iterdir():
        assert path.read_bytes() == Path("parts", path.name).read_bytes()
    np.save("saved.npy", images)
    assert Path("saved.npy").read_bytes() == Path("whole/train_images.npy").read_bytes()
    if kind != "pictures":
        np.testing.assert_array_equal(images, x)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_the_same_in_every_kind_of_npz(save, order):
    npz()
    arrays = dict(np.load("my.npz"))
    save("my.npz", **arrays | {"x_train": np.asarray(arrays["x_train"], np.float32, order)})
    known_as(mine={"npz": "my.npz"})
    found = decoded("mine").train_images[:, :, 0, 0]
    np.testing.assert_array_equal(found, arrays["x_train"].astype(np.float32))


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["10", "9", "2", "0"], ["0", "2", "9", "10"]),
        (["v1.10", "v1.9", "v1.9b"], ["v1.9", "v1.9b", "v1.10"]),
        (["01", "1", "001", "2"], ["001", "01", "1", "2"]),
        (["a1", "a b", "a-", "a", "B", "ö"], ["B", "a", "a b", "a-", "a1", "ö"]),
        (["1" + "0" * 5000, "1" + "0" * 4999], ["1" + "0" * 4999, "1" + "0" * 5000]),
    ],
)
def test_names_are_sorted_with_their_numbers_by_value(names, wanted):
    assert sorted(names, key=natural) == wanted


def rows_of(path: str) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return [*csv.reader(file)]


def test_class_folders_are_numbered_by_value_and_their_names_are_written():
    names = [str(c) for c in range(12)]
    pictures("photos", names, mode="L", apart=10)
    known_as(photos={"folder": "photos", "test": 0.4, "size": [4, 6], "channels": 1})
    data.main(["photos", "--out", "out"])
    made = open_data(Path("out"))
    assert (made.classes, made.shape) == (12, (1, 4, 6))
    assert np.bincount(made.test_labels).tolist() == [2] * 12
    assert (made.train_images[:, 0, 0, 0] // 10 == made.train_labels).all()
    both = np.concatenate([made.train_images[:, 0, 0, 0], made.test_images[:, 0, 0, 0]])
    assert sorted(both.tolist()) == [10 * value + i for value in range(12) for i in range(5)]
    assert source.literal("datasets.photos", "CLASS_NAMES") == names
    assert rows_of("out/classes.csv") == [["class", "name"], *([c, c] for c in names)]
    assert made.class_names == tuple(names)
    assert not Path("out/writers.csv").exists()


def test_texts_are_numbered_by_the_values_in_them():
    y = np.array(["10", "9", "2"] * 4)
    clients = np.array(["ward 10", "ward 9"] * 6)
    npz(y_train=y, y_test=y[:6], clients_train=clients, clients_test=clients[:6])
    known_as(mine={"npz": "my.npz"})
    data.main(["mine", "--out", "out"])
    made = open_data(Path("out"))
    assert made.train_labels[:3].tolist() == made.test_labels[:3].tolist() == [2, 1, 0]
    assert made.train_writers[:2].tolist() == made.test_writers[:2].tolist() == [1, 0]
    assert rows_of("out/classes.csv")[1:] == [["0", "2"], ["1", "9"], ["2", "10"]]
    assert rows_of("out/writers.csv") == [["writer", "name"], ["0", "ward 9"], ["1", "ward 10"]]
    with pytest.raises(UsageError, match="has 2 clients, and the protocol 3: set its `clients`"):
        given.draw(made.train_labels, 3, 3, "", "", writers=made.train_writers)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.arange(12) % 2 * 2, None),  # with 3 classes
        (np.arange(12) % 3 + 5, ["5", "6", "7"]),
        (np.array(["a", "b"] * 6), ["a", "b", "unnamed 2"]),
        (np.array([b"\xe8", b"\xe9", b"e"] * 4), [r"\xe8", r"\xe9", "e"]),  # no text
        (np.arange(12) % 2 == 0, ["False", "True", "unnamed 2"]),
        (np.array([b"10", b"9", "é".encode()] * 4), ["9", "10", "é"]),
        (np.array(["ü", "a,b", 'say "x"'] * 4), ["a,b", 'say "x"', "ü"]),
    ],
)
def test_labels_that_do_not_stand_for_themselves_have_names(labels, names):
    Path("out").mkdir()
    Path("out/classes.csv").write_text("of other data")
    npz(y_train=labels, y_test=labels[:6])
    known_as(mine={"npz": "my.npz", "classes": 3})
    data.main(["mine", "--out", "out"])
    if names:
        assert rows_of("out/classes.csv")[1:] == [[str(c), one] for c, one in enumerate(names)]
    else:
        assert not Path("out/classes.csv").exists()
        np.testing.assert_array_equal(open_data(Path("out")).train_labels, labels)


def people(count: int = 12, each: int = 6) -> None:
    """Clients "0" to "11", each with `each` samples: the first number of a sample is the client."""
    clients = np.repeat([str(k) for k in range(count)], each)
    x = np.random.default_rng(0).normal(size=(len(clients), 3))
    x[:, 0] = clients.astype(int)
    y = np.array(["no", "yes"] * (len(clients) // 2))
    npz(x_train=x, y_train=y, x_test=x, y_test=y, clients_train=clients, clients_test=clients)


NAMED = {"model": "mlp", "rounds": 1, "clients": 12, "participation": 1.0, "smallest_batch": 1}
NAMED |= {"client_test_from": "writers", "metrics": ["recall"], "evaluate_every": 1}


def test_results_have_the_names_of_clients_and_classes():
    people()
    made = fedgrid.run(dataset="npz:my.npz", partition="given", results="results", **NAMED)
    assert [*made.clients["client_name"]] == [*made.clients["client"].astype(str)]
    assert {"recall_no", "recall_yes", "own_recall_no"} <= {*made.metrics}
    assert {*made.predictions["class_name"]} == {"no", "yes"}
    named = made.predictions.groupby("class")["class_name"].unique().map(list).to_dict()
    assert named == {0: ["no"], 1: ["yes"]}
    (listed,) = Path("results/partition").rglob("*.clients.csv")
    assert listed.name == "seed0.clients.csv"
    assert rows_of(listed) == [["client", "client_name"], *([str(k), str(k)] for k in range(12))]
    each = NAMED | {"clients": "writers"}
    assert fedgrid.run(dataset="npz:my.npz", partition="given", **each).summary["clients"] == 12
    (partition_file,) = Path("results/partition").rglob("*.npz")
    members = read_partition(partition_file).members
    x = np.load("my.npz")["x_train"][:, 0]
    assert [{*x[ids].tolist()} for ids in members] == [{k} for k in range(12)]
    found = collected.read_predictions(next(Path("results/runs").rglob("predictions.csv")))
    assert [*found] == ["round", "class", "predicted", "class_name"]


def test_a_cohort_of_clients_that_only_the_data_count_is_checked_in_the_run():
    people()
    some = NAMED | {"clients": "writers", "participation": 0.01}
    with pytest.raises(UsageError, match="of 12 clients samples no client: raise one of the two"):
        fedgrid.run(dataset="npz:my.npz", partition="given", results="results", **some)


def test_names_that_look_like_numbers_or_like_nothing_are_texts():
    clients, y = np.array(["NA", "007"] * 6), np.array(["nan", "1e3"] * 6)
    npz(y_train=y, y_test=y[:6], clients_train=clients, clients_test=clients[:6])
    made = fedgrid.run(
        dataset="npz:my.npz", partition="given", results="r", **NAMED | {"clients": 2}
    )
    assert [*made.clients["client_name"]] == ["007", "NA"] * (len(made.clients) // 2)
    assert {*made.predictions["class_name"]} == {"1e3", "nan"}
    whole = _product.read_table(next(Path("r/runs").rglob("predictions.csv")))
    assert {*whole["class_name"]} == {"1e3", "nan"}
    rows = keeping.read_item_rows("predictions", next(Path("r/runs").rglob("predictions.csv")))
    assert {*collected.parse_rows(rows)["class_name"]} == {"1e3", "nan"}
    assert {"recall_1e3", "recall_nan"} <= {*made.metrics}
    found = collected.read_clients(next(Path("r/runs").rglob("clients.csv")))
    assert {*found["client_name"]} == {"007", "NA"}


def test_a_client_of_several_writers_has_their_names():
    people()
    some = NAMED | {"clients": 5, "merge": True}
    made = fedgrid.run(dataset="npz:my.npz", partition="writers", results="results", **some)
    last = made.clients[made.clients["round"] == 1]
    (listed,) = Path("results/partition").rglob("*.clients.csv")
    by_client = {}
    for client, name in rows_of(listed)[1:]:
        by_client.setdefault(int(client), []).append(name)
    assert sorted(int(name) for own in by_client.values() for name in own) == [*range(12)]
    assert all(own == sorted(own, key=int) for own in by_client.values())
    assert [*last["client_name"]] == ["; ".join(by_client[k]) for k in range(5)]


def test_a_writer_of_several_clients_names_none_and_built_in_data_have_numbers():
    people()
    some = NAMED | {"client_test_from": "clients", "client_test": 0.5, "clients": 3, "merge": True}
    made = fedgrid.run(dataset="npz:my.npz", partition="iid", results="results", **some)
    assert "client_name" not in made.clients
    assert not [*Path("results/partition").rglob("*.csv")]
    made = fedgrid.run(dataset="penmanship", partition="writers", results="results", **some)
    assert "client_name" not in made.clients
    assert [*made.predictions] == ["round", "class", "predicted"]
    assert {"recall_0", "own_recall_9"} <= {*made.metrics}
    assert "class_names" not in made.summary


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ('["a"]', "CLASS_NAMES has 1 texts for 10 CLASSES: give one for each"),
        ('["a", "a"]', "not a list of different texts"),
        ("[1, 2]", "not a list of different texts"),
    ],
)
def test_names_of_classes_in_a_file_must_fit(names, says, monkeypatch):
    text = source.text("datasets.digits") + f"\nCLASS_NAMES = {names}\n"
    plain = source.text
    monkeypatch.setattr(source, "text", lambda m: text if m == "datasets.digits" else plain(m))
    source.forget()
    with pytest.raises(UsageError, match=says):
        contract.dataset("digits")


# -- runs -----------------------------------------------------------------------------------------


def test_a_run_is_trained_on_vectors_and_on_pictures_of_any_names():
    npz()
    config = {"datasets": {"mine": {"npz": "my.npz"}}}
    some = {"rounds": 2, "clients": 3, "participation": 1.0, "partition": "iid", "batch": 2}
    made = fedgrid.run(dataset="mine", config=config, model="mlp", **some)
    assert made.spec["dataset"] == "mine"
    pictures("photos", classes=["a, b", os.fsdecode(b"\xff"), "new\nline"])
    for name in (".DS_Store", "Thumbs.db"):
        Path("photos/a, b", name).write_text("what systems leave is no image")
    some |= {"metrics": ["recall"], "evaluate_every": 1}
    made = fedgrid.run(dataset=f"folder:{Path('photos').resolve()}", **some)
    assert made.spec["name"]["dataset"] == "photos"
    assert {"recall_a, b", r"recall_\udcff", "recall_new\nline"} <= {*made.metrics}


def test_a_grid_takes_data_that_no_study_has():
    npz()
    known_as(mine={"npz": "my.npz"})
    config = {"study": "fedsls", "scale": "quick", "dataset": ["mine"], "method": "fedavg",
              "partition": "iid", "protocol": "fedsls-quick-modelmlp"}  # fmt: skip
    made = Grid(STUDIES, config)
    assert {run["dataset"] for run in made.runs("fedsls", "quick", "table1")} == {"mine"}


def behind() -> str:
    """The code of a run on `photos`, which has a hash of the files in it."""
    return fingerprint_stages("train", Grid(STUDIES).resolve(NAMES | {"dataset": "photos"}))


def test_other_files_make_other_results_and_a_moved_folder_does_not():
    pictures("photos")
    known_as(photos={"folder": "photos"})
    first = behind()
    os.rename("photos", "moved")
    known_as(photos={"folder": "moved"})
    assert behind() == first
    known_as(photos={"folder": "moved", "size": 8})
    assert behind() != first
    path, times = Path("moved/ö/0.png"), (1, 1)
    os.utime(path, ns=times)
    known_as(photos={"folder": "moved"})
    assert behind() == first
    path.write_bytes(path.read_bytes()[:-1] + b"x")  # as many bytes
    os.utime(path, ns=times)
    known_as(photos={"folder": "moved"})
    assert behind() != first


def test_what_runs_share_is_of_the_data_that_are_there_now():
    names = NAMES | {"dataset": "my", "protocol": "fedsls-quick-modelmlp-clients5"}

    def make(command, word: str) -> None:
        records.write(command.main([word]), records.Command([word], 0))

    def is_finished() -> bool:
        known_as(my={"npz": "my.npz"})
        return identity.is_finished("partition", Grid(STUDIES).resolve(names), Path("results"))

    npz()
    assert not is_finished()
    make(data, "my")
    make(partition, RUN.format(**names))
    assert is_finished()
    npz(y_train=np.arange(12)[::-1] % 3)
    assert not is_finished()
    make(data, "my")
    assert not is_finished()
    make(partition, RUN.format(**names))
    assert is_finished()


def test_what_is_not_read_changes_nothing_and_what_a_link_leads_to_counts():
    pictures("far", classes=["1"])
    pictures("photos", classes=["a"])
    os.symlink(Path("far/1").absolute(), "photos/b")
    os.symlink(Path("photos/a").absolute(), "photos/a/again")
    pictures("further", classes=["more"], count=1)
    os.symlink(Path("further/more").absolute(), "photos/a/more")
    Path("clients.csv").write_text("file,client\n")
    entry = {"folder": "photos", "clients": "clients.csv"}
    known_as(photos=entry)
    first = behind()
    Path("photos/README.txt").write_text("not in a class")
    Path("photos/a/.ipynb_checkpoints").mkdir()
    Path("photos/a/.ipynb_checkpoints/0.png").write_text("hidden")
    Path("lists").mkdir()
    os.rename("clients.csv", "lists/clients.csv")
    known_as(photos=entry | {"clients": "lists/clients.csv"})
    assert behind() == first
    Image.new("RGB", (4, 4)).save("far/1/new.png")
    known_as(photos=entry | {"clients": "lists/clients.csv"})
    assert behind() != first
    known_as(photos={"folder": "photos"})
    assert len(decoded("photos").train_labels) == 10


def test_a_command_reads_the_entries_of_this_folder(monkeypatch):
    monkeypatch.delenv(own_data.VARIABLE)
    npz()
    Path("config.yaml").write_text("datasets: {mine: {npz: my.npz}}")
    source.forget()
    assert "mine" in own_data.list_datasets()
    data.main(["mine"])
    assert json.loads(Path("results/data/mine/meta.json").read_text())["classes"] == 3


def study_of(**entry) -> dict:
    """A study without grids that names data of one's own."""
    empty = {"protocols": {}, "scales": {}, "products": {}}
    return {"title": "one", "datasets": {"my": entry}} | empty


def test_a_study_names_data_of_ones_own_for_itself():
    npz()
    one, other = study_of(npz="my.npz"), study_of(npz="other.npz")
    for given_ in ({}, {"my": {"npz": "my.npz"}}):  # the same entry may stand in both
        known_as(**given_)
        Grid({"one": one})
        assert own_data.entries() == {"my": {"npz": "my.npz"}}
    assert source.literal("datasets.my", "CLASSES") == 3
    with pytest.raises(UsageError, match=r"the configuration: datasets\.my .* else in one\.yaml"):
        Grid({"one": other})
    known_as()
    said = list[str]()
    made = use_studies({"one": one, "other": other}, Grid, "one", said.append)
    assert [*made.studies] == ["one"]
    assert [sentence.partition(" is left out")[0] for sentence in said] == ["the study other"]
    assert own_data.entries() == {"my": {"npz": "my.npz"}}
    for wrong in (study_of(npz="my.npz", size=4), study_of(npz="x") | {"datasets": {"digits": {}}}):
        with pytest.raises(UsageError, match=r"^datasets\.\w+ of one.yaml has "):
            Grid({"one": wrong})
    with pytest.raises(UsageError, match=r"one: datasets\.my: .*did you mean npz"):
        check_schema("one", study_of(npy="my.npz"), "study")


def test_a_path_can_be_given_in_place_of_a_name():
    given_ = own_data.give({"dataset": "folder:/data/my flowers,npz:x/y.npz,digits"})
    assert given_["dataset"] == ["my_flowers", "y", "digits"]
    folder = {"folder": "/data/my flowers"}
    assert own_data.entries() == {"my_flowers": folder, "y": {"npz": "x/y.npz"}}


# -- clients that never train ---------------------------------------------------------------------


def uneven_clients() -> dict:
    """Clients of 2, 3 and 7 samples."""
    npz(clients_train=np.repeat([0, 1, 2], [2, 3, 7]))
    return {"dataset": "npz:my.npz", "model": "mlp", "partition": "given", "clients": 3} | {
        "participation": 1.0, "rounds": 2, "batch": 4, "smallest_batch": 3, "results": "results"
    }  # fmt: skip


@pytest.mark.parametrize(("smallest", "idle"), [(1, 0), (3, 1), (8, 2)])
def test_clients_that_never_train_are_counted(smallest, idle, capsys, caplog):
    """With the batch 4, a batch of `smallest_batch: 8` has 4 samples."""
    made = fedgrid.run(**uneven_clients() | {"smallest_batch": smallest})
    assert made.summary["clients_that_never_train"] == idle
    told = f"{idle} of 3 clients have too few training samples, and never train: a client needs"
    assert (told in capsys.readouterr().err) == bool(idle)  # when the partition is made
    assert sum(told in line for line in caplog.messages) == 2 * bool(idle)  # and in the run's log


def test_clients_without_tests_are_counted_and_told(caplog):
    made = fedgrid.run(**uneven_clients() | {"smallest_batch": 1, "client_test": 0.2})
    tested = made.clients["client"].nunique()
    assert 0 < tested < 3
    assert made.summary["clients_without_tests"] == 3 - tested
    assert sum(f"{3 - tested} of 3 clients have no test samples" in m for m in caplog.messages) == 1
    table = collected.read_metrics(next(Path("results").glob("runs/**/metrics.csv")))
    assert set(table["clients_without_tests"]) == {3 - tested}


@pytest.mark.parametrize("method", ["fedavg", fedgrid.Method()])
def test_a_run_in_which_nobody_trains_is_refused(method):
    few = uneven_clients() | {"batch": 64, "smallest_batch": 8}
    with pytest.raises(UsageError, match=r"none of the 3 .* needs 8 .*: lower `smallest_batch`, o"):
        fedgrid.run(method, **few, **({} if method == "fedavg" else {"name": "mine"}))


# -- what is refused ------------------------------------------------------------------------------

FEW = np.zeros((12, 3), np.float32)
BAD_ARRAYS = [
    ({"x_test": None}, {}, "lacks x_test: it has x_train, y_train, y_test, and needs"),
    ({"x_train": FEW[:11]}, {}, "x_train has 11 samples and y_train 12 labels"),
    ({"x_test": np.zeros((6, 4))}, {}, r"of x_test have the shape \(4, 1, 1\)"),
    ({}, {"shape": [4]}, r"have the shape \[3\], and the entry says \[4\]"),
    ({"x_train": FEW * np.nan}, {}, "not finite"),
    ({"x_train": np.eye(12, 3, -4) * 1e300}, {}, r"number 1e\+300, .* too large .* the sample 4,"),
    ({"x_train": np.zeros((12, 6, 128))}, {}, r"shape: \[1, 6, 128\].*shape: \[6, 1, 128\]"),
    ({"x_train": FEW.astype(int)}, {}, "sequences of tokens need `tokens`"),
    ({"x_train": FEW.astype(int) + 9}, {"tokens": 7}, "tokens from 9 to 9"),
    ({"x_train": FEW}, {"tokens": 7}, "sequences of tokens are whole numbers"),
    ({"x_train": np.zeros((12, 9, 8, 3))}, {}, "looks like .height, width, channels."),
    ({"x_train": np.zeros(12)}, {}, "has samples of the shape"),
    ({"x_train": np.zeros((12, 0))}, {}, "has no numbers"),
    ({"x_test": FEW[:0], "y_test": np.arange(0)}, {}, "x_test has no sample"),
    ({"y_test": np.array(["0"] * 6)}, {}, "of one part are texts"),
    ({"clients_train": np.arange(12) / 2}, {}, "clients_train is float64"),
    ({"x_train": np.array([{}] * 12)}, {}, "cannot be read|is object"),
    ({"y_train": np.arange(12) / 3}, {}, "labels are float64"),
    ({"y_train": np.zeros(12, int), "y_test": np.zeros(6, int)}, {}, "has 1 classes"),
    ({"y_test": np.arange(6)}, {"classes": 6}, "the class 3 is in y_test and not in y_train"),
    ({}, {"classes": 2}, "has 3 classes, and the entry says 2"),
    ({"clients_train": np.arange(11)}, {}, "clients_train has 11 values for 12 samples"),
    ({"clients_test": np.arange(6)}, {}, "has clients_test without clients_train"),
    ({"clients_train": np.array(["a", " "] * 6)}, {}, "clients_train has an empty text"),
    ({"y_train": np.array(["", "a"] * 6)}, {}, "y_train has an empty text for the sample 0"),
]


@pytest.mark.parametrize(("arrays", "options", "says"), BAD_ARRAYS)
def test_arrays_that_do_not_fit_are_refused(arrays, options, says, tmp_path):
    npz(**arrays)
    refused({"npz": "my.npz"} | options, says)


def refused(entry: dict, says: str) -> None:
    """The entry is refused in one sentence, and nothing is left."""
    known_as(mine=entry)
    with pytest.raises(UsageError, match=says) as caught:
        data.main(["mine", "--out", "out/mine"])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("datasets")
    assert not Path("out").exists() or [*Path("out").iterdir()] == []


def test_folders_that_do_not_fit_are_refused():
    pictures("one", classes=["a"])
    refused({"folder": "one"}, "the number of class folders is 1")
    refused({"folder": "nowhere"}, "there is no folder nowhere")
    refused({"size": 3}, "needs either `folder` or `npz`")
    pictures("text")
    Path("text/ö/notes.txt").write_text("no image")
    refused({"folder": "text"}, r"text/ö/notes.txt cannot be read as an image")
    pictures("deep")
    Image.fromarray(np.zeros((4, 4), np.uint16)).save("deep/ö/1.png")
    refused({"folder": "deep"}, "deep/ö/1.png cannot be read as an image .its pixels have more")
    pictures("empty")
    Path("empty/z").mkdir()
    refused({"folder": "empty"}, "the class z of empty has no image")
    pictures("parts/train")
    pictures("parts/test", classes=["a b"])
    refused({"folder": "parts"}, "the class ö is in only one of")
    pictures("owned")
    Path("clients.csv").write_text("file,client\nö/1.png,x\n")
    refused({"folder": "owned", "clients": "clients.csv"}, "has no client for")
    rows = [f"{name}/{i}.png,x\n" for name in ("a b", "ö") for i in range(5)]
    Path("clients.csv").write_text("".join(["file,client\n", *rows, "ö/1.png,y\n"]))
    refused({"folder": "owned", "clients": "clients.csv"}, "two clients for ö/1.png")
    Path("clients.csv").write_text("".join(["file,client\n", *rows[:-1], "ö/4.png,\n"]))
    refused({"folder": "owned", "clients": "clients.csv"}, "has no client for ö/4.png")
    Path("clients.csv").write_text("image\nx\n")
    refused({"folder": "owned", "clients": "clients.csv"}, "needs the columns file and client")
    Path("clients.csv").write_text("file;client\nö/1.png;x\n")
    refused({"folder": "owned", "clients": "clients.csv"}, "a comma.* its first line is file;cli")


@pytest.mark.parametrize("parts", [("train", "val"), ("Train", "Test"), ("train", "validation")])
def test_parts_of_a_dataset_are_not_taken_for_classes(parts):
    for part in parts:
        pictures(f"whole/{part}")
    refused({"folder": "whole"}, "look like parts of a dataset")


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        (["flowers"], r"`datasets` of the configuration is \['flowers'\], not entries .*: write"),
        ("flowers", "`datasets` of the configuration is 'flowers', not entries .*: write"),
        ({"flowers": "/data"}, r"datasets\.flowers .* is '/data', .*: write `flowers: {folder: P"),
    ],
)
def test_what_is_no_entry_is_refused(given_, says, monkeypatch):
    with pytest.raises(UsageError, match=says):
        own_data.give({"datasets": given_})
    monkeypatch.delenv(own_data.VARIABLE)
    Path("config.yaml").write_text(json.dumps({"datasets": given_}))
    with pytest.raises(UsageError, match=says):
        own_data.entries()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"datasets: {flowers: {folder: ", r"config\.yaml is not YAML, correct it: .* line 1"),
        (b"datasets: \xff", r"config\.yaml is not text in UTF-8"),
    ],
)
def test_a_configuration_that_is_cut_off_is_told(content, says, monkeypatch):
    monkeypatch.delenv(own_data.VARIABLE)
    Path("config.yaml").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        data.main(["digits"])


def test_names_that_two_have_are_refused():
    with pytest.raises(UsageError, match="has the name of the file datasets/"):
        own_data.give({"datasets": {"digits": {"npz": "x.npz"}}})
    with pytest.raises(UsageError, match="has the name x, as another one has"):
        own_data.give({"dataset": "npz:a/x.npz,npz:b/x.npz"})


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"model": "cnn"}, r"the model cnn reads images, .* choose the model mlp"),
        ({"augment": ["crop"]}, "`augment` changes images"),
        ({"method": "fedsls"}, "needs images, and the inputs of the dataset my are vectors"),
        ({"partition": "writers"}, "needs the writer of each sample"),
    ],
)
def test_vectors_are_refused_where_images_are_needed(given_, says):
    npz()
    with pytest.raises(UsageError, match=says):
        fedgrid.run(dataset="npz:my.npz", **({"partition": "iid", "model": "mlp"} | given_))


@pytest.mark.parametrize("method", ["fedsls", "fedsls_dynamic"])
def test_a_model_without_convolutions_has_no_saliency(method):
    for model in ("mlp", "char_lstm"):
        with pytest.raises(UsageError, match="encodes the maps of convolutions"):
            checks.check_model(method, {method: {}}, model)
