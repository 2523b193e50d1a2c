"""Clients that never answer, do less work, or attack: `fedgrid.federation.conditions`."""

import numpy as np
import pytest
import torch

from conftest import BACKENDS, PROTOCOL, methods, simulate, uneven
from fedgrid.federation import conditions, schedule
from fedgrid.runtime.names import UsageError

SIZES = (8, 8, 8, 8, 8, 8)
WHOLE = {"participation": 1.0, "local_unit": "epochs", "local": 4, "augment": []}


def works(**fields) -> list[schedule.Work]:
    """The work of many rounds with all clients, after dropout."""
    protocol = PROTOCOL | WHOLE | fields
    everyone, members, found = np.arange(len(SIZES)), uneven(SIZES).members, []
    for number in range(200):
        names = ("a", "b", 0, number)
        clients = conditions.answering(everyone, protocol["dropout"], *names)
        clients = conditions.in_time(clients, protocol, *names)
        found.append(schedule.work(clients, members, protocol, *names))
    return found


def test_a_share_of_clients_never_answers():
    sizes = [len(work.clients) for work in works(dropout=0.3)]
    assert np.mean(sizes) == pytest.approx(0.7 * len(SIZES), abs=0.3)
    assert len({*sizes}) > 3


def test_those_that_answer_do_what_they_would_do_anyway():
    for whole, part in zip(works()[:5], works(dropout=0.3)[:5], strict=True):
        at = np.searchsorted(whole.clients, part.clients)
        np.testing.assert_array_equal(whole.index[:, at], part.index)


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_never_answers_leaves_no_trace(backend):
    run = simulate(methods("scaffold"), backend, uneven(SIZES), **WHOLE, dropout=0.5)
    answered: set[int] = set()
    for _ in range(3):
        answered |= {*run.engine.plan(run.run).clients.tolist()}
        state = run.play()
        assert {*state.memory} == answered
    assert answered < {*range(len(SIZES))}


def test_stragglers_do_a_part_of_their_epochs():
    steps = np.concatenate([work.steps for work in works(stragglers=1.0)])
    assert {*steps.tolist()} == {2, 4, 6, 8}  # an epoch of eight samples is two batches of four
    some = np.concatenate([work.steps for work in works(stragglers=0.4)])
    assert np.mean(some < 8) == pytest.approx(0.4 * 3 / 4, abs=0.05)


def test_late_clients_are_dropped_and_the_others_do_all_of_their_work():
    partial, dropped = (works(stragglers=0.4, late=late) for late in ("partial", "dropped"))
    share = np.mean([len(work.clients) for work in dropped]) / len(SIZES)
    assert share == pytest.approx(0.6, abs=0.05)
    for of_all, in_time in zip(partial, dropped, strict=True):
        assert (in_time.steps == 8).all()
        slow = {k for k, steps in zip(of_all.clients, of_all.steps, strict=True) if steps < 8}
        assert slow.isdisjoint(in_time.clients)


def test_flipped_labels_are_those_of_attackers_alone():
    data, protocol = uneven(SIZES), PROTOCOL | {"attackers": 0.5, "attack": "labels"}
    bad = {*conditions.attackers(6, 0.5, *data.names).tolist()}
    made = conditions.with_flipped_labels(data, protocol)
    assert len(bad) == 3
    for client, ids in enumerate(data.members):
        expected = 2 - data.labels[ids] if client in bad else data.labels[ids]
        torch.testing.assert_close(made.labels[ids], expected)
        torch.testing.assert_close(made.counts[client], expected.bincount(minlength=3))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("attack", "strength"), [("sign", 2.0), ("noise", 3.0)])
def test_an_attacker_sends_another_change_and_keeps_its_own(backend, attack, strength):
    fields = WHOLE | {"attackers": 1 / 6, "attack": attack, "attack_strength": strength}
    made = methods("fedavg"), backend, uneven(SIZES)
    honest, false = (simulate(*made, **WHOLE | given) for given in ({}, fields))
    (bad,) = false.engine.attack.clients
    deltas = []
    for run in (honest, false):
        work = run.engine.plan(run.run)
        cohort = run.engine.cohort(run.run, work, 0.1)
        sums = []
        for which, models, *_ in run.engine.train(
            run.run, work, run.engine.send(cohort, work.clients), 0.1
        ):
            sent = run.engine.attack.change(models, run.run.server, work.clients[which], work.noise)
            sums.append({n: (run.run.server[n] - sent[n]).clone() for n in run.engine.sent[0]})
        deltas.append({n: torch.cat([of[n] for of in sums]) for n in sums[0]})
    others = [k for k in range(6) if k != bad]
    for name, own in deltas[0].items():
        torch.testing.assert_close(deltas[1][name][others], own[others])
        if attack == "sign":
            torch.testing.assert_close(deltas[1][name][bad], -strength * own[bad])
    sizes = [conditions.norm({n: d[bad] for n, d in of.items()}) for of in deltas]
    torch.testing.assert_close(sizes[1], strength * sizes[0])


