"""Methods of the server and of its choice of clients: what their plain loops do not show."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from against import SETTING, SIZES, engine, loop
from conftest import brief, differ, methods, simulate, tiny, uneven
from fedgrid.method import Method, weighted_sum
from fedgrid.methods import krum
from fedgrid.runtime.names import UsageError
from oracles import servers
from oracles.base import Plain

HEAD = ("head.weight", "head.bias")


@pytest.mark.parametrize("by", ["parameter", "tensor"])
def test_the_placebo_of_elastic_gives_each_parameter_the_factor_of_another(by):
    start = simulate(methods("fedavg"), "loop", uneven(SIZES), **SETTING).run.server
    usual, found = engine(methods("fedavg"), 1).server, {}
    for shuffled in (False, True):
        run = engine(methods("elastic", by=by, shuffled=shuffled), 1).server
        factors = [((run[n] - start[n]) / (usual[n] - start[n])).flatten() for n in HEAD]
        found[shuffled] = torch.cat(factors)
    assert (found[False] - found[True]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["power_of_choice", "power_of_choice_random"])
def test_candidates_that_all_take_part_are_no_choice(name):
    chosen = 3  # of six clients, of whom one has no samples
    with pytest.raises(UsageError, match="set d to more than 3"):
        simulate(methods(name, d=chosen), participation=1 / 2).play()
    simulate(methods(name, d=chosen), participation=1.0).play()  # all take part in any case


def test_a_draw_by_lot_does_not_depend_on_the_number_of_candidates():
    names = [("size_sampling", {}), *(("power_of_choice_random", {"d": d}) for d in (3, 4, 5))]
    found = [engine(methods(name, **d), 2, participation=1 / 3).server for name, d in names]
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], rtol=0, atol=0)


@pytest.mark.parametrize(("asked", "drawn"), [(1, 1), (5, 5), (6, 5)])
def test_a_draw_in_proportion_to_samples_has_the_clients_of_the_protocol(asked, drawn):
    made = simulate(methods("size_sampling"), participation=asked / 6)  # one has no samples
    assert len(made.engine.plan(made.run).clients) == drawn


@pytest.mark.parametrize("name", ["feddisco", "qfedavg"])
def test_weights_can_be_swapped_between_clients_as_a_placebo(name):
    made, seen = methods(name) | methods("swapped_weights"), []

    def look(end):
        seen.append((end.given, end.weights))
        return {}

    found = engine(made | Method(observe=look), 1).server
    given, new = seen[0]
    assert sorted(given.tolist()) == sorted(new.tolist())
    assert given.tolist() != new.tolist()
    usual = engine(methods(name), 1).server
    assert max(float((found[n] - w).abs().max()) for n, w in usual.items()) > 1e-6


ROBUST = ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median"]


def poisoned(method: Method) -> Method:
    """The method where the first client of each round sends a huge change."""

    def changed(cohort):
        deltas = {n: d.clone() for n, d in cohort.deltas.items()}
        for delta in deltas.values():
            delta[0] = 1e3
        return replace(cohort, deltas=deltas)

    def over(function):
        return function and (lambda cohort, *rest: function(changed(cohort), *rest))

    return replace(
        method,
        weigh=over(method.weigh),
        reweigh=over(method.reweigh),
        aggregate=over(method.aggregate or weighted_sum),
        uses_weights=True,
        weigh_after_training=True,
    )


@pytest.mark.parametrize("name", [*ROBUST, "fedavg"])
def test_one_client_cannot_move_a_robust_server_far(name):
    keywords = {"share": 0.3} if name in ("trimmed_mean", "krum", "multi_krum") else {}
    keywords |= {"iterations": 50} if name == "geometric_median" else {}
    usual = engine(methods(name, **keywords), 1, participation=1.0).server
    found = engine(poisoned(methods(name, **keywords)), 1, participation=1.0).server
    away = max(float((found[n] - usual[n]).abs().max()) for n in found if "running" not in n)
    assert (away > 50) if name == "fedavg" else (away < 0.5)


def test_the_score_of_krum_by_hand():
    """Five clients of whom one may lie: the two nearest ones of each count."""
    cohort = SimpleNamespace(deltas={"w": torch.tensor([[0.0], [1.0], [2.2], [3.0], [10.0]])})
    found = krum.score(cohort, torch.arange(5), 1)
    expected = [1 + 2.2**2, 1 + 1.2**2, 0.8**2 + 1.2**2, 0.8**2 + 2**2, 7**2 + 7.8**2]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("name", ROBUST)
def test_a_client_without_samples_has_no_part(name):
    """It sends nothing: a change of 0 would hold the median and Krum back."""
    whole = engine(methods(name), 2, uneven((*SIZES, 0)), participation=1.0)
    alone = engine(methods(name), 2, uneven(SIZES), participation=1.0)
    params = [n for n in alone.server if "running" not in n]
    found, expected = ({n: run.server[n] for n in params} for run in (whole, alone))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    assert not differ(whole, alone)


def test_the_noise_has_the_deviation_that_is_asked_for():
    quiet = engine(methods("dp_fedavg", norm=2.0, noise_multiplier=0.0), 1).server
    loud = engine(methods("dp_fedavg", norm=2.0, noise_multiplier=3.0), 1).server
    params = [name for name in quiet if "running" not in name]
    noise = torch.cat([(loud[n] - quiet[n]).flatten() for n in params])
    assert float(noise.std()) == pytest.approx(3.0 * 2.0 / 4, rel=0.15)  # of four clients
    assert abs(float(noise.mean())) < 0.5


def test_one_client_moves_the_server_by_no_more_than_the_norm_by_the_cohort():
    still = simulate(methods("fedavg"), "loop", uneven(SIZES)).run.server
    found = engine(methods("dp_fedavg", norm=0.1, noise_multiplier=0.0), 1, lr=5.0).server
    params = [name for name in found if "running" not in name]
    moved = torch.cat([(found[n] - still[n]).flatten() for n in params])
    assert 0 < float(moved.norm()) <= 0.1 + 1e-12


def test_ccvr_by_predictions_reads_no_label_and_is_ccvr_where_all_are_right():
    """Of one model, on the same images with labels that it predicts, and with others."""
    data = uneven(SIZES)
    plain = loop(Plain, "fedavg", {}, 0)
    right = plain.model.eval()(plain.inputs(torch.arange(len(data.labels))))[1].argmax(1)
    assert not torch.equal(right, data.labels)
    found = []
    for name, labels in (
        ("ccvr", right),
        ("ccvr_predicted", right),
        ("ccvr_predicted", data.labels),
    ):
        made = simulate(methods(name, lr=0.1), "loop", replace(data, labels=labels), **SETTING)
        found.append(made.engine.evaluation.deployed(made.run))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["ccvr", "ccvr_predicted", "ccvr_random", "feddf"])
def test_a_server_in_single_precision_stays_in_it(name):
    data = uneven(SIZES)
    data = replace(data, mean=data.mean.float(), std=data.std.float())
    made = simulate(brief(name), "loop", data, lambda seed: tiny(seed).float(), **SETTING)
    found = made.engine.evaluation.deployed(made.play(1))
    assert {w.dtype for w in found.values()} == {torch.float32}


def test_plain_loops_reach_what_they_are_there_for():
    """FedExP's steps are longer than FedAvg's, and a geometric median ends before its last one."""
    far = {"lr": 0.3, "momentum": 0.0}
    assert max(loop(servers.FedExP, "fedexp", {}, **far).shared["eta"]) > 1.1
    given = {"iterations": 50, "tolerance": 1e-7}
    ends = loop(servers.GeometricMedian, "geometric_median", given).shared["ends"]
    assert all(1 < end < 30 for end in ends)
