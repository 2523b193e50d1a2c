"""Datasets, downloads and the data stage: `fedgrid.datasets`, `.download`, `.images`, `.data`."""

import errno
import hashlib
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image, features

from alone import REAL_DATA, REPOSITORY
from fedgrid import datasets
from fedgrid.commands import data
from fedgrid.datasets import _digests as digests
from fedgrid.datasets import _statistics, _stream, cinic10, mnist, photographs, tinyimagenet
from fedgrid.federation.stored import ARRAYS, open_data
from fedgrid.runtime import download
from fedgrid.runtime.code import source
from fedgrid.runtime.names import UsageError, registered

WITHOUT_FILES = ["digits", "penmanship", "photographs", "synthetic"]
CINIC_CLASSES = ["airplane", "automobile", "bird", "cat", "deer"]
CINIC_CLASSES += ["dog", "frog", "horse", "ship", "truck"]


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


# --- every dataset ---------------------------------------------------------------------------


def test_sizes_and_classes_are_the_published_ones():
    """And every file's constants are right: `module` checks them."""
    files = {name: datasets.module(name) for name in registered("datasets")}
    sizes = {name: (file.TRAIN, file.TEST, file.CLASSES) for name, file in files.items()}
    assert sizes["mnist"] == (60_000, 10_000, 10)
    assert sizes["cifar10"] == (50_000, 10_000, 10)
    assert sizes["cifar100"] == (50_000, 10_000, 100)
    assert sizes["cinic10"] == (90_000, 90_000, 10)
    assert sizes["tinyimagenet"] == (100_000, 10_000, 200)


def measured(images: np.ndarray) -> list[np.ndarray]:
    scaled = images / 255
    return [scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))]


def test_reading_a_dataset_needs_no_torch():
    files = ", ".join(f"fedgrid.datasets.{name}" for name in registered("datasets"))
    code = f"import sys, {files}; from fedgrid import datasets; datasets.load('dialects', None)"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_datasets_without_files_load_the_same_twice_and_have_their_statistics(
    name, tmp_path, capsys
):
    first, second = datasets.load(name, tmp_path), datasets.load(name, tmp_path)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    constants = datasets.module(name)
    classes = {*range(constants.CLASSES)}
    assert {*first.train_labels.tolist()} == {*first.test_labels.tolist()} == classes
    standard = constants.STATISTICS["standard"]
    np.testing.assert_allclose(measured(first.train_images), standard, atol=1e-6)
    digests.compare(name, constants.STATISTICS, _statistics.measured(first.train_images))
    assert capsys.readouterr().err == ""
    assert not [*tmp_path.iterdir()]


def test_digits_are_scikit_learns_every_fifth_of_a_class_held_out(tmp_path):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    split = datasets.load("digits", tmp_path)
    zeros = np.round(images[labels == 0] * 255 / 16).reshape(-1, 1, 8, 8)
    np.testing.assert_array_equal(split.test_images[split.test_labels == 0], zeros[4::5])
    kept = np.arange(len(zeros)) % 5 != 4
    np.testing.assert_array_equal(split.train_images[split.train_labels == 0], zeros[kept])
    assert split.train_images.max() == 255


