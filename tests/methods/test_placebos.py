"""Placebos of weights and of masked classes, and weights by a power of the samples."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_distillation import LOCAL, SERVER, expected, students, t, teachers

from conftest import make_step, methods
from fedgrid.engine.state import effective
from fedgrid.method import Cohort
from fedgrid.methods import _held_classes, _random_classes, fedlmd_random, fedntd_random

SIZES = [1, 2, 4, 9]


def cohort(sizes=SIZES, noise: int = 0, classes: int = 4) -> Cohort:
    """A round of clients with so many samples, all of the first class."""
    counts = torch.zeros(len(sizes), classes, dtype=torch.long)
    counts[:, 0] = torch.tensor(sizes)
    given = {"sizes": t([float(n) for n in sizes]), "counts": counts, "noise": noise}
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | given)


# -- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exponent", "parts"),
    [(0, [1, 1, 1, 1]), (0.5, [1, math.sqrt(2), 2, 3]), (1, SIZES), (2, [1, 4, 16, 81])],
)
def test_powers_of_the_samples(exponent, parts):
    found = methods("power", exponent=exponent).weigh(cohort())
    torch.testing.assert_close(found, t(parts) / sum(parts))


def test_a_client_without_samples_has_no_weight_and_large_ones_do_not_overflow():
    torch.testing.assert_close(methods("power", exponent=0.0).weigh(cohort([0, 3])), t([0, 1]))
    found = methods("power", exponent=200.0).weigh(cohort([10**6, 10]))
    torch.testing.assert_close(found, t([1, 0]))


def test_swapped_weights_are_those_of_other_clients_and_differ_by_round():
    weights = t([0.1, 0.2, 0.3, 0.4])
    seen = [methods("swapped_weights").reweigh(cohort(noise=n), weights) for n in range(20)]
    for found in seen:
        assert sorted(found.tolist()) == weights.tolist()
        assert (found != weights).all()
    assert len({tuple(found.tolist()) for found in seen}) > 3


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=20), st.integers(0, 99))
def test_random_weights_are_as_concentrated_and_sum_to_the_same(parts, noise):
    weights = t(parts)
    found = methods("random_weights").reweigh(cohort(noise=noise), weights)
    torch.testing.assert_close(found.sum(), weights.sum())
    torch.testing.assert_close(effective(found), effective(weights), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clients", [1, 2, 3, 7, 10])
def test_random_weights_of_equal_ones_are_equal_to_the_last_bit(clients, dtype):
    weights = torch.full((clients,), 1 / clients, dtype=dtype)
    for noise in range(5):
        found = methods("random_weights").reweigh(cohort(noise=noise), weights)
        assert torch.equal(found, weights)


def test_random_weights_differ_by_round_and_do_not_follow_the_samples():
    weights = t(SIZES) / 16
    seen = torch.stack(
        [methods("random_weights").reweigh(cohort(noise=n), weights) for n in range(400)]
    )
    # each client has a quarter on average; the largest of the four weights has more than half
    torch.testing.assert_close(seen.mean(0), t([0.25] * 4), atol=0.05, rtol=0)
    assert seen.max(1).values.mean() > 0.5


def test_one_client_keeps_all_the_weight():
    for name in ("swapped_weights", "random_weights"):
        torch.testing.assert_close(methods(name).reweigh(cohort([5]), t([0.7])), t([0.7]))


# -- classes ------------------------------------------------------------------------------------


def step(order: list[int], true=(0, 2), counts=(6, 3, 2, 1)):
    """The step of test_distillation.py, with a random order of the classes."""
    logits = t(LOCAL)
    return make_step(
        **{"logits": logits, "features": logits, "y": torch.tensor(true), "x": None},
        **{"counts": torch.tensor(counts), "forward": lambda state, x: (None, t(SERVER))},
        memory={_random_classes.ORDER: torch.tensor(order)},
    )


def test_fedlmd_with_a_random_class_masked():
    # The only majority class, 0, is the first sample's own: no other class is masked. For the
    # second sample one is, so the class that is first in the order is masked: 3.
    kept = [[1, 2, 3], [0, 1]]
    found = methods("fedlmd_random", beta=1.5, tau=2.0).penalty(step([1, 2, 3, 0]))
    wanted = 1.5 * expected(teachers(kept, 2.0), students([[1, 2, 3], [0, 1, 3]], 2.0), 2.0)
    torch.testing.assert_close(found, t(wanted))


def test_fedlmd_with_its_own_mask_is_fedlmd():
    found = methods("fedlmd_random").penalty(step([0, 1, 2, 3]))  # the majority class is first
    torch.testing.assert_close(found, methods("fedlmd").penalty(step([0, 1, 2, 3])))


def test_a_samples_own_class_has_no_place_among_those_that_are_masked():
    # Classes 0 and 1 are majorities, and the order is 2, 3, 1, 0. The first sample is of class 0:
    # one other is masked, 2. The second one is of class 2: two others are masked, 3 and 1.
    found = methods("fedlmd_random").penalty(step([3, 2, 0, 1], counts=(5, 5, 1, 1)))
    wanted = expected(teachers([[1, 3], [0]], 1.0), students([[1, 2, 3], [0, 1, 3]], 1.0), 1.0)
    torch.testing.assert_close(found, t(wanted))


def test_fedlmd_without_a_teacher_and_a_random_class_masked():
    # As above, but the target is 1/3 for each class that is kept: all minorities are three.
    found = methods("fedlmd_tf_random", beta=1.5, tau=2.0).penalty(step([1, 2, 3, 0]))
    targets = [dict.fromkeys([1, 2, 3], 1 / 3), dict.fromkeys([0, 1], 1 / 3)]
    wanted = 1.5 * expected(targets, students([[1, 2, 3], [0, 1, 3]], 2.0), 2.0)
    torch.testing.assert_close(found, t(wanted))


def test_fedlmd_without_a_teacher_and_with_its_own_mask_is_fedlmd_tf():
    found = methods("fedlmd_tf_random").penalty(step([0, 1, 2, 3]))
    torch.testing.assert_close(found, methods("fedlmd_tf").penalty(step([0, 1, 2, 3])))


@pytest.mark.parametrize("counts", [(6, 3, 2, 1), (5, 5, 1, 1), (4, 4, 4, 0)])
def test_as_many_classes_are_masked_as_by_fedlmd(counts):
    one = step([3, 1, 0, 2], true=(0, 3), counts=counts)
    majority = one.counts > one.counts.sum() / 4
    theirs = [int(majority.sum()) - int(majority[label]) for label in (0, 3)]
    places = fedlmd_random.places_of_others(one)
    others = torch.ones(2, 4).bool().scatter(1, one.y[:, None], False)
    masked = others & (places < torch.tensor(theirs)[:, None])
    assert masked.sum(1).tolist() == theirs


def test_fedntd_with_another_class_masked():
    # In the order 2, 0, 3, 1 class 3 follows class 0, and class 0 follows class 2.
    one = step([1, 3, 0, 2])
    assert fedntd_random.another_class(one).tolist() == [3, 0]
    kept = [[0, 1, 2], [1, 2, 3]]
    wanted = expected(teachers(kept, 1.0), students(kept, 1.0), 1.0)
    torch.testing.assert_close(methods("fedntd_random").penalty(one), t(wanted))


def test_the_class_after_the_last_one_is_the_first():
    one = step([1, 3, 0, 2], true=(1, 1))  # class 1 is last, class 2 first
    assert fedntd_random.another_class(one).tolist() == [2, 2]


def test_orders_differ_by_client_and_round_and_hold_every_class():
    drawn = [
        tuple(told[_random_classes.ORDER].tolist())
        for noise in range(5)
        for told in _random_classes.send_orders(cohort(noise=noise))
    ]
    assert all(sorted(order) == [0, 1, 2, 3] for order in drawn)
    assert len(set(drawn)) > 10
    first, again = (_random_classes.send_orders(cohort(noise=3)) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a[_random_classes.ORDER], b[_random_classes.ORDER])


def test_counts_are_permuted_among_the_classes_that_a_client_holds():
    counts = torch.tensor([[0, 5, 0, 2, 1], [0, 0, 3, 0, 0], [0, 0, 0, 0, 0], [9, 8, 7, 6, 4]])
    seen = [_held_classes.permuted(counts, noise) for noise in range(60)]
    for found in seen:
        assert torch.equal(found > 0, counts > 0)
        assert torch.equal(found.sort(1).values, counts.sort(1).values)
    # all six orders of three classes occur, and are drawn anew for each client
    assert len({tuple(found[0].tolist()) for found in seen}) == 6
    assert len({tuple(found[3].tolist()) for found in seen}) > 30
    same = _held_classes.permuted(counts[[3, 3]], 1)
    assert not torch.equal(same[0], same[1])
