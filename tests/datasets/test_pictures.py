"""What a picture file has that its pixels do not show: transparency, 16 bits, frames; equal images.

Pillow reads colours of 16 bits as 8 bits without a word, so some files are made byte by byte here.
"""

import io
import re
import struct
import zlib
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from test_own_data import known_as, npz, pictures

import fedgrid
from fedgrid import datasets
from fedgrid.commands import data
from fedgrid.datasets import _archives, _oddities, _pictures
from fedgrid.federation.stored import open_data, read_statistics
from fedgrid.runtime.names import UsageError

pytestmark = pytest.mark.usefixtures("elsewhere")
SIZE = (4, 4)


def saved(image: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


# -- transparency ---------------------------------------------------------------------------------


def seen_through(mode: str) -> Image.Image:
    """Black ink in the first column of a picture whose other pixels are transparent black."""
    alpha = np.zeros(SIZE, np.uint8)
    alpha[:, 0] = 255
    image = Image.new("RGBA", SIZE)
    image.putalpha(Image.fromarray(alpha))
    if mode != "P":
        return image.convert(mode)
    paletted = Image.fromarray((alpha == 0).astype(np.uint8), "P")
    paletted.putpalette([0, 0, 0, 0, 0, 0])
    paletted.info["transparency"] = 1
    return paletted


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("mode", "kind"),
    [*product(("RGBA", "LA", "P"), ["PNG"]), ("P", "GIF"), *product(["RGBA"], ("WEBP", "TIFF"))],
)
def test_transparent_pixels_are_white(mode, kind, channels):
    options = {"lossless": True} if kind == "WEBP" else {}
    options |= {"transparency": 1} if mode == "P" else {}
    found = _pictures.read(saved(seen_through(mode), kind, **options), channels, SIZE)
    assert found.pixels.shape == (channels, *SIZE)
    assert (found.pixels[:, :, 0] == 0).all()
    assert (found.pixels[:, :, 1:] == 255).all()
    assert found.transparent
    named = Image.new("RGB", SIZE, (9, 9, 9))  # a colour may be named transparent
    content = saved(named, "PNG", transparency=(9, 9, 9))
    assert (_pictures.read(content, channels, SIZE).pixels == 255).all()
    pixels = _archives.decode("n.png", saved(seen_through("RGBA"), "PNG"), (3, *SIZE))
    assert (pixels[:, :, 1:] == 255).all()


def test_a_picture_without_transparent_pixels_keeps_its_own():
    random = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8)
    opaque = Image.fromarray(random).convert("RGBA")
    for channels, mode in ((3, "RGB"), (1, "L")):
        found = _pictures.read(saved(opaque, "PNG"), channels, SIZE)
        plain = np.asarray(Image.fromarray(random).convert(mode)).reshape(*SIZE, channels)
        np.testing.assert_array_equal(np.moveaxis(found.pixels, 0, 2), plain)
        assert not found.transparent


def test_transparent_drawings_stay_different_and_are_told(capsys):
    """Drawings in black ink on transparent ground had been black squares."""
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        Path("drawings", name).mkdir(parents=True)
        for i in range(10):
            image = Image.new("RGBA", (8, 8))
            image.putalpha(Image.fromarray(random.integers(0, 2, (8, 8), np.uint8) * 255))
            image.save(f"drawings/{name}/{i}.png")
    made = decoded("drawings", size=8)
    assert len(np.unique(np.concatenate([made.train_images, made.test_images]), axis=0)) == 20
    told = capsys.readouterr().err
    assert "images have transparent pixels, and are read as on white paper: 16, such as" in told
    assert "copies" not in told


# -- 16 bits --------------------------------------------------------------------------------------


