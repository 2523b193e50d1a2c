"""Placebos, and the classes that FedNTD and FedLMD mask, worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from against import compare, loop, run
from conftest import make_step, methods, uneven
from fedgrid.checking.plain import SIZES as TRAINED
from fedgrid.engine.state import effective
from fedgrid.method import Cohort, Step
from fedgrid.methods import (
    _distillation,
    _held_classes,
    _random_classes,
    fedntd_random,
    fedpac,
)
from fedgrid.methods._random_classes import ORDER
from oracles import losses

SIZES = [1, 2, 4, 9]
# Two samples, four classes. The client has 6, 3, 2 and 1 samples of them, 3 on average: class 0 is
# its only majority (class 1 has as many as the average, not more).
COUNTS = [6, 3, 2, 1]
LOCAL = [[2.0, 1.0, 0.0, -1.0], [0.5, 0.0, 1.5, -0.5]]
SERVER = [[1.0, 0.0, 2.0, 0.5], [0.0, 1.0, -1.0, 0.5]]
TRUE = [0, 2]


def t(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def cohort(sizes=SIZES, noise: int = 0, classes: int = 4) -> Cohort:
    """A round of clients with so many samples, all of the first class."""
    counts = torch.zeros(len(sizes), classes, dtype=torch.long)
    counts[:, 0] = torch.tensor(sizes)
    given = {"sizes": t([float(n) for n in sizes]), "counts": counts, "noise": noise}
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | given)


# --- FedNTD and FedLMD -------------------------------------------------------------------------


def softmax(logits: list[list[float]], kept: list[list[int]], tau: float) -> list[dict]:
    """Probabilities over the classes that are kept of each sample."""
    pairs = zip(logits, kept, strict=True)
    powers = [{k: math.exp(one[k] / tau) for k in classes} for one, classes in pairs]
    return [{k: power / sum(of.values()) for k, power in of.items()} for of in powers]


def expected(teachers, students, tau: float) -> float:
    """tau^2 times the mean of sum_k p_k (log p_k - log q_k)."""
    each = [
        sum(p * (math.log(p) - math.log(student[k])) for k, p in teacher.items())
        for teacher, student in zip(teachers, students, strict=True)
    ]
    return tau**2 * sum(each) / len(each)


def step(order=None, true=TRUE, counts=COUNTS, **fields):
    """A step whose server's model gives SERVER, with an order of the classes."""
    logits = t(LOCAL)
    return make_step(
        **{"logits": logits, "features": logits, "y": torch.tensor(true), "x": None},
        **{"counts": torch.tensor(counts), "forward": lambda state, x: (None, t(SERVER))},
        **{"memory": order and {ORDER: torch.tensor(order)}},
        **fields,
    )


def test_a_class_with_as_many_samples_as_the_average_is_no_majority():
    assert _distillation.majority(step()).tolist() == [True, False, False, False]
    assert _distillation.majority(step(counts=[3, 3, 3, 3])).tolist() == [False] * 4


@pytest.mark.parametrize("name", ["fedlmd", "fedlmd_tf"])
def test_a_sample_whose_teacher_keeps_no_class_contributes_nothing(name):
    # All classes but 3 are majorities, and 3 is the true class of both samples.
    made = step(true=[3, 3], counts=[5, 5, 5, 1])
    assert float(methods(name).penalty(made)) == 0


@pytest.mark.parametrize(("number", "like"), [(0, "fedlmd_tf"), (2, "fedlmd_tf"), (3, "fedlmd")])
def test_fedlmd_switches_from_teacher_free(number, like):
    made = step(shared={"fedlmd_round": t(number)})
    found = methods("fedlmd", switch=3).penalty(made)
    assert float(found) == pytest.approx(float(methods(like).penalty(step())))


def test_fedlmd_with_a_random_class_masked():
    # The only majority class, 0, is the first sample's own: no other class is masked. For the
    # second sample one is, so the class that is first in the order is masked: 3.
    found = methods("fedlmd_random", beta=1.5, tau=2.0).penalty(step([1, 2, 3, 0]))
    teachers = softmax(SERVER, [[1, 2, 3], [0, 1]], 2.0)
    wanted = 1.5 * expected(teachers, softmax(LOCAL, [[1, 2, 3], [0, 1, 3]], 2.0), 2.0)
    torch.testing.assert_close(found, t(wanted))


def test_a_samples_own_class_has_no_place_among_those_that_are_masked():
    # Classes 0 and 1 are majorities, and the order is 2, 3, 1, 0. The first sample is of class 0:
    # one other is masked, 2. The second one is of class 2: two others are masked, 3 and 1.
    found = methods("fedlmd_random").penalty(step([3, 2, 0, 1], counts=(5, 5, 1, 1)))
    teachers = softmax(SERVER, [[1, 3], [0]], 1.0)
    wanted = expected(teachers, softmax(LOCAL, [[1, 2, 3], [0, 1, 3]], 1.0), 1.0)
    torch.testing.assert_close(found, t(wanted))


def test_fedlmd_without_a_teacher_and_a_random_class_masked():
    # As above, but the target is 1/3 for each class that is kept: all minorities are three.
    found = methods("fedlmd_tf_random", beta=1.5, tau=2.0).penalty(step([1, 2, 3, 0]))
    targets = [dict.fromkeys([1, 2, 3], 1 / 3), dict.fromkeys([0, 1], 1 / 3)]
    wanted = 1.5 * expected(targets, softmax(LOCAL, [[1, 2, 3], [0, 1, 3]], 2.0), 2.0)
    torch.testing.assert_close(found, t(wanted))