def test_patches_are_the_photographs_tiles_every_fifth_held_out(tmp_path, monkeypatch):
    from skimage import data as pictures

    split, chelsea = datasets.load("photographs", tmp_path), pictures.chelsea()  # 300 x 451
    tiles = [
        chelsea[64 * row : 64 * row + 64, 64 * column : 64 * column + 64].transpose(2, 0, 1)
        for row in range(4)
        for column in range(7)
    ]
    cats = [part[labels == 1] for part, labels in (split[:2], split[2:4])]
    np.testing.assert_array_equal(cats[1], tiles[4::5])
    np.testing.assert_array_equal(cats[0], [t for i, t in enumerate(tiles) if i % 5 != 4])
    assert min(image.std() for image in np.concatenate([split[0], split[2]])) > 1  # none is flat
    monkeypatch.setattr(photographs, "PHOTOGRAPHS", ("astronaut", "nobody"))
    with pytest.raises(UsageError, match=r"nobody\.png cannot be read"):
        photographs.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s._replace(train_images=s.train_images[1:]), r"train images .*\(1442, 1, 8, 8"),
        (lambda s: s._replace(test_images=s.test_images / 255), "test images are float64"),
        (lambda s: s._replace(test_labels=s.test_labels[1:]), r"test labels .*\(355,\)"),
        (lambda s: s._replace(train_labels=s.train_labels + 1), "from 1 to 10"),
        (lambda s: s._replace(train_labels=s.train_labels.astype("i4")), "expected int64"),
    ],
)
def test_check_says_what_is_wrong(change, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        datasets.check("digits", change(datasets.load("digits", tmp_path)))


# --- real files ------------------------------------------------------------------------------


@pytest.fixture
def real() -> Path:
    if not all((REAL_DATA / of).is_dir() for of in ("cifar-10-batches-py", "MNIST/raw")):
        pytest.skip(f"no CIFAR-10 and MNIST in {REAL_DATA}; FEDGRID_DATA can name another folder")
    return REAL_DATA


@pytest.mark.slow
def test_real_cifar10_agrees_with_torchvision(real):
    from torchvision.datasets import CIFAR10

    split = datasets.load("cifar10", real)
    for part, theirs in (("train", CIFAR10(real)), ("test", CIFAR10(real, train=False))):
        images = np.moveaxis(theirs.data, 3, 1)
        np.testing.assert_array_equal(getattr(split, f"{part}_images"), images)
        np.testing.assert_array_equal(getattr(split, f"{part}_labels"), theirs.targets)


def test_real_mnist_has_its_class_counts(real, capsys):
    split = datasets.load("mnist", real)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(split.train_labels).tolist() == counts
    digests.compare("mnist", mnist.STATISTICS, _statistics.measured(split.train_images))
    assert capsys.readouterr().err == ""


# --- CIFAR -----------------------------------------------------------------------------------


class Cifar:
    """A small CIFAR whose archive lies in `root` and whose checksums torchvision 'knows'."""

    def __init__(self, name: str, root: Path, monkeypatch):
        from torchvision.datasets import CIFAR10, CIFAR100

        self.listing = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
        key = {"cifar10": b"labels", "cifar100": b"fine_labels"}[name]
        train, test = ([n for n, _ in part] for part in (CIFAR10.train_list, CIFAR10.test_list))
        if name == "cifar100":
            train, test = ["train"], ["test"]
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 256, (2 * len(train + test), 3, 32, 32), np.uint8)
        self.labels = np.arange(len(self.images)) % 10
        self.files = {
            batch: pickle.dumps(
                {
                    b"data": self.images[2 * i : 2 * i + 2].reshape(2, -1),
                    key: self.labels[2 * i : 2 * i + 2].tolist(),
                    b"coarse_labels": [9, 9],
                }
            )
            for i, batch in enumerate(train + test)
        }
        self.root, self.archive = root, root / self.listing.filename
        with tarfile.open(self.archive, "w:gz") as tar:
            for batch in reversed(self.files):  # the order inside must not matter
                add(tar, f"{self.listing.base_folder}/{batch}", self.files[batch])
            add(tar, f"{self.listing.base_folder}/batches.meta", b"not to be unpickled")
        known = monkeypatch.setattr
        known(self.listing, "train_list", [[n, md5(self.files[n])] for n in train])
        known(self.listing, "test_list", [[n, md5(self.files[n])] for n in test])
        known(self.listing, "tgz_md5", md5(self.archive.read_bytes()))
        known(f"fedgrid.datasets.{name}.TRAIN", 2 * len(train))
        known(f"fedgrid.datasets.{name}.TEST", 2)

    def extract(self) -> Path:
        folder = self.root / self.listing.base_folder
        folder.mkdir()
        for batch, content in self.files.items():
            (folder / batch).write_bytes(content)
        self.archive.unlink()
        return folder


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@pytest.fixture(params=["cifar10", "cifar100"])
def cifar(request, tmp_path, monkeypatch) -> tuple[str, Cifar]:
    return request.param, Cifar(request.param, tmp_path, monkeypatch)


