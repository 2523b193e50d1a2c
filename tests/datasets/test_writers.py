"""Writers of images: a dataset that has them, its files, and clients that are whole writers.

And clients that test on the test images of their writers.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgrid import datasets
from fedgrid.commands import data, partition
from fedgrid.datasets import penmanship
from fedgrid.federation.federation import load_federation
from fedgrid.federation.holdout import give_tests
from fedgrid.federation.members import read_partition, write_partition
from fedgrid.federation.protocols import has_client_test
from fedgrid.federation.stored import open_data
from fedgrid.partitions import (
    EACH_WRITER,
    count_clients,
    writers,
)
from fedgrid.runtime.names import UsageError
from fedgrid.study.grid import Grid
from fedgrid.study.paths import held_fields, partition_names
from fedgrid.study.protocol import HELD, PROTOCOL, SHARED

WRITERS = np.random.default_rng(0).permutation(np.repeat([3, 5, 8, 9, 20], [1, 2, 3, 4, 5]))
LABELS = np.arange(len(WRITERS)) % 3


# --- penmanship ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split() -> datasets.Split:
    return datasets.load("penmanship", None)


def test_writers_are_visibly_different(split):
    """The ink of their mean images: how much, and where its centre of gravity shifts by row."""
    assert np.bincount(split.train_writers).tolist() == [36] * 40
    own = np.stack([np.bincount(split.train_labels[split.train_writers == w]) for w in range(40)])
    assert set(own.flat) == {3, 4}  # of each class
    assert np.bincount(split.test_labels).min() >= 32
    means = [split.train_images[split.train_writers == w].mean((0, 1)) for w in range(40)]
    ink = np.array([mean.mean() for mean in means])
    assert ink.max() > 2 * ink.min()
    columns = np.arange(28)
    upper, lower = (
        np.array([np.average(columns, weights=mean[rows].sum(0)) for mean in means])
        for rows in (slice(6, 12), slice(16, 22))
    )
    assert np.ptp(upper - lower) > 4  # pixels


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


@pytest.mark.parametrize(("part", "count"), [("train", 1440), ("test", 357)])
def test_writers_that_are_gone_or_too_few_are_told(part, count, decoded):
    np.save(decoded / f"{part}_writers.npy", np.arange(5))
    says = rf"{part} writers are int64 \(5,\), expected int64 \({count},"
    with pytest.raises(UsageError, match=says):
        open_data(decoded)
    (decoded / f"{part}_writers.npy").unlink()
    with pytest.raises(UsageError, match=rf"{part}_writers\.npy is missing"):
        open_data(decoded)


def test_no_writers_are_left_of_an_earlier_dataset(decoded, tmp_path, split):
    opened = open_data(decoded)
    np.testing.assert_array_equal(opened.train_writers, split.train_writers)
    np.testing.assert_array_equal(opened.test_writers, split.test_writers)
    assert [*opened.meta["sha256"]][-2:] == ["train_writers.npy", "test_writers.npy"]
    data.main(["digits", "--root", str(tmp_path), "--out", str(decoded)])
    assert not (decoded / "train_writers.npy").exists()
    assert open_data(decoded).train_writers is None


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("name", ["digits", "penmanship"])
def test_writers_and_the_constant_go_together(name, part, split, tmp_path):
    wrong = datasets.load(name, tmp_path)
    labels = getattr(wrong, f"{part}_labels")
    wrong = wrong._replace(**{f"{part}_writers": None if name == "penmanship" else labels})
    with pytest.raises(UsageError, match=rf"datasets/{name}\.py: `load` must give `{part}_write"):
        datasets.check(name, wrong)
    short = split._replace(**{f"{part}_writers": getattr(split, f"{part}_writers")[1:]})
    with pytest.raises(UsageError, match=rf"penmanship: {part} writers are int64 \(\d+,\)"):
        datasets.check("penmanship", short)


def test_a_writers_test_images_are_of_the_writer(split):
    """Penmanship deals out digits in turn: those of a writer are every fortieth of all."""
    assert np.unique(split.test_writers).tolist() == [*range(40)]
    together = np.bincount(split.train_writers) + np.bincount(split.test_writers)
    assert set(together.tolist()) == {44, 45}
    ink = [
        np.array([images[of == w].mean() for w in range(40)])
        for images, of in (
            (split.train_images, split.train_writers),
            (split.test_images, split.test_writers),
        )
    ]
    assert np.corrcoef(*ink)[0, 1] > 0.9


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
    assert sorted(min(one) for one in dealt(5, "x", 0)) == [3, 5, 8, 9, 20]
    assert dealt(1, "x", 0) == [{3, 5, 8, 9, 20}]
    assert len({str(dealt(5, "x", seed)) for seed in range(5)}) > 2


def test_the_number_of_writers_in_a_datasets_file_is_right(split, tmp_path):
    made = {"penmanship": split, "dialects": datasets.load("dialects", tmp_path)}
    for name, whole in made.items():
        assert count_clients(EACH_WRITER, name) == len(np.unique(whole.train_writers))
    assert count_clients(7, "penmanship") == 7
    assert count_clients("writers", "shakespeare") == 1129
    assert count_clients("writers", "digits") is None


def test_with_clients_writers_each_writer_is_a_client(decoded, tmp_path):
    found = stage(decoded, tmp_path / "made.npz", clients="writers", merge=False)
    same = stage(decoded, tmp_path / "same.npz", clients=40, merge=False)
    for own, other in zip(found.members, same.members, strict=True):
        np.testing.assert_array_equal(own, other)
    for clients, says in ((39, "has 40 writers, and 39 clients would share"), (41, "more than")):
        with pytest.raises(UsageError, match=says):
            stage(decoded, tmp_path / "made.npz", clients=clients, merge=False)


def stage(decoded, out, partition_name: str = "writers", **fields):
    """The partition that the stage writes for twenty clients."""
    protocol = {field: PROTOCOL[field] for field in SHARED} | {"clients": 20, "merge": True}
    protocol |= fields
    spec = {
        "name": dict.fromkeys(("protocol", "dataset", "partition", "method", "seed"), "any"),
        "protocol": protocol,
        **{"dataset": "penmanship", "partition": partition_name, "method": {}, "seed": 0},
    }
    partition.main([json.dumps(spec), "--inputs", f"data={decoded}", "--out", str(out)])
    return read_partition(out)


def test_the_stage_deals_out_writers(decoded, tmp_path):
    found = stage(decoded, tmp_path / "made.npz")
    assert [len(ids) for ids in found.members] == [72] * 20
    assert np.load(tmp_path / "made.npz").files == ["indices", "offsets", "counts"]
    data.main(["digits", "--root", str(tmp_path), "--out", str(decoded)])
    with pytest.raises(UsageError, match="partition writers needs the writer of each sample"):
        stage(decoded, tmp_path / "made.npz")


# --- tests of writers ------------------------------------------------------------------------


def federation(decoded, made, **fields):
    """What a run gets of a partition's file."""
    protocol = PROTOCOL | {"clients": 20} | fields
    run = {"protocol": protocol, "dataset": "penmanship", "partition": "writers", "seed": 0}
    return load_federation(run, {"data": decoded, "partition": made}, torch.device("cpu"))


