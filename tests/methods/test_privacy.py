"""What noise is needed and what privacy is spent: `fedgrid.methods._privacy`, `dp_fedavg`."""

import math

import pytest

from conftest import HAND, PROTOCOL, methods, pixel, simulate, two_clients
from fedgrid.method import Method
from fedgrid.methods._privacy import noise_for, spent
from fedgrid.runtime.names import UsageError
from fedgrid.training.build import check_method


def test_more_rounds_spend_more_and_more_noise_spends_less():
    assert spent(1.0, 0.1, 10, 1e-5) < spent(1.0, 0.1, 100, 1e-5) < spent(0.7, 0.1, 100, 1e-5)
    assert spent(0.0, 0.1, 1, 1e-5) == float("inf")


def test_one_round_with_everybody_is_the_gaussian_mechanism():
    # Without sampling, order a has the divergence a / (2 z^2); the best order gives this bound.
    by_hand = min(
        a / 2 / 9 + (5 * 2.302585 + (a - 1) * math.log(1 - 1 / a)
                     - math.log(a)) / (a - 1)
        for a in range(2, 64)
    )  # fmt: skip
    assert spent(3.0, 1.0, 1, 1e-5) == pytest.approx(by_hand, rel=1e-3)


def test_the_noise_for_an_epsilon_spends_it():
    assert spent(noise_for(3.0, 0.1, 50, 1e-5), 0.1, 50, 1e-5) == pytest.approx(3.0, abs=1e-3)


def test_an_epsilon_that_cannot_be_had_is_refused():
    with pytest.raises(UsageError, match="no noise gives epsilon"):
        noise_for(1e-9, 0.5, 100, 1e-5)


def test_a_run_logs_what_it_has_spent():
    made = methods("dp_fedavg", epsilon=2.0)
    run = simulate(made, "loop", two_clients(), pixel, **HAND | {"rounds": 3})
    found = [run.engine.evaluation.evaluate_server(run.run)["epsilon"]]
    for _ in range(3):
        found.append(run.engine.evaluation.evaluate_server(run.play())["epsilon"])
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.0, pytest.approx(2.0, abs=0.01))


def test_statistics_without_noise_have_no_epsilon():
    with pytest.raises(UsageError, match="without BatchNorm"):
        simulate(methods("dp_fedavg", epsilon=2.0))
    run = simulate(methods("dp_fedavg"))
    assert run.engine.evaluation.evaluate_server(run.play()) == {}


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (Method(reweigh=lambda cohort, weights: 2 * weights, any_sum=True), "noise is too small"),
        (Method(reweigh=lambda cohort, weights: -2 * weights, any_sum=True), "noise is too small"),
        (methods("scaffold"), "these send more"),  # its variates have no noise
        (methods("fedcurv"), "these send more"),
        (Method(measure=lambda client: {"own": client.counts}), "these send more"),
        (methods("ccvr"), "asks clients for more"),
    ],
)
def test_what_another_method_learns_of_clients_without_noise_is_refused(other, sentence):
    run = simulate(methods("dp_fedavg") | other, "loop", two_clients(), pixel, **HAND)
    with pytest.raises(UsageError, match=sentence):
        run.engine.evaluation.deployed(run.play())


@pytest.mark.parametrize("other", ["fedacg", "fedadam", "fedprox", "fedper", "fedlc"])
def test_what_uses_the_noisy_changes_alone_is_not(other):
    run = simulate(methods("dp_fedavg") | methods(other), "loop", two_clients(), pixel, **HAND)
    run.engine.evaluation.deployed(run.play())


@pytest.mark.parametrize(
    ("other", "protocol", "sentence"),
    [
        (methods("feddf"), {}, "`refine`"),
        (Method(choose=lambda candidates: candidates.drawn), {}, "`choose`"),
        (methods("fedproto"), {"client_test": 0.2}, "`measure`"),
        (methods("sgdm", reset=False), {}, "sends optimisers"),
        (Method(), {"availability": "cyclic"}, "set `availability: always`"),
        (Method(), {"sampler": "round", "participation": 0.5}, "set `sampler: seeded`"),
    ],
)
def test_an_epsilon_is_for_clients_that_are_drawn_by_lot_and_send_changes(
    other, protocol, sentence
):
    for noise in (1.0, 0.0):
        made = methods("dp_fedavg", noise_multiplier=noise) | other
        if noise:
            with pytest.raises(UsageError, match=sentence):
                check_method("m", made, PROTOCOL | protocol)
        else:  # without noise it has no epsilon
            check_method("m", made, PROTOCOL | {"momentum": 0.9} | protocol)