@pytest.mark.parametrize("extracted", [False, True])
def test_cifar_comes_in_the_order_of_its_batches(cifar, extracted, tmp_path):
    name, fake = cifar
    folder = fake.extract() if extracted else None
    before = sorted(tmp_path.rglob("*"))
    split = datasets.load(name, tmp_path)
    np.testing.assert_array_equal(split.train_images, fake.images[:-2])
    np.testing.assert_array_equal(split.train_labels, fake.labels[:-2])
    np.testing.assert_array_equal(split.test_images, fake.images[-2:])
    np.testing.assert_array_equal(split.test_labels, fake.labels[-2:])
    assert sorted(tmp_path.rglob("*")) == before  # nothing was unpacked to disk
    if folder:
        (folder / list(fake.files)[-1]).unlink()
        with pytest.raises(UsageError, match=f"lacks {list(fake.files)[-1]}"):
            datasets.load(name, tmp_path)


# --- CINIC-10 and TinyImageNet ---------------------------------------------------------------


def encoded(colour: tuple[int, ...] | int, side: int, form: str) -> bytes:
    """An image of one colour; a number is a grey level, in an image of one channel."""
    mode = "L" if isinstance(colour, int) else "RGB"
    stream = io.BytesIO()
    Image.new(mode, (side, side), colour).save(stream, form, quality=95)
    return stream.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def cinic(tmp_path, monkeypatch) -> dict[str, bytes]:
    """Two training images, one test image and one validation image of each class."""
    monkeypatch.setattr(cinic10, "TRAIN", 20)
    monkeypatch.setattr(cinic10, "TEST", 10)
    kinds = {"train/{}/n2": 100, "train/{}/cifar10-train-1": 0, "test/{}/n3": 200, "valid/{}/n4": 9}
    return {
        f"{kind.format(name)}.png": encoded((label, red, 7), 32, "PNG")
        for kind, red in kinds.items()
        for label, name in reversed(list(enumerate(CINIC_CLASSES)))
    }


def write_cinic(form: str, root: Path, files: dict[str, bytes], monkeypatch) -> None:
    if form == "folder":
        return write(root / "CINIC-10", files)
    archive = root / "CINIC-10.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in files.items():
            add(tar, f"./{name}", content)
    monkeypatch.setattr(cinic10, "CHECKSUM", f"md5:{md5(archive.read_bytes())}")


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_cinic10_is_sorted_by_class_and_name(form, cinic, tmp_path, monkeypatch):
    write_cinic(form, tmp_path, cinic, monkeypatch)
    split = datasets.load("cinic10", tmp_path)
    assert split.train_labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert split.test_labels.tolist() == list(range(10))
    np.testing.assert_array_equal(split.train_images[:, 0, 3, 5], split.train_labels)
    assert split.train_images[:, 1, 0, 0].tolist() == [0, 100] * 10  # "cifar..." before "n..."
    assert set(split.test_images[:, 1].flat) == {200}
    assert set(split.test_images[:, 2].flat) == {7}


@pytest.mark.parametrize("form", ["folder", "archive"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train/cat/n2.png": None}, "holds 29 images of 10 classes, expected 30"),
        ({"train/cat/n9.png": encoded(3, 32, "PNG")}, "more than the 30 images"),
        ({"train/cat/n2.png": b"torn"}, "train/cat/n2.png is not a readable image"),
        ({"train/cat/n2.png": encoded(3, 31, "PNG")}, r"train/cat/n2.png has the shape \(3, 31"),
        ({"test/cat/n3.png": None, "test/cow/n3.png": encoded(3, 32, "PNG")}, "holds 29 images"),
        ({"train/cat/n2.png": None, "test/cat/n9.png": encoded(3, 32, "PNG")}, "holds 1 train im"),
    ],
)
def test_a_damaged_cinic10_is_refused(form, change, message, cinic, tmp_path, monkeypatch):
    files = {name: content for name, content in (cinic | change).items() if content is not None}
    write_cinic(form, tmp_path, files, monkeypatch)
    with pytest.raises(UsageError, match=message):
        datasets.load("cinic10", tmp_path)