def test_clients_test_on_the_test_images_of_their_writers(decoded, tmp_path, split):
    found = stage(decoded, made := tmp_path / "made.npz", client_test_from="writers")
    assert [len(ids) for ids in found.members] == [72] * 20  # no training image is taken
    for members, tests in zip(found.members, found.tests, strict=True):
        own = np.unique(split.train_writers[members])
        np.testing.assert_array_equal(tests, np.flatnonzero(np.isin(split.test_writers, own)))
    pool = federation(decoded, made).client_tests
    np.testing.assert_array_equal(pool.of_client(7), found.tests[7])
    np.testing.assert_array_equal(pool.images, split.test_images)
    np.testing.assert_array_equal(pool.labels, split.test_labels)
    assert sorted(pool.ids.tolist()) == [*range(357)]


def test_validation_of_clients_is_beside_tests_of_writers(decoded, tmp_path):
    asked = {"client_test_from": "writers", "validation": 0.25, "validation_from": "clients"}
    found = stage(decoded, made := tmp_path / "made.npz", **asked)
    assert [len(ids) for ids in found.members] == [54] * 20
    assert sorted(np.concatenate(found.tests)) == [*range(357)]
    loaded = federation(decoded, made)
    assert loaded.validation.sizes == [18] * 20
    np.testing.assert_array_equal(loaded.validation.images, loaded.images)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {"tests": [p.tests[0][1:], *p.tests[1:]]},
        lambda p: {"tests": [np.append(p.tests[0], p.tests[1][0]), *p.tests[1:]]},
        lambda p: {"tests": [np.append(p.tests[0], 357), *p.tests[1:]]},
        lambda p: {"central": np.array([3])},
        lambda p: {"tests_from_test_set": False},
    ],
)
def test_a_partition_with_other_tests_is_refused(change, decoded, tmp_path):
    found = stage(decoded, made := tmp_path / "made.npz", client_test_from="writers")
    write_partition(replace(found, **change(found)), made)
    with pytest.raises(UsageError, match=r"made\.npz is not a partition of"):
        federation(decoded, made)


