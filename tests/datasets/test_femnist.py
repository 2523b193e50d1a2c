"""FEMNIST's two layouts, on small fakes of them: `fedgrid.datasets.femnist`."""

import io
from importlib.util import find_spec
from pathlib import Path

import leaf
import numpy as np
import pandas as pd
import pytest
from leaf import of_first
from PIL import Image

from fedgrid import datasets
from fedgrid.commands import data
from fedgrid.datasets import femnist
from fedgrid.federation.stored import open_data
from fedgrid.runtime.names import UsageError

COUNTS = {"f0001_41": 11, "f0000_14": 5, "f0002_09": 1}  # not in the order of their names
TOTAL = (sum(COUNTS.values()), len(COUNTS))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(femnist, "TOTALS", {"json": ((9, 9), TOTAL), "parquet": (TOTAL,)})


@pytest.fixture
def table() -> pd.DataFrame:
    """White paper with a dark line; the first pixel of the n-th image is n."""
    writers = np.repeat([*COUNTS], [*COUNTS.values()])
    images = np.full((len(writers), 28, 28), 255, np.uint8)
    images[:, 5:8], images[:, 0, 0] = 3, np.arange(len(writers))
    return pd.DataFrame(
        {
            "image": [*images],
            "writer_id": writers,
            "hsf_id": 0,
            "character": np.arange(len(writers)) * 3,
        }
    )


def of_writers(table: pd.DataFrame) -> dict:
    """The content of a file of LEAF's."""
    own = table.groupby("writer_id", sort=False)
    return leaf.content({name: ([*map(pixels, of["image"])], of["character"]) for name, of in own})


def pixels(image: np.ndarray) -> list[float]:
    return (image / 255).ravel().round(6).tolist()


def png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def write_parquet(root: Path, tables: list[pd.DataFrame], write=pd.DataFrame.to_pickle) -> None:
    folder = root / "femnist/data"
    folder.mkdir(parents=True)
    for number, table in enumerate(tables):
        wrapped = [{"bytes": png(image), "path": None} for image in table["image"]]
        path = folder / f"train-{number:05}-of-{len(tables):05}.parquet"
        write(table.assign(image=wrapped), path)


@pytest.fixture
def pickled(monkeypatch):
    """Parquet's reader is another one here, because pyarrow need not be installed."""
    monkeypatch.setattr(pd, "read_parquet", lambda path, engine, columns: pd.read_pickle(path))


def same(one: datasets.Split, other: datasets.Split) -> bool:
    return all(map(np.array_equal, one, other))


def test_writers_are_in_order_and_a_fifth_of_each_is_the_test_set(table, tmp_path):
    leaf.write(tmp_path / "femnist/all_data", of_writers(table[:11]), of_writers(table[11:]))
    split = datasets.load("femnist", tmp_path)
    train, test = split.train_images[:, 0, 0, 0], split.test_images[:, 0, 0, 0]
    assert sorted([*train, *test]) == [*range(17)]
    np.testing.assert_array_equal(split.train_labels, 3 * train.astype(int))
    np.testing.assert_array_equal(split.test_labels, 3 * test.astype(int))
    owner = np.array([0] * 4 + [1] * 9 + [2])
    np.testing.assert_array_equal(split.train_writers, owner)
    first, second, third = (train[owner == k].tolist() for k in range(3))
    assert first == sorted({11, 12, 13, 14, 15} & {*train})
    assert second == sorted({*range(11)} & {*train})
    assert third == [16]
    assert [one < 11 for one in test] == [False, True, True]
    assert sorted(test[1:]) not in ([0, 1], [9, 10])  # but drawn at random
    assert split.test_writers.tolist() == [0, 1, 1]
    assert split.train_images[0, 0, 6, 1] == 3  # ink is dark
    assert (split.train_images.dtype, split.train_images.shape[1:]) == (np.uint8, (1, 28, 28))


@pytest.mark.parametrize("folder", ["femnist/all_data", "femnist"])
def test_both_layouts_give_the_same(folder, table, tmp_path, pickled, monkeypatch):
    leaf.write(tmp_path / "leaf" / folder, of_writers(table))
    write_parquet(tmp_path / "parquet", [table[:4], table[4:]])  # a writer is in two files
    one, other = (datasets.load("femnist", tmp_path / layout) for layout in ("leaf", "parquet"))
    assert same(one, other)
    plain = table.assign(image=[*map(png, table["image"])])  # a picture may be plain bytes
    monkeypatch.setattr(pd, "read_parquet", lambda path, engine, columns: plain)
    (tmp_path / "parquet/femnist/data/train-00001-of-00002.parquet").unlink()
    assert same(one, datasets.load("femnist", tmp_path / "parquet"))