def png(colour: int, depth: int = 16) -> bytes:
    """A PNG of 4 x 4 pixels; its colour type has 1, 3, 2 or 4 channels."""
    rows = (b"\0" + bytes({0: 1, 2: 3, 4: 2, 6: 4}[colour] * 4 * depth // 8)) * 4
    parts = {b"IHDR": struct.pack(">IIBBBBB", 4, 4, depth, colour, 0, 0, 0)}
    parts |= {b"IDAT": zlib.compress(rows), b"IEND": b""}
    chunks = (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def tiff(bits: int) -> bytes:
    """A TIFF of 4 x 4 pixels of three channels, without compression."""
    of_three, pixels = 8 + 2 + 12 * 9 + 4, bytes(4 * 4 * 3 * bits // 8)
    tags = [(256, 1, 4), (257, 1, 4), (258, 3, of_three), (259, 1, 1), (262, 1, 2)]
    tags += [(273, 1, of_three + 6), (277, 1, 3), (278, 1, 4), (279, 1, len(pixels))]
    entries = b"".join(struct.pack("<HHII", tag, 3, count, value) for tag, count, value in tags)
    return (
        b"II*\0" + struct.pack("<IH", 8, 9) + entries + struct.pack("<I3H", 0, *[bits] * 3) + pixels
    )


def changed(content: bytes, mark: bytes, place: int, value: int) -> bytes:
    """The file with another byte at a place after a mark."""
    at = content.index(mark) + place
    return content[:at] + bytes([value]) + content[at + 1 :]


def rgb() -> Image.Image:
    return Image.new("RGB", (16, 16), "red")


DEEP = {
    "grey PNG": lambda: png(0),
    "colour PNG": lambda: png(2),
    "grey PNG with transparency": lambda: png(4),
    "colour PNG with transparency": lambda: png(6),
    "TIFF": lambda: tiff(16),
    "PPM": lambda: b"P6 # a comment\n4 4\n65535\n" + bytes(4 * 4 * 3 * 2),
    "PPM as text": lambda: b"P3\n4 4\n1023\n" + b"1 " * 48,
    "PGM": lambda: b"P5\n4 4\n1023\n" + bytes(4 * 4 * 2),
    "JPEG 2000": lambda: changed(saved(rgb(), "JPEG2000"), b"\xff\x4f\xff\x51", 42, 15),
    "SGI": lambda: changed(saved(rgb(), "SGI"), b"\x01\xda", 3, 2),
}


@pytest.mark.parametrize("name", DEEP)
def test_more_than_8_bits_are_found_in_the_file_and_refused(name):
    content = DEEP[name]()
    with pytest.raises(ValueError, match="its pixels have more than 8 bits"):
        _pictures.read(content, 3, SIZE)
    pictures("photos", classes=["a", "b"])
    Path("photos/a/deep").write_bytes(content)
    with pytest.raises(UsageError, match=r"photos/a/deep cannot be read .*more than 8 bits"):
        decoded("photos")
    with pytest.raises(UsageError, match="more than 8 bits"):
        _archives.decode("deep", content, (3, *Image.open(io.BytesIO(content)).size))


def test_high_bit_depth_of_avif_is_found():
    """Pillow writes none, and opens no file that is changed here."""
    image, content = SimpleNamespace(format="AVIF"), saved(rgb(), "AVIF")
    assert _pictures.count_bits(image, content) == 8
    assert _pictures.count_bits(image, changed(content, b"av1C", 6, 0x4C)) > 8


MODES = ("1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
WRITTEN = {
    **{"PNG": MODES[:6], "TIFF": MODES, "PPM": ("1", "L", "RGB"), "SGI": ("L", "RGB", "RGBA")},
    **{"JPEG": ("1", "L", "RGB", "CMYK", "YCbCr"), "JPEG2000": ("L", "LA", "RGB", "RGBA")},
    **{"AVIF": ("L", "RGB", "RGBA"), "BMP": ("1", "L", "P", "RGB"), "GIF": MODES[:6]},
    **{"WEBP": ("L", "P", "RGB", "RGBA"), "TGA": ("1", "L", "P", "LA", "RGB", "RGBA")},
}


@pytest.mark.parametrize(("kind", "mode"), [(k, mode) for k, of in WRITTEN.items() for mode in of])
def test_8_bits_are_read_in_every_format(kind, mode):
    image = Image.new("L", (16, 16), 255).convert("RGB").convert(mode)
    found = _pictures.read(saved(image, kind), 3, SIZE)
    assert found.pixels.min() > 250  # white is white in every mode
    assert (found.transparent, found.frames) == (False, False)


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_several_frames_the_first_is_read_and_it_is_told(kind, capsys):
    pictures("photos", size=(16, 16))
    first, other = Image.new("RGB", (16, 16), "white"), Image.new("RGB", (16, 16), "black")
    moving = saved(first, kind, save_all=True, append_images=[other, first])
    assert _pictures.read(moving, 3, SIZE).pixels.min() > 250
    for i in range(5):
        Path(f"photos/ö/{i}.{kind.lower()}").write_bytes(moving)
    decoded("photos")
    assert "images have several frames or pages, and only the first is" in capsys.readouterr().err
    camera = saved(rgb(), "MPO", save_all=True, append_images=[rgb()])  # with a preview
    assert not _pictures.read(camera, 3, SIZE).frames


# -- EXIF data that cannot be read ----------------------------------------------------------------


def with_exif(*entries: bytes, start: int = 8) -> bytes:
    """A JPEG file of 6 by 4 pixels, whose EXIF data have these entries."""
    count = len(entries).to_bytes(2, "little")
    exif = b"Exif\0\0II*\0" + start.to_bytes(4, "little") + count + b"".join(entries) + b"\0" * 4
    return saved(Image.new("RGB", (6, 4), "red"), "JPEG", exif=exif)


def entry(tag: int, kind: int, count: int, value: bytes) -> bytes:
    return b"".join(n.to_bytes(s, "little") for n, s in ((tag, 2), (kind, 2), (count, 4))) + value


TURNED = entry(0x0112, 3, 1, b"\6\0\0\0")
DAMAGED = {
    "cut": with_exif(TURNED)[:30] + with_exif(TURNED)[38:],
    "a wrong type": with_exif(entry(0x0112, 2, 4, b"abc\0")),
    "an offset after the end": with_exif(TURNED, start=99_999),
    "no orientation": with_exif(entry(0x0112, 3, 1, b"\x63\0\0\0")),
    "another entry of a wrong type": with_exif(TURNED, entry(0x010F, 5, 1, b"\xff\xff\0\0")),
    "bytes for a number": with_exif(TURNED, entry(0x8769, 2, 4, b"abc\0")),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_picture_with_damaged_exif_is_read_or_named(what, capsys, recwarn):
    pictures("photos", count=9)
    Path("photos/ö/odd.jpg").write_bytes(DAMAGED[what])
    said = ""
    try:
        decoded("photos")
    except UsageError as problem:
        said = str(problem)
    assert not said or "photos/ö/odd.jpg cannot be read as an image" in said
    assert not [one for one in recwarn if "EXIF" in str(one.message)]  # names no file


def test_a_decoder_that_fails_in_any_way_names_the_file(monkeypatch, capsys):
    pictures("photos", count=9)

    def fail(*_):
        raise struct.error("required argument is not an integer")

    monkeypatch.setattr(_pictures.ImageOps, "exif_transpose", fail)
    decoded("photos", size=7)
    assert "cannot be read, and are not turned: 14, such as photos/" in capsys.readouterr().err
    monkeypatch.setattr(_pictures.ImageOps, "fit", fail)
    with pytest.raises(UsageError, match=r"photos/.*png cannot be read as an image \(error: requ"):
        decoded("photos", size=8)


# -- equal images, constant channels --------------------------------------------------------------


def decoded(name: str, **entry):
    known_as(**{name: {"folder": name} | entry})
    data.main([name, "--out", f"out-{name}"])
    return open_data(Path(f"out-{name}"))


def told_of(capsys, x_train, x_test, **arrays) -> str:
    npz(x_train=x_train, x_test=x_test, **arrays)
    known_as(mine={"npz": "my.npz"})
    data.main(["mine", "--out", "mine"])
    return capsys.readouterr().err


RANDOM = np.random.default_rng(0).integers(0, 256, (18, 3, 5, 5), np.uint8)


def test_many_equal_samples_are_told(capsys):
    assert told_of(capsys, RANDOM[:12], RANDOM[12:]) == ""
    equal = np.repeat(RANDOM[:2], [7, 5], axis=0)
    told = told_of(capsys, equal, RANDOM[12:])
    assert "mine: 10 of the 18 samples (56 %) are exact copies of others: check" in told
    vectors = np.random.default_rng(0).normal(size=(18, 9))
    vectors[:, :7] = 2.5
    told = told_of(capsys, vectors[:12], vectors[12:])
    said = "of the 9 channels of the training samples, 7 never change (0, 1, 2, 3, 4 and others"
    assert said in told


@pytest.mark.parametrize("value", [7, 255])
def test_a_constant_channel_trains_and_is_told(value, capsys):
    constant = RANDOM.copy()
    constant[:, 1] = value
    told = told_of(capsys, constant[:12], constant[12:])
    assert "of the 3 channels of the training samples, 1 never change (1, counted from 0)" in told
    mean, std = read_statistics(open_data(Path("mine")), "standard", Path())
    assert mean[1] == pytest.approx(value / 255, abs=1e-8)
    assert std[1] == 1
    assert 0 < std[0] < 1
    some = {"rounds": 2, "clients": 2, "participation": 1.0, "batch": 4, "evaluate_every": 1}
    made = fedgrid.run(dataset="npz:my.npz", partition="iid", model="mlp", **some)
    assert np.isfinite(made.metrics["loss"]).all()


def split_of(dtype) -> datasets.Split:
    """Samples of three classes with a shape of their own each, as images or as vectors."""
    random = np.random.default_rng(0)
    labels = np.arange(300) % 3
    shape = (3, 12, 12) if dtype == np.uint8 else (20, 1, 1)
    x = random.normal(0, 1, (300, *shape)) + random.normal(0, 1.5, (3, *shape))[labels]
    x = np.clip(128 + 15 * x, 0, 255).astype(np.uint8) if dtype == np.uint8 else x.astype(dtype)
    return datasets.Split(x[:200], labels[:200], x[200:], labels[200:])


def oddities(split: datasets.Split, capsys) -> str:
    _oddities.warn("mine", split, tokens=False)
    return capsys.readouterr().err


CHANGES = {
    "a fifth": lambda x: x / 5,
    "shifted": lambda x: x + 3 * x.std(),
    "inverted": lambda x: 255 - x if x.dtype == np.uint8 else -x,
    "larger": lambda x: 5 * x,
}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("change", CHANGES)
def test_test_samples_on_another_scale_are_told(change, dtype, capsys):
    made = split_of(dtype)
    assert oddities(made, capsys) == ""
    other = np.clip(
        CHANGES[change](made.test_images), *((0, 255) if dtype == np.uint8 else (-99, 99))
    )
    told = oddities(made._replace(test_images=other.astype(dtype)), capsys)
    assert re.search("look inverted|on another scale", told)


def test_one_number_of_vectors_in_another_unit_is_told(capsys):
    made = split_of(np.float32)
    made.test_images[:, 7] *= 1000
    assert "1 of 20 channels (7, counted" in oddities(made, capsys)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_test_set_of_few_samples_or_other_shares_of_classes_is_on_the_same_scale(dtype, capsys):
    made = split_of(dtype)
    for labels in ([0, 1, 2], [1], [0, 2]):
        those = np.isin(made.test_labels, labels)
        for part in (made.test_images[those], made.test_images[those][:8]):
            few = made._replace(test_images=part, test_labels=made.test_labels[those][: len(part)])
            assert not re.search("scale|inverted", oddities(few, capsys))


@pytest.mark.parametrize("untrained", [[0], [2], [1, 2], [0, 1, 2]])
def test_classes_that_are_not_trained_do_not_count_in_a_comparison_of_scales(untrained, capsys):
    made = split_of(np.float32)
    trained = ~np.isin(made.train_labels, untrained)
    if not trained.any():
        made = made._replace(test_labels=made.test_labels + 3)
        trained[:] = True
    few = made._replace(
        train_images=made.train_images[trained], train_labels=made.train_labels[trained]
    )
    assert not re.search("scale|inverted", oddities(few, capsys))


@pytest.mark.parametrize(("leaked", "is_told"), [(0, False), (1, True), (40, True)])
def test_test_samples_that_are_trained_on_are_told(leaked, is_told, capsys):
    made = split_of(np.float32)
    made.test_images[:leaked] = made.train_images[::2][:leaked]
    made.test_labels[:leaked] = made.train_labels[::2][:leaked]
    told = oddities(made, capsys)
    assert (f"{leaked} of the 100 test samples ({leaked} %) are training" in told) == is_told
    assert "another label" not in told


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("train", "train", "2 training samples and 0 test"),
        ("test", "test", "0 training samples and 2 test"),
        ("train", "test", "1 training samples and 1 test"),
    ],
)
def test_equal_samples_with_different_labels_are_told(first, second, said, capsys):
    made = split_of(np.uint8)
    getattr(made, f"{second}_images")[2] = getattr(made, f"{first}_images")[0]
    told = oddities(made, capsys)
    assert "2 of the 300 samples (0.67 %) are equal to samples with another label" in told
    assert said in told


def test_what_lies_beside_the_classes_or_the_parts_is_told(capsys):
    for part in ("train", "test"):
        pictures(f"photos/{part}")
    Path("photos/train/README.txt").write_text("no picture")
    decoded("photos")
    assert not re.search("beside train|in no folder", capsys.readouterr().err)
    pictures("photos/val")
    pictures("photos/more")
    Image.new("RGB", (4, 4)).save("photos/train/loose.JPG", "JPEG")
    decoded("photos")
    told = capsys.readouterr().err
    assert "beside train and test there is more in photos, which is left out, as 1 others" in told
    assert "are in no folder of a class, and are left out: 1, such as photos/train/loo" in told


def test_a_class_that_is_not_tested_is_told(capsys):
    told = told_of(capsys, RANDOM[:12], RANDOM[12:], y_test=np.array([0, 2] * 3))
    assert "the test set has no sample of 1 classes (1, counted from 0)" in told
    named = {"y_train": np.array([-1, 5, 7] * 4), "y_test": np.array([5, 7] * 3)}
    told = told_of(capsys, RANDOM[:12], RANDOM[12:], **named)
    assert "the test set has no sample of 1 classes (-1)" in told


@pytest.mark.parametrize("name", ["digits", "penmanship", "dialects", "photographs", "synthetic"])
def test_no_dataset_of_fedgrid_is_odd(name, capsys):
    split = datasets.load(name, Path())
    _oddities.warn(name, split, tokens=hasattr(datasets.module(name), "TOKENS"))
    assert capsys.readouterr().err == ""
