"""Writers of images: a dataset that has them, its files, and clients that are whole writers."""

import json

import numpy as np
import pytest

from fedgrid import data, datasets, partition
from fedgrid.datasets import penmanship
from fedgrid.federation.members import read_partition
from fedgrid.federation.stored import open_data
from fedgrid.partitions import parse_name, write_label, writers
from fedgrid.runtime import source
from fedgrid.runtime.names import UsageError
from fedgrid.study.checks import check_partition
from fedgrid.study.grid import Grid

WRITERS = np.random.default_rng(0).permutation(np.repeat([3, 5, 8, 9, 20], [1, 2, 3, 4, 5]))
LABELS = np.arange(len(WRITERS)) % 3


# --- penmanship ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split() -> datasets.Split:
    return datasets.load("penmanship", None)


def test_every_writer_has_as_many_images_and_all_classes(split):
    assert np.bincount(split.train_writers).tolist() == [36] * 40
    own = np.stack([np.bincount(split.train_labels[split.train_writers == w]) for w in range(40)])
    assert set(own.flat) == {3, 4}
    assert np.bincount(split.test_labels).min() >= 32


def test_writers_are_visibly_different(split):
    """The ink of their mean images: how much, and where its centre of gravity shifts by row."""
    means = [split.train_images[split.train_writers == w].mean((0, 1)) for w in range(40)]
    ink = np.array([mean.mean() for mean in means])
    assert ink.max() > 2 * ink.min()
    columns = np.arange(28)
    upper, lower = (
        np.array([np.average(columns, weights=mean[rows].sum(0)) for mean in means])
        for rows in (slice(6, 12), slice(16, 22))
    )
    assert np.ptp(upper - lower) > 4  # pixels


def test_ink_is_bright_and_digits_are_in_the_middle(split):
    mean = split.train_images.mean((0, 1))
    assert mean[[0, -1]].max() < 32 < 96 < mean[10:18, 10:18].mean()
    assert (split.train_images.max((1, 2, 3)) > 200).all()


def test_no_arithmetic_is_rounded():
    """Six bits of each coordinate, cubed twice, and two halves: with 38 bits all is exact."""
    from sklearn.datasets import load_digits

    originals, hands = load_digits().images, penmanship._hands()
    for original, hand in zip(originals, hands, strict=False):
        scaled = penmanship._enlarged(original, *hand[:3]) * 2**38
        np.testing.assert_array_equal(scaled, np.round(scaled))


# --- files -----------------------------------------------------------------------------------


@pytest.fixture
def decoded(tmp_path):
    data.main(["penmanship", "--root", str(tmp_path), "--out", str(tmp_path / "data/penmanship")])
    return tmp_path / "data/penmanship"


def test_writers_are_written_hashed_and_read(decoded, split):
    opened = open_data(decoded)
    np.testing.assert_array_equal(opened.train_writers, split.train_writers)
    assert [*opened.meta["sha256"]][-1] == "train_writers.npy"


def test_writers_that_are_gone_or_too_few_are_told(decoded):
    np.save(decoded / "train_writers.npy", np.arange(5))
    with pytest.raises(UsageError, match=r"train writers are int64 \(5,\), expected int64 \(1440,"):
        open_data(decoded)
    (decoded / "train_writers.npy").unlink()
    with pytest.raises(UsageError, match=r"train_writers\.npy is missing"):
        open_data(decoded)


def test_no_writers_are_left_of_an_earlier_dataset(decoded, tmp_path):
    data.main(["digits", "--root", str(tmp_path), "--out", str(decoded)])
    assert not (decoded / "train_writers.npy").exists()
    assert open_data(decoded).train_writers is None


@pytest.mark.parametrize("name", ["digits", "penmanship"])
def test_writers_and_the_constant_go_together(name, split, tmp_path):
    wrong = datasets.load(name, tmp_path)
    wrong = wrong._replace(train_writers=None if name == "penmanship" else wrong.train_labels)
    with pytest.raises(UsageError, match=rf"datasets/{name}\.py: `load` must give `train_writers`"):
        datasets.check(name, wrong)
    short = split._replace(train_writers=split.train_writers[1:])
    with pytest.raises(UsageError, match=r"penmanship: train writers are int64 \(1439,\)"):
        datasets.check("penmanship", short)


# --- the partition ---------------------------------------------------------------------------


def dealt(clients: int, *names) -> list[set[int]]:
    """The writers of each client, after a check that clients have all samples of their writers."""
    found = writers.draw(LABELS, 3, clients, "classwise", "", *names, writers=WRITERS)
    own = [set(WRITERS[ids]) for ids in found.members]
    for ids, one, counts in zip(found.members, own, found.counts, strict=True):
        np.testing.assert_array_equal(ids, np.flatnonzero(np.isin(WRITERS, [*one])))
        assert np.bincount(LABELS[ids], minlength=3).tolist() == counts.tolist()
    return own


def test_clients_have_whole_writers_in_nearly_equal_numbers():
    own = dealt(2, "x", 0)
    assert sorted(map(len, own)) == [2, 3]
    assert own[0] | own[1] == {3, 5, 8, 9, 20}
    assert not own[0] & own[1]


def test_with_as_many_clients_as_writers_each_is_one_writer():
    assert sorted(min(one) for one in dealt(5, "x", 0)) == [3, 5, 8, 9, 20]
    assert dealt(1, "x", 0) == [{3, 5, 8, 9, 20}]


def test_writers_are_dealt_out_at_random_by_the_names():
    assert dealt(5, "x", 0) == dealt(5, "x", 0)
    assert len({str(dealt(5, "x", seed)) for seed in range(5)}) > 2


def test_more_clients_than_writers_are_refused():
    with pytest.raises(UsageError, match="6 clients are more than the 5 writers of the training"):
        dealt(6)


def test_the_stage_deals_out_writers(decoded, tmp_path, split):
    spec = {
        "name": dict.fromkeys(("protocol", "dataset", "partition", "method", "seed"), "any"),
        "protocol": {"recipe": "classwise", "clients": 20, "client_test": 0.0}
        | {"validation": 0.0, "validation_from": "test"},
        **{"dataset": "penmanship", "partition": "writers", "method": {}, "seed": 0},
    }
    out, inputs = tmp_path / "made.npz", ["--inputs", f"data={decoded}"]
    partition.main([json.dumps(spec), *inputs, "--out", str(out)])
    assert [len(ids) for ids in read_partition(out).members] == [72] * 20
    data.main(["digits", "--root", str(tmp_path), "--out", str(decoded)])
    with pytest.raises(UsageError, match="partition writers needs the writer of each image"):
        partition.main([json.dumps(spec), *inputs, "--out", str(out)])


def test_a_study_with_writers_of_a_dataset_that_has_none_is_refused():
    names = {"protocol": "p", "partition": "writers", "method": "fedavg", "seed": 0}

    def study(dataset: str) -> dict:
        scales = {"quick": {"grids": {"main": [names | {"dataset": dataset}]}}}
        return {"mine": {"protocols": {"p": {"clients": 10}}, "scales": scales, "products": {}}}

    Grid(study("penmanship"))
    with pytest.raises(UsageError, match="needs the writer of each image, and the dataset digits"):
        Grid(study("digits"))


def test_the_names_of_the_new_partitions():
    assert parse_name("writers") == ("writers", "")
    assert parse_name("odd2") == ("odd", "2")
    assert (write_label("writers"), write_label("odd2")) == ("writers", "2 odd classes")
    check_partition("odd2", "digits")
    assert source.literal("datasets.penmanship", "WRITERS")