@pytest.fixture
def tiny(monkeypatch) -> dict[str, bytes]:
    """The flat layout, as downloaded: classes n01, n02, n10, of which one image is grey."""
    for name, value in {"TRAIN": 6, "TEST": 3, "CLASSES": 3}.items():
        monkeypatch.setattr(tinyimagenet, name, value)
    files = {
        f"train/{label}/images/{label}_{i}.JPEG": encoded((80 * rank, 128, 40 * i), 64, "JPEG")
        for rank, label in enumerate(["n01", "n02", "n10"])
        for i in range(2)
    }
    files["train/n02/images/n02_1.JPEG"] = encoded(77, 64, "JPEG")
    files["train/n02/n02_boxes.txt"] = files["words.txt"] = b"n02\tnot an image"
    for i, label in enumerate(["n10", "n01", "n02"]):
        files[f"val/images/val_{i}.JPEG"] = encoded((0, 0, 100 * i), 64, "JPEG")
        annotation = f"val_{i}.JPEG\t{label}\t0\t32\t44\t62\n".encode()
        files["val/val_annotations.txt"] = files.get("val/val_annotations.txt", b"") + annotation
    files["test/images/test_0.JPEG"] = encoded((1, 2, 3), 64, "JPEG")
    return files


def sorted_layout(files: dict[str, bytes], below: str) -> dict[str, bytes]:
    """Validation images moved to their classes' folders, as a common script does."""
    moved = {f"val/images/val_{i}.JPEG": c for i, c in enumerate(["n10", "n01", "n02"])}
    return {
        f"val/{moved[name]}/{below}{name.split('/')[-1]}" if name in moved else name: content
        for name, content in files.items()
        if name != "val/val_annotations.txt"
    }


def write_tiny(form: str, root: Path, files: dict[str, bytes], monkeypatch) -> None:
    if form != "zip":
        shapes = {"flat": files, "sorted": sorted_layout(files, "")}
        shapes["sorted/images"] = sorted_layout(files, "images/")
        return write(root / "tiny-imagenet-200", shapes[form])
    archive = root / "tiny-imagenet-200.zip"
    with ZipFile(archive, "w") as target:
        for name, content in reversed(files.items()):
            target.writestr(f"tiny-imagenet-200/{name}", content)
    monkeypatch.setattr(tinyimagenet, "CHECKSUM", f"md5:{md5(archive.read_bytes())}")


@pytest.mark.parametrize("form", ["zip", "flat", "sorted", "sorted/images"])
def test_tinyimagenet_is_the_same_in_every_layout(form, tiny, tmp_path, monkeypatch):
    write_tiny(form, tmp_path, tiny, monkeypatch)
    split = datasets.load("tinyimagenet", tmp_path)
    assert split.train_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert split.test_labels.tolist() == [0, 1, 2]
    red, blue = split.train_images[:, 0, 9, 9].astype(int), split.test_images[:, 2, 9, 9]
    np.testing.assert_allclose(red, [0, 0, 80, 77, 160, 160], atol=3)  # JPEG is lossy
    np.testing.assert_allclose(blue.astype(int), [100, 200, 0], atol=3)
    grey = split.train_images[3]
    assert (grey == grey[0]).all()


def test_a_validation_image_without_annotation_is_named(tiny, tmp_path, monkeypatch):
    tiny["val/val_annotations.txt"] = b""
    write_tiny("flat", tmp_path, tiny, monkeypatch)
    with pytest.raises(UsageError, match=r"val/images/val_0.JPEG has no label"):
        datasets.load("tinyimagenet", tmp_path)


def staged(name: str, root: Path) -> dict[str, str]:
    """The hashes of the arrays that the data stage makes of a root."""
    data.main([name, "--root", str(root), "--out", str(root / "out")])
    return json.loads((root / "out/meta.json").read_text())["sha256"]


@pytest.fixture
def unpacked(tiny, tmp_path, monkeypatch) -> tuple[dict[str, bytes], Path]:
    """The files of an unpacked TinyImageNet whose hashes are known, and a root to write them to."""
    write_tiny("flat", tmp_path / "first", tiny, monkeypatch)
    monkeypatch.setattr(tinyimagenet, "HASHES", ())
    found = staged("tinyimagenet", tmp_path / "first")
    known = tuple(found[f"{array}.npy"][:8] for array in ARRAYS)
    monkeypatch.setattr(tinyimagenet, "HASHES", known)
    return tiny, tmp_path / "second"