def test_clients_that_share_a_writer_cannot_have_the_writers_tests(decoded, tmp_path):
    for name in ("shards2", "dir0.5"):
        with pytest.raises(UsageError, match=r"several clients have samples of the writer \d+: ch"):
            stage(decoded, tmp_path / "made.npz", name, client_test_from="writers")
    one = stage(decoded, tmp_path / "made.npz", "dir0.5", client_test_from="writers", clients=1)
    assert len(one.tests[0]) == 357


def test_a_writer_without_a_client_and_writers_that_are_not_known_are_refused():
    made = writers.draw(LABELS, 3, 5, "classwise", "", writers=WRITERS)
    found = give_tests(made, WRITERS, np.array([20, 3, 20]))
    assert sorted(map(list, found.tests)) == [[], [], [], [0, 2], [1]]
    for absent in (4, 99, -1):
        with pytest.raises(UsageError, match=f"the writer {absent} of a test sample has no train"):
            give_tests(made, WRITERS, np.array([20, absent]))
    for known in ((None, None), (WRITERS, None)):
        with pytest.raises(UsageError, match="needs the writers of training and of test samples"):
            give_tests(made, *known)


def test_the_path_of_a_partition_says_whose_tests_it_has():
    fields = {"recipe": "classwise", "clients": 20}
    for own, held in (
        ({}, ""),
        ({"client_test": 0.2}, "-test0.2"),
        ({"client_test_from": "writers"}, "-testwriters"),
        (
            {"client_test_from": "writers", "validation": 0.1, "validation_from": "clients"},
            "-testwriters-validation0.1-clients",
        ),
        ({"merge": True}, "-merged"),
        ({"client_test": 0.2, "server_data": 0.1, "merge": True}, "-test0.2-server0.1-merged"),
    ):
        assert partition_names(fields | own)["held"] == held
        assert held_fields(held) == {field: PROTOCOL[field] for field in HELD} | own


def test_a_client_has_tests_by_either_field():
    assert has_client_test(PROTOCOL | {"client_test": 0.2})
    assert has_client_test({"client_test_from": "writers"})
    assert not has_client_test(PROTOCOL)


@pytest.mark.parametrize(
    ("fields", "names", "says"),
    [
        ({"client_test": 0.2}, {}, "client_test 0.2 takes training samples: set `client_test: 0`"),
        ({"validation": 0.5}, {}, "so that none is left for `validation_from: test`: set"),
        ({}, {"dataset": "digits", "partition": "dir0.1"}, "the dataset digits has none: add"),
        ({}, {"partition": "dir0.1"}, "the partition dir0.1 deals out single samples: choose the"),
    ],
)
def test_a_study_with_tests_of_writers_that_cannot_be_is_refused(fields, names, says):
    with pytest.raises(UsageError, match=says):
        Grid(study(names, client_test_from="writers", **fields))


def test_a_study_may_have_tests_of_writers_and_needs_some_for_models_of_ones_own():
    more = {"validation": 0.5, "validation_from": "clients"}
    Grid(study({}, client_test_from="writers", **more))
    Grid(study({"method": "fedper"}, client_test_from="writers"))
    Grid(study({"partition": "dir0.1"}, client_test_from="writers", clients=1, participation=1.0))
    own = {"method": "fedper"}
    with pytest.raises(UsageError, match=r"client's own .* or `client_test_from: writers`"):
        Grid(study(own))
    Grid(study(own, client_test=0.2))
    with pytest.raises(UsageError, match="set `validation_from: clients`"):
        Grid(study(own, client_test=0.2, validation=0.1))


def study(names: dict, **fields) -> dict:
    """A study of one run of penmanship by its writers, with other names and fields."""
    given = {"protocol": "p", "partition": "writers", "method": "fedavg", "seed": 0}
    given |= {"dataset": "penmanship"} | names
    scales = {"quick": {"grids": {"main": [given]}}}
    protocols = {"p": {"clients": 10, "merge": True, "participation": 0.2} | fields}
    return {"mine": {"protocols": protocols, "scales": scales, "products": {}}}


def test_a_study_that_merges_writers_must_say_so():
    Grid(study({}))
    with pytest.raises(UsageError, match="needs the writer of each sample, and the dataset digits"):
        Grid(study({"dataset": "digits"}))
    Grid(study({}, clients="writers", merge=False))
    Grid(study({}, clients=40, merge=False))
    with pytest.raises(UsageError, match="40 writers, and 10 clients would share them"):
        Grid(study({}, merge=False))
    with pytest.raises(UsageError, match="40 clients samples no client"):
        Grid(study({}, clients="writers", participation=0.01))
    with pytest.raises(UsageError, match=r"the partition dir0\.1 deals out single samples"):
        Grid(study({"partition": "dir0.1"}, clients="writers"))
