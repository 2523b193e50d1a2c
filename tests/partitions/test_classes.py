"""Clients with a few whole classes each: the partitions classes5, classes20 and so on."""

import numpy as np
import pytest

from fedgrid import datasets
from fedgrid.federation.members import Partition, fits
from fedgrid.partitions import classes
from fedgrid.runtime.names import UsageError

CIFAR10 = np.random.default_rng(0).permutation(np.arange(50_000) % 10)
CIFAR100 = np.random.default_rng(0).permutation(np.arange(50_000) % 100)


def made(labels, clients: int, number: str, *names) -> Partition:
    """A partition, after a check that every sample has one client and the counts are right."""
    there = int(labels.max()) + 1
    found = classes.draw(labels, there, clients, "classwise", number, *(names or ("x", 0)))
    assert fits(found, labels, there)
    return found


@pytest.mark.parametrize(
    ("labels", "number", "of_each", "holders"),
    [(CIFAR10, "5", 100, 50), (CIFAR100, "20", 25, 20), (CIFAR10, "10", 50, 100)],
)
def test_every_client_has_equal_parts_of_as_many_classes(labels, number, of_each, holders):
    counts = made(labels, 100, number).counts
    assert (counts.sum(1) == 500).all()
    assert ((counts > 0).sum(1) == int(number)).all()
    assert ((counts > 0).sum(0) == holders).all()
    assert set(counts.flat) <= {0, of_each}


def test_uneven_classes_are_cut_as_equally_as_can_be(tmp_path):
    labels = datasets.load("digits", tmp_path).train_labels
    counts = made(labels, 20, "5").counts
    assert ((counts > 0).sum(1) == 5).all()
    assert ((counts > 0).sum(0) == 10).all()
    for c, total in enumerate(np.bincount(labels)):
        parts = counts[counts[:, c] > 0, c]
        assert set(parts.tolist()) <= {total // 10, total // 10 + 1}


@pytest.mark.parametrize(("clients", "number"), [(7, "3"), (10, "3"), (4, "7"), (9, "9"), (2, "5")])
def test_classes_of_a_client_differ_where_their_number_does_not_divide_that_of_all(clients, number):
    for seed in range(20):
        held = made(CIFAR10, clients, number, "x", seed).counts > 0
        assert (held.sum(1) == int(number)).all()
        least, more = divmod(clients * int(number), 10)
        assert sorted(held.sum(0).tolist()) == [least] * (10 - more) + [least + 1] * more


def test_samples_of_a_class_are_dealt_out_at_random():
    found = made(np.arange(2000) % 10, 20, "5")
    for ids in found.members:
        of_class = ids[ids % 10 == ids[0] % 10]
        assert np.ptp(of_class) > 1000  # of 2,000: twenty samples in a row span 200


@pytest.mark.parametrize(
    ("labels", "clients", "number", "says"),
    [
        (CIFAR10, 100, "11", "classes11 over 100 clients and 10 classes is no partition: a client"),
        (CIFAR10, 3, "3", "classes3 over 3 clients and 10 classes is no partition: a client needs"),
        (np.arange(99) % 10, 20, "5", "classes5 gives class 9 to 10 clients, and it has 9 samples"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(labels, clients, number, says):
    with pytest.raises(UsageError, match=says):
        classes.draw(labels, 10, clients, "classwise", number, "x", 0)


def held_by_joining(number: int, clients: int, each: int, rng) -> np.ndarray:
    """The classes of each client, with all orders joined again for each new order."""
    entries = np.empty(0, np.int64)
    while len(entries) < clients * each:
        order = rng.permutation(number)
        has = np.isin(order, entries[len(entries) - len(entries) % each :])
        entries = np.concatenate([entries, order[~has], order[has]])
    return entries[: clients * each].reshape(clients, each)


@pytest.mark.parametrize(("number", "each"), [(10, 5), (10, 3), (7, 7), (5, 4), (3, 1)])
def test_classes_are_held_as_by_joining_all_orders(number, each):
    for clients in (1, 2, 9, 50):
        one, other = (np.random.default_rng(clients) for _ in range(2))
        expected = held_by_joining(number, clients, each, one)
        found = classes.hold_classes(number, clients, each, other)
        np.testing.assert_array_equal(found, expected)
        assert one.random() == other.random()