def test_shuffled_validation_labels_are_refused(unpacked, monkeypatch):
    files, root = unpacked
    swapped = {b"val_0.": b"val_1.", b"val_1.": b"val_0.", b"val_2.": b"val_2."}
    lines = files["val/val_annotations.txt"].splitlines(keepends=True)
    files["val/val_annotations.txt"] = b"".join(swapped[one[:6]] + one[6:] for one in lines)
    write_tiny("flat", root, files, monkeypatch)
    with pytest.raises(UsageError, match=r"test_images under .* differ from the published"):
        staged("tinyimagenet", root)
    assert not (root / "out").exists()


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ({"n01/images/n01_1": "n02/images/n01_1"}, "n01_1.JPEG is in the folder of another class"),
        ({"n01/images/n01_1": "n01/images/n01_0"}, "holds 8 images"),
        (
            {"n01/images/n01_1": "n02/images/n02_1", "n02/images/n02_1": "n01/images/n01_1"},
            "train_images under .* differ from the published",
        ),
    ],
)
def test_a_moved_training_image_is_refused(moves, message, unpacked, monkeypatch):
    files, root = unpacked
    places = {f"train/{old}.JPEG": f"train/{new}.JPEG" for old, new in moves.items()}
    write_tiny("flat", root, {places.get(n, n): c for n, c in files.items()}, monkeypatch)
    with pytest.raises(UsageError, match=message):
        staged("tinyimagenet", root)


def test_another_jpeg_decoder_is_told_and_cannot_hide_another_label(unpacked, monkeypatch, capsys):
    files, root = unpacked
    monkeypatch.setattr(digests, "decodes_alike", lambda: False)
    changed = files | {"train/n01/images/n01_1.JPEG": encoded((1, 2, 3), 64, "JPEG")}
    write_tiny("flat", root, files, monkeypatch)
    staged("tinyimagenet", root)
    assert "JPEG" not in capsys.readouterr().err
    write_tiny("flat", root, changed, monkeypatch)
    staged("tinyimagenet", root)
    assert "JPEG decoder gives other pixels" in capsys.readouterr().err
    monkeypatch.setattr(tinyimagenet, "HASHES", ("0" * 8, "1" * 8, "2" * 8, "3" * 8))
    with pytest.raises(UsageError, match="train_images and train_labels and test_images"):
        staged("tinyimagenet", root)


def test_the_decoder_here_is_that_of_the_hashes():
    version = features.version_feature("libjpeg_turbo")
    if not (version or "").startswith("3."):
        pytest.skip(f"the JPEG decoder is not libjpeg-turbo 3 but {version}")
    assert digests.decodes_alike()