def test_fedntd_with_another_class_masked():
    # In the order 2, 0, 3, 1 class 3 follows class 0, and class 0 follows class 2.
    one = step([1, 3, 0, 2])
    assert fedntd_random.another_class(one).tolist() == [3, 0]
    kept = [[0, 1, 2], [1, 2, 3]]
    wanted = expected(softmax(SERVER, kept, 1.0), softmax(LOCAL, kept, 1.0), 1.0)
    torch.testing.assert_close(methods("fedntd_random").penalty(one), t(wanted))
    one = step([1, 3, 0, 2], true=(1, 1))  # after the last class, 1, comes the first, 2
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


# --- weights -----------------------------------------------------------------------------------


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


# --- counts, prototypes and models of others ---------------------------------------------------


def sent_counts(kind, name: str, **keywords) -> list[dict]:
    """Hold a placebo against a plain loop with the counts that it sends; return these by client."""
    sent, method = [], methods(name, **keywords)

    class Placebo(kind):
        def counts(self, client):
            return sent[self.round][client]

    def seen(cohort):
        given = method.send(cohort)
        counts = [next(iter(memory.values())) for memory in given]
        if len(sent) == cohort.round:
            sent.append(dict(zip(cohort.clients.tolist(), counts, strict=True)))
        return given

    found = run(replace(method, send=seen))
    compare(found, loop(Placebo, name, keywords))
    return sent


@pytest.mark.parametrize("by", ["presence", "count"])
def test_the_placebo_of_fedrs_has_the_counts_of_another_client_of_the_round(by):
    own = uneven(TRAINED).counts
    for clients in sent_counts(losses.FedRS, "fedrs_random", alpha=0.3, by=by):
        found = sorted(tuple(counts.tolist()) for counts in clients.values())
        assert found == sorted(tuple(own[k].tolist()) for k in clients)


def test_the_placebo_of_fedlc_has_a_clients_counts_for_other_classes():
    own, wrong = uneven(TRAINED).counts, 0
    for clients in sent_counts(losses.FedLC, "fedlc_random", tau=0.5):
        for client, counts in clients.items():
            assert sorted(counts.tolist()) == sorted(own[client].tolist())
            wrong += not torch.equal(counts, own[client])
    assert wrong


def step_of(order, y) -> Step:
    """A step of three classes with prototypes, for a client with an order of the classes."""
    means = torch.arange(6.0).double().view(3, 2) ** 2
    known = torch.tensor([1.0, 0.0, 1.0]).double()
    return make_step(
        features=torch.tensor([[0.5, 1.0], [2.0, 3.0]]).double(),
        logits=torch.tensor([[0.5, 1.0, 0.0], [2.0, 3.0, 1.0]]).double()[:, None].expand(2, 2, 3),
        y=torch.tensor(y),
        counts=torch.tensor([7, 2, 1]),
        memory={ORDER: torch.tensor(order)},
        shared={"prototypes": {"mean": means, "known": known}},
    )


def test_the_placebo_of_prototypes_pulls_to_those_of_the_drawn_classes():
    placebo, real = methods("fedproto_random").penalty, methods("fedproto").penalty
    assert placebo(step_of([2, 0, 1], [0, 1])) == real(step_of([0, 1, 2], [2, 0]))
    assert placebo(step_of([2, 0, 1], [0, 1])) != real(step_of([2, 0, 1], [0, 1]))


@pytest.mark.parametrize("name", ["fedrod", "fedlc"])
def test_a_placebo_of_counts_has_them_for_other_classes_that_the_client_holds(name):
    placebo, real = methods(f"{name}_random"), methods(name)
    step = replace(step_of([0, 1, 2], [0, 1]), counts=torch.tensor([7, 2, 0]))
    if name == "fedlc":
        step = replace(step, logits=step.logits[:, 0])
    seen = set()
    for noise in range(9):
        (sent,) = placebo.send(cohort_of(counts=step.counts[None], noise=noise))
        seen.add(float(placebo.loss(replace(step, memory=sent))))
    own, other = (real.loss(replace(step, counts=torch.tensor(n))) for n in ([7, 2, 0], [2, 7, 0]))
    assert seen == {float(own), float(other)}


def cohort_of(**fields) -> Cohort:
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | fields)


def test_the_placebo_of_fedamp_has_the_same_weights_for_other_pairs():
    places = torch.tensor([[0.0], [0.3], [1.0], [4.0]]).double()
    before = [{"fedamp": {"parameters": {"w": place}}} for place in places]
    sent = {}
    for shuffled in (False, True):
        given = methods("fedamp", shuffled=shuffled).send(cohort_of(before=before, noise=3))
        sent[shuffled] = torch.stack([one["fedamp_u"]["w"] for one in given])
        # The weights are symmetric, so that the mean of the clients' models stays.
        torch.testing.assert_close(sent[shuffled].mean(), places.mean())
    assert not torch.allclose(sent[False], sent[True])


def test_the_placebo_of_fedpac_gives_a_client_the_weights_of_another():
    h = torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]]).double()
    head = {"head.bias": torch.zeros(4, 1).double()}
    told = [
        {"fedpac": {"h": h[k], "variance": h.new_tensor(0.1), "head": {"head.bias": h[k, :1]}}}
        for k in range(3)
    ]
    fields = {"clients": torch.tensor([0, 1, 3]), "sizes": torch.tensor([4.0, 4.0, 4.0])}
    cohort = cohort_of(measured=told, shared={"fedpac": head}, noise=0, **fields)
    real, placebo = (
        fedpac.combine(cohort, {}, shuffled)["fedpac"]["head.bias"][:, 0].tolist()
        for shuffled in (False, True)
    )
    assert real[2] == placebo[2] == 0  # it was not in the round
    assert sorted(real) == sorted(placebo)
    assert all(a != b for a, b in zip(real[:2] + real[3:], placebo[:2] + placebo[3:], strict=True))