def test_real_parquet_files_are_read(table, tmp_path):
    pytest.importorskip("pyarrow")
    leaf.write(tmp_path / "femnist", of_writers(table))
    write_parquet(tmp_path / "parquet", [table], pd.DataFrame.to_parquet)
    assert same(*(datasets.load("femnist", root) for root in (tmp_path, tmp_path / "parquet")))


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_without_pyarrow_the_error_says_what_to_do(table, tmp_path):
    with pytest.raises(UsageError, match=rf"not in {tmp_path}/femnist: put there the folder data"):
        datasets.load("femnist", tmp_path)
    write_parquet(tmp_path, [table])
    with pytest.raises(UsageError, match="install pyarrow, or put LEAF's") as found:
        datasets.load("femnist", tmp_path)
    assert "damaged" not in str(found.value)


# -- bad files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: [c[k].pop() for k in ("users", "num_samples")], "hold 16 images by 2 writers, "),
        (of_first(lambda own: own["x"].pop()), "writer f0001_41 has 10 images and 11 labels, expe"),
        (of_first(lambda own: own.update(x=[], y=[])), "f0001_41 has 0 images and 0 labels, expec"),
        (of_first(lambda own: own["x"][3].pop()), "f0001_41 has an image of 783 pixels, expected"),
        (of_first(lambda own: own["x"][3].__setitem__(0, 1.5)), "f0001_41 has pixels outside 0 t"),
        (of_first(lambda own: own["x"][3].__setitem__(0, float("nan"))), "has pixels outside 0 t"),
        (of_first(lambda own: own["y"].__setitem__(2, 62)), "f0001_41 has the label 62, expected"),
        (of_first(lambda own: own["y"].__setitem__(2, -1)), "f0001_41 has the label -1, expected"),
        (of_first(lambda own: own["y"].__setitem__(2, "a")), "has the label '.*', expected a who"),
        (lambda c: c.pop("num_samples"), r"all_data_0.json is damaged \(KeyError"),
        (lambda c: c["num_samples"].__setitem__(0, 0), "11 labels, expected some of both: repla"),
    ],
)
def test_bad_json_is_named(change, message, table, tmp_path):
    change(content := of_writers(table))
    leaf.write(tmp_path / "femnist", content)
    with pytest.raises(UsageError, match=message):
        datasets.load("femnist", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[:-1], "parquet files of .* hold 16 images by 2 writers, expected 17 by 3: "),
        (
            lambda t: t.assign(writer_id=t["writer_id"].str.replace("f0002_09", "f0001_41")),
            "hold 17 images by 2 writers, expected 17 by 3",
        ),
        (lambda t: t.assign(character=62), "00001.parquet has the label 62, expected a whole num"),
        (lambda t: t.assign(character=0.5), "00001.parquet has the label 0.5, expected a whole "),
        (lambda t: t.assign(image=[i[1:] for i in t["image"]]), r"row 0 has the shape \(3, 27, 28"),
        (lambda t: t.assign(image=[np.dstack([i, i, 255 - i]) for i in t["image"]]), "in colour"),
        (lambda t: t.assign(image=[255 - i for i in t["image"]]), "have white ink on black paper"),
    ],
)
def test_bad_parquet_is_named(change, message, table, tmp_path, pickled):
    write_parquet(tmp_path, [change(table)])
    with pytest.raises(UsageError, match=message):
        datasets.load("femnist", tmp_path)


# -- the data stage -------------------------------------------------------------------------------


def test_sizes_and_statistics_are_measured_and_writers_are_kept(table, tmp_path, capsys):
    leaf.write(tmp_path / "femnist", of_writers(table))
    data.main(["femnist", "--root", str(tmp_path), "--out", str(tmp_path / "out")])
    split, opened = datasets.load("femnist", tmp_path), open_data(tmp_path / "out")
    assert opened.meta["sizes"] == {"train": 14, "test": 3}
    scaled = split.train_images / 255
    found = opened.meta["statistics"]["standard"]
    np.testing.assert_allclose(found, [[scaled.mean()], [scaled.std()]], atol=1e-8)
    np.testing.assert_array_equal(opened.train_writers, split.train_writers)
    np.testing.assert_array_equal(opened.test_writers, split.test_writers)
    assert "test_writers" in (tmp_path / "femnist.sha256").read_text()
    told = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert [line for line in told if "the test set has no sample of 14 classes" not in line] == []