def test_attackers_are_refused_where_clients_send_more_than_parameters():
    fields = WHOLE | {"attackers": 0.5, "attack": "sign"}
    with pytest.raises(UsageError, match="set `attack: labels`"):
        simulate(methods("scaffold"), "loop", uneven(SIZES), **fields).play()
    simulate(methods("fedprox"), "loop", uneven(SIZES), **fields).play()


# --- availability ------------------------------------------------------------------------------

NAMES = ("a", "b", 0)
THERE = {"available": 0.25, "available_rounds": 8.0}


def presence(kind: str, rounds: int, clients: int = 40, **fields) -> np.ndarray:
    """(rounds, clients): who is there."""
    protocol = PROTOCOL | THERE | {"availability": kind} | fields
    found = np.zeros((rounds, clients), bool)
    for number in range(rounds):
        found[number, conditions.available(clients, protocol, *NAMES, number)] = True
    return found


def test_clients_come_and_go_once_in_a_cycle():
    there = presence("cyclic", 32)
    assert {*there.sum(1).tolist()} == {10}
    np.testing.assert_array_equal(there[:8], there[8:16])
    arrives = there & ~np.roll(there, 1, axis=0)
    assert {*arrives.sum(0).tolist()} == {4}
    assert {*there.sum(0).tolist()} == {8}
    assert len({*map(bytes, there.T)}) == 8


def test_sticky_clients_stay_as_long_as_they_should_and_are_as_many():
    there = presence("sticky", 3000)
    assert there[0].mean() == pytest.approx(0.25, abs=0.2)
    assert there.mean() == pytest.approx(0.25, abs=0.02)
    leaves = there[:-1] & ~there[1:]
    assert leaves.sum() / there[:-1].sum() == pytest.approx(1 / 8, abs=0.01)
    once = presence("sticky", 3000, available_rounds=1.0)
    assert not (once[:-1] & once[1:]).any()


def test_who_is_there_does_not_depend_on_the_rounds_that_were_asked_before():
    protocol = PROTOCOL | THERE | {"availability": "sticky"}
    there = presence("sticky", 30)
    conditions.stays_of.cache_clear()
    for number in (7, 29, 3, 0):
        found = conditions.available(40, protocol, *NAMES, number)
        np.testing.assert_array_equal(found, np.flatnonzero(there[number]))


@pytest.mark.parametrize("kind", ["cyclic", "sticky"])
@pytest.mark.parametrize("sampler", ["seeded", "round"])
def test_a_round_draws_from_those_that_are_there(kind, sampler):
    fields = THERE | {"availability": kind, "participation": 0.2, "sampler": sampler}
    there = presence(kind, 200)
    drawn = np.zeros_like(there)
    for number in range(200):
        drawn[number, schedule.cohort_of(40, PROTOCOL | fields, *NAMES, number)] = True
    assert not (drawn & ~there).any()
    np.testing.assert_array_equal(drawn.sum(1), np.minimum(there.sum(1), 8))
    assert (drawn.sum(0) > 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_round_without_anybody_changes_nothing(backend):
    fields = WHOLE | {"availability": "cyclic", "available": 0.01, "available_rounds": 7.0}
    run = simulate(methods("fedavg"), backend, uneven(SIZES), **fields)
    planned = []
    for _ in range(14):
        before, clients = run.run.server, run.engine.plan(run.run).clients
        after = run.play().server
        same = all(torch.equal(w, after[n]) for n, w in before.items())
        assert same == (len(clients) == 0)
        planned.append(len(clients))
    assert 0 in planned
    assert max(planned) == 1


def test_a_method_chooses_among_those_that_are_there():
    fields = WHOLE | {"participation": 1 / 3, "availability": "sticky", **THERE}
    run = simulate(methods("power_of_choice", d=6), "loop", uneven(SIZES), **fields)
    for number in range(30):
        there = conditions.available(6, run.engine.protocol, *run.engine.federation.names, number)
        assert {*run.engine.plan(run.run).clients.tolist()} <= {*there.tolist()}
        run.play()
