"""What FedNTD's and FedLMD's code draws: `fedgrid.partitions._fedntd`, bit for bit."""

from functools import cache
from hashlib import sha256
from itertools import groupby

import numpy as np
import pytest

from fedgrid.federation import schedule
from fedgrid.partitions import _fedntd
from fedgrid.runtime.names import UsageError

MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
SIZES = {"mnist": MNIST, "cifar10": [5000] * 10, "cifar100": [500] * 100, "cinic10": [9000] * 10}


def labels(dataset: str) -> np.ndarray:
    """Of so many images; where they are does not matter to who has how many."""
    rng = np.random.default_rng(0)
    return rng.permutation(np.repeat(np.arange(len(SIZES[dataset])), SIZES[dataset]))


def counts(members: list[np.ndarray], of: np.ndarray) -> np.ndarray:
    """(N, K) after a check that every sample has exactly one client."""
    assert np.array_equal(np.sort(np.concatenate(members)), np.arange(len(of)))
    return np.stack([np.bincount(of[ids], minlength=of.max() + 1) for ids in members])


@cache
def drawn(dataset: str, alpha: float) -> np.ndarray:
    """The counts of a balanced draw for a hundred clients; the most skewed takes half a minute."""
    of = labels(dataset)
    return counts(_fedntd.dirichlet(of, len(SIZES[dataset]), 100, alpha), of)


@pytest.mark.parametrize(
    ("dataset", "alpha", "first", "digest"),
    [
        pytest.param(  # 19,126 restarts
            *("cifar10", 0.05, [420, 411, 463, 561, 63], "b80c01f21be9"), marks=pytest.mark.slow
        ),
        ("cifar10", 0.1, [281, 1062, 716, 410, 675], "9251414b2dcb"),
        ("cifar10", 0.3, [606, 595, 70, 261, 750], "56a4ef6b6fa5"),
        ("cifar10", 0.5, [639, 554, 278, 505, 506], "0e2675c7fd5f"),
        ("cifar100", 0.1, [508, 377, 503, 349, 532], "f34f04f25df4"),
        ("cinic10", 0.1, [305, 105, 758, 541, 494], "e1954b3c798a"),
        ("mnist", 0.1, [1455, 27, 134, 259, 248], "8c1a378b5228"),
    ],
)
def test_the_published_partitions_are_drawn(dataset, alpha, first, digest):
    made = drawn(dataset, alpha)
    assert made.sum(1)[:5].tolist() == first
    assert sha256(made.astype(np.int64).tobytes()).hexdigest()[:12] == digest


@pytest.mark.parametrize(
    ("dataset", "each", "mean", "first"),
    [
        ("cifar10", 2, 1.94, [1, 4]),
        ("cifar10", 3, 2.74, [4, 8, 4]),
        ("cifar10", 5, 4.17, [8, 2, 7, 4, 7]),
        ("cifar10", 10, 6.37, None),
        ("cifar100", 10, 9.49, None),
        ("mnist", 2, 1.94, [1, 4]),
    ],
)
def test_the_published_shards_are_dealt(dataset, each, mean, first):
    of = labels(dataset)
    members = _fedntd.shards(of, len(SIZES[dataset]), 100, each)
    made = counts(members, of)
    classes = (made > 0).sum(1)
    assert classes.mean() == pytest.approx(mean)
    assert classes.max() <= each
    if first:
        assert [label for label, _ in groupby(of[members[0]])] == first
    if dataset == "cifar10":
        assert set(made.sum(1)) <= ({498, 499, 500, 501} if each == 3 else {500})  # 166 or 167


def test_a_shard_is_a_run_of_its_class_and_left_over_samples_are_the_last():
    assert [piece.tolist() for piece in _fedntd.cut(np.arange(10, 21), 3)] == [
        [10, 11, 12, 19],
        [13, 14, 15, 20],
        [16, 17, 18],
    ]


@pytest.mark.slow
def test_the_clients_of_round_nine_hold_most_samples_of_class_seven():
    made = drawn("cifar10", 0.05)[schedule.cohort_by_round(100, 10, 9)]
    assert made.sum(0).argmax() == 7
    assert (made.sum(0)[7], made.sum()) == (2728, 6552)


@pytest.mark.parametrize(("clients", "each"), [(7, 2), (1000, 20)])
def test_shards_that_do_not_come_out_even_are_refused(clients, each):
    with pytest.raises(UsageError, match="shards of one class"):
        _fedntd.shards(np.arange(1442) % 10, 10, clients, each)