def test_the_first_reading_of_cinic10_holds_for_later_ones(cinic, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(digests, "NEAR", 1)
    write_cinic("folder", tmp_path, cinic, monkeypatch)
    found = staged("cinic10", tmp_path)
    noted = (tmp_path / "cinic10.sha256").read_text().split()
    assert noted[1::2] == [*ARRAYS]
    assert noted[0] == found["train_images.npy"][:8]
    assert staged("cinic10", tmp_path) == found
    write(tmp_path / "CINIC-10", {"test/cat/n3.png": encoded((3, 200, 8), 32, "PNG")})
    with pytest.raises(UsageError, match=r"test_images under .*cinic10.sha256, written by the f"):
        staged("cinic10", tmp_path)


def test_an_array_that_is_new_to_a_dataset_is_added_to_the_first_hashes(tmp_path):
    """As writers of test images are to FEMNIST; the others are compared as before."""
    note, old = tmp_path / "cinic10.sha256", dict.fromkeys(ARRAYS, "1234" * 16)
    digests.verify(cinic10, "cinic10", tmp_path, old)
    first, more = note.read_text(), old | {"test_writers": "5" * 64}
    digests.verify(cinic10, "cinic10", tmp_path, more)
    assert note.read_text() == f"{first}55555555 test_writers\n"
    for wrong in ("test_images", "test_writers"):
        with pytest.raises(UsageError, match=f"cinic10: {wrong} under"):
            digests.verify(cinic10, "cinic10", tmp_path, more | {wrong: "6" * 64})


def test_a_root_that_cannot_be_written_stops_nothing(cinic, tmp_path, monkeypatch, capsys):
    def refuse(*arguments, **keywords):
        raise PermissionError(errno.EACCES, "Permission denied")

    write_cinic("folder", tmp_path, cinic, monkeypatch)
    monkeypatch.setattr(digests.files, "replacing", refuse)
    digests.verify(cinic10, "cinic10", tmp_path, {f"{a}.npy": "0" * 64 for a in ARRAYS})
    assert "cannot be written (Permission denied)" in capsys.readouterr().err


# --- statistics ------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2**23])
def test_mean_and_deviation_written_out(at_once, monkeypatch):
    monkeypatch.setattr(_stream, "AT_ONCE", at_once)
    images = np.array([[[[0, 255]], [[51, 51]]], [[[255, 0]], [[51, 51]]]], np.uint8)
    assert _statistics.measured(images) == (pytest.approx([0.5, 0.2]), pytest.approx([0.5, 0.0]))


def test_the_mean_and_deviation_of_floats_do_not_depend_on_parts(monkeypatch):
    images = np.random.default_rng(0).normal(3, 2, (500, 3, 4, 4)).astype(np.float32)
    once = _statistics.measured(images)
    monkeypatch.setattr(_stream, "AT_ONCE", 1000)
    assert _statistics.measured(images) == once
    wanted = images.mean((0, 2, 3), np.float64), images.std((0, 2, 3), np.float64)
    for found, right in zip(once, wanted, strict=True):
        np.testing.assert_allclose(np.array(found) * 255, right, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_real_data_have_their_hashes_and_statistics(name, real, tmp_path, capsys):
    data.main([name, "--root", str(real), "--out", str(tmp_path / "out")])
    assert "warning" not in capsys.readouterr().err


def test_a_standard_that_is_far_from_the_images_is_told_with_what_is_right(capsys):
    images = datasets.load("digits", Path("data")).train_images
    digests.compare("digits", {"standard": ((0.5,), (0.25,))}, _statistics.measured(images))
    said = capsys.readouterr().err
    assert "`standard` in STATISTICS is ((0.5,), (0.25,))" in said
    assert "have the mean (0.30518,) and the deviation (0.37599,)" in said


def test_a_mean_that_no_images_have_is_refused(monkeypatch):
    literal, wrong = source.literal, {"standard": ((72.9,), (90.0,))}
    monkeypatch.setattr(
        source, "literal", lambda *of: wrong if of[1] == "STATISTICS" else literal(*of)
    )
    with pytest.raises(UsageError, match=r"scaled to \[0, 1\]: divide by 255"):
        datasets.load("digits", Path("data"))


# --- downloads -------------------------------------------------------------------------------

CONTENT = np.random.default_rng(0).bytes(1_000_003)
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; honours Range if the server does; cuts as often as `server.cuts` says."""

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        if start >= len(CONTENT):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        stop = start + self.server.cuts.pop(0) if self.server.cuts else None
        self.wfile.write(CONTENT[start:stop])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "WAIT", 0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.cuts, server.ranges = [], [], True
        server.url = f"http://127.0.0.1:{server.server_port}/file.bin"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "new" / "file.bin"


@pytest.mark.parametrize("checksum", [CHECKSUM, CHECKSUM[:15], f"md5:{md5(CONTENT)}"])
def test_a_file_is_downloaded_once(server, path, checksum):
    for _ in range(2):
        assert download.fetch(server.url, path, checksum) == path
        assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert not path.with_name("file.bin.part").exists()


@pytest.mark.parametrize("ranges", [True, False])
def test_cut_connections_are_resumed(ranges, server, path):
    """Or the download begins again, if the server cannot resume it."""
    server.cuts, server.ranges = [400_000, 1, 0, 0, 300_000] if ranges else [400_000], ranges
    download.fetch(server.url, path, CHECKSUM)
    assert path.read_bytes() == CONTENT
    starts = [400_000, 400_001, 400_001, 400_001, 700_001]
    if ranges:
        assert server.asked == [None] + [f"bytes={start}-" for start in starts]


def test_the_name_appears_only_when_complete(server, path):
    server.cuts = [400_000] + [0] * download.ATTEMPTS
    with pytest.raises(UsageError, match="cut at 400000 of 1000003 bytes"):
        download.fetch(server.url, path, CHECKSUM)
    assert not path.exists()
    assert path.with_name("file.bin.part").read_bytes() == CONTENT[:400_000]
    server.cuts, server.asked = [], []
    download.fetch(server.url, path, CHECKSUM)  # a later process goes on from there
    assert server.asked == ["bytes=400000-"]
    assert path.read_bytes() == CONTENT


def test_a_download_with_a_wrong_checksum_is_discarded(server, path):
    with pytest.raises(UsageError, match=r"sha256:\w+ but sha256:12345678 is expected") as caught:
        download.fetch(server.url, path, "sha256:12345678")
    assert server.url in str(caught.value)
    assert [p.name for p in path.parent.iterdir()] == []


def test_a_corrupt_file_is_left_as_it_is(server, path):
    path.parent.mkdir()
    path.write_bytes(b"somebody's work")
    with pytest.raises(UsageError, match="delete or replace it") as caught:
        download.fetch(server.url, path, CHECKSUM)
    found = hashlib.sha256(b"somebody's work").hexdigest()
    assert all(part in str(caught.value) for part in (str(path), CHECKSUM, found))
    assert path.read_bytes() == b"somebody's work"
    assert server.asked == []


def test_without_a_network_the_message_says_what_to_do(server, path):
    with socket.socket() as taken:  # nobody listens at its address
        taken.bind(("127.0.0.1", 0))
        dead_url = f"http://127.0.0.1:{taken.getsockname()[1]}/file.bin"
    with pytest.raises(UsageError) as caught:
        download.fetch(dead_url, path, CHECKSUM)
    for part in ("file.bin could not be downloaded", dead_url, CHECKSUM, f"at {path}"):
        assert part in str(caught.value)
    assert not path.exists()
    download.fetch(dead_url, path, CHECKSUM, [server.url])  # a mirror helps
    assert path.read_bytes() == CONTENT


def test_a_missing_page_is_not_asked_for_again(server, path, monkeypatch):
    monkeypatch.setattr(
        Handler, "do_GET", lambda self: (self.server.asked.append(1), self.send_error(404))
    )
    with pytest.raises(UsageError, match="404"):
        download.fetch(server.url, path, CHECKSUM)
    assert len(server.asked) == 1


def test_processes_that_want_the_same_file_wait_for_each_other(server, path):
    code = f"""
from pathlib import Path
from fedgrid.runtime.download import fetch
fetch({server.url!r}, Path({str(path)!r}), {CHECKSUM!r})
"""
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, env=environment()) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert path.read_bytes() == CONTENT
    assert len(server.asked) == 1


# --- the data stage --------------------------------------------------------------------------


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow")}


def test_the_stage_writes_the_same_bytes_twice(tmp_path):
    command = [sys.executable, "-m", "fedgrid", "data", "digits"]  # into results/data/digits
    first = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True)
    assert first.returncode == 0, first.stderr
    data.main(["digits", "--root", "data", "--out", str(tmp_path / "other")])
    written = sorted((tmp_path / "results/data/digits").glob("[!.]*"))
    names = "meta.json test_images.npy test_labels.npy train_images.npy train_labels.npy"
    assert [path.name for path in written] == names.split()
    for path in written:
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("other")] == ["other"]


@pytest.fixture
def decoded(tmp_path) -> Path:
    data.main(["digits", "--root", str(tmp_path), "--out", str(tmp_path / "digits")])
    return tmp_path / "digits"


def test_what_was_written_is_read(decoded, tmp_path):
    opened, split = open_data(decoded), datasets.load("digits", tmp_path)
    for name, array in split._asdict().items():
        np.testing.assert_array_equal(getattr(opened, name), array)
    assert isinstance(opened.train_images, np.memmap)
    assert not opened.train_images.flags.writeable
    assert (opened.classes, opened.shape) == (10, (1, 8, 8))
    for name, digest in opened.meta["sha256"].items():
        assert hashlib.sha256((decoded / name).read_bytes()).hexdigest() == digest
    assert opened.meta["statistics"]["standard"] == [[0.30518309], [0.37599409]]


def test_an_interrupted_move_leaves_no_dataset(decoded, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.main(["digits", "--root", str(tmp_path), "--out", str(decoded)])
    with pytest.raises(UsageError, match=r"meta.json is missing"):
        open_data(decoded)
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]  # no temporary folder
