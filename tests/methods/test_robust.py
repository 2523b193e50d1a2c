"""Robust and private ways to aggregate, written a second time as plain loops."""

from dataclasses import replace

import pytest
import torch

from against import SIZES, compare, engine, is_fedavg, loop
from conftest import differ, methods, simulate, uneven
from fedgrid.checking.plain import PlainLoop
from fedgrid.federation import schedule
from fedgrid.method import Method, weighted_sum
from fedgrid.runtime.names import UsageError


class ByClient(PlainLoop):
    """A plain loop whose server gets the flat changes of the clients, local - server."""

    def aggregate(self, clients, models):
        before = [s.clone() for s in self.sent()]
        self.changes = [
            torch.cat([(w - s).flatten() for w, s in zip(m.parameters(), before, strict=True)])
            for m in models
        ]
        self.before = before
        super().aggregate(clients, models)

    def move(self, change):
        """Set the server's parameters to those before the round plus a flat change."""
        sizes = [s.numel() for s in self.before]
        triples = zip(self.model.parameters(), self.before, change.split(sizes), strict=True)
        for w, s, d in triples:
            w.copy_(s + d.view_as(s))


class Coordinates(ByClient):
    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        columns = zip(*(change.tolist() for change in self.changes), strict=True)
        found = [self.one(sorted(column)) for column in columns]
        self.move(torch.tensor(found, dtype=torch.float64))


class Median(Coordinates):
    def one(self, values):
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


class TrimmedMean(Coordinates):
    def one(self, values):
        number = int(0.3 * len(values))
        kept = values[number : len(values) - number]
        return sum(kept) / len(kept)


@pytest.mark.parametrize("participation", [0.5, 2 / 3, 1.0])
def test_median(participation):
    compare(Median, methods("median"), participation=participation)


@pytest.mark.parametrize("participation", [2 / 3, 1.0])
def test_trimmed_mean(participation):
    compare(TrimmedMean, methods("trimmed_mean", share=0.3), participation=participation)


def test_a_trimmed_mean_without_trimming_weighs_all_clients_alike():
    found = engine(methods("trimmed_mean", share=0.0), 1).server
    usual = engine(methods("uniform"), 1).server
    params = [name for name in usual if "running" not in name]
    torch.testing.assert_close({n: found[n] for n in params}, {n: usual[n] for n in params})


class Krum(ByClient):
    share, number = 0.2, 1

    def weights(self, clients, models):
        n, f, scores = len(clients), int(self.share * len(clients)), []
        for i, own in enumerate(self.changes):
            others = [d for j, d in enumerate(self.changes) if j != i]
            away = sorted(float(((own - d) ** 2).sum()) for d in others)
            scores.append(sum(away[: n - f - 2]))
        best = sorted(range(n), key=scores.__getitem__)[: self.number or n - f]
        return torch.tensor([(i in best) / len(best) for i in range(n)], dtype=torch.float64)


class OfTheFirst(PlainLoop):
    def weights(self, clients, models):
        return torch.tensor([1.0] + [0.0] * (len(clients) - 1), dtype=torch.float64)


class MultiKrum(Krum):
    number = 0


class MultiKrumOfThree(Krum):
    number = 3


def test_krum():
    compare(Krum, methods("krum"), participation=1.0)
    compare(MultiKrum, methods("multi_krum"), participation=1.0)
    compare(MultiKrumOfThree, methods("multi_krum", m=3), participation=1.0)


def test_multi_krum_of_one_client_is_krum():
    found, other = engine(methods("multi_krum", m=1)), engine(methods("krum"))
    torch.testing.assert_close(found.server, other.server, rtol=0, atol=0)


def test_krum_of_two_clients_takes_the_first():
    compare(OfTheFirst, methods("krum"), participation=1 / 3)
    alone = (
        engine(methods("krum"), participation=1 / 6),
        engine(methods("fedavg"), participation=1 / 6),
    )
    assert not differ(*alone)


class GeometricMedian(ByClient):
    iterations = 4

    def weights(self, clients, models):
        usual = super().weights(clients, models).tolist()
        found = usual
        for _ in range(self.iterations):
            centre = sum(a * d for a, d in zip(found, self.changes, strict=True)) / sum(found)
            pairs = zip(usual, self.changes, strict=True)
            found = [a / max(1e-5, float((centre - d).norm())) for a, d in pairs]
        return torch.tensor([b / sum(found) for b in found], dtype=torch.float64)


def test_geometric_median():
    compare(GeometricMedian, methods("geometric_median"))


class EndsEarly(GeometricMedian):
    """The iterations end when the sum of distances hardly falls."""

    def weights(self, clients, models):
        usual, sums = PlainLoop.weights(self, clients, models).tolist(), []
        for self.iterations in range(50):
            found = super().weights(clients, models)
            centre = sum(a * d for a, d in zip(found, self.changes, strict=True))
            pairs = zip(usual, self.changes, strict=True)
            sums.append(sum(a * float((centre - d).norm()) for a, d in pairs))
            if len(sums) > 1 and abs(sums[-2] - sums[-1]) < 1e-7 * sums[-1]:
                break
        self.shared.setdefault("ends", []).append(self.iterations)
        return found


def test_a_geometric_median_ends_when_the_sum_hardly_falls():
    compare(EndsEarly, methods("geometric_median", iterations=50, tolerance=1e-7))
    assert all(1 < end < 30 for end in loop(EndsEarly)[0].shared["ends"])


def test_a_geometric_median_of_no_iteration_is_fedavg():
    is_fedavg(methods("geometric_median", iterations=0), rtol=1e-10, atol=1e-13)


class DPFedAvg(ByClient):
    norm, noise = 0.05, 0.5

    def weights(self, clients, models):
        cut = [min(1.0, self.norm / float(change.norm())) for change in self.changes]
        return torch.tensor([c / sum(cut) for c in cut], dtype=torch.float64)

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        names = (*self.data.names, self.round)
        seed = schedule.work(
            torch.tensor(clients).numpy(), self.data.members, self.protocol, *names
        ).noise
        drawn, noise = torch.Generator().manual_seed(seed), {}
        named = dict(self.model.named_parameters())
        for name in sorted(named):
            noise[name] = torch.randn(named[name].shape, generator=drawn, dtype=torch.float64)
        total = torch.zeros_like(self.changes[0])
        for change in self.changes:
            total += change * min(1.0, self.norm / float(change.norm()))
        flat = torch.cat([noise[name].flatten() for name in named])
        self.move((total - self.noise * self.norm * flat) / len(clients))


def test_dp_fedavg():
    compare(DPFedAvg, methods("dp_fedavg", norm=0.05, noise_multiplier=0.5))


def test_dp_fedavg_without_noise_and_with_a_large_norm_is_fedavg_with_equal_weights():
    is_fedavg(methods("dp_fedavg", norm=1e9, noise_multiplier=0.0), 1e-12, 1e-14, "uniform")


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


@pytest.mark.parametrize("name", ROBUST)
def test_a_client_without_samples_has_no_part(name):
    """It sends nothing: a change of 0 would hold the median and Krum back."""
    whole = engine(methods(name), 2, uneven((*SIZES, 0)), participation=1.0)
    alone = engine(methods(name), 2, uneven(SIZES), participation=1.0)
    params = [n for n in alone.server if "running" not in n]
    found, expected = ({n: run.server[n] for n in params} for run in (whole, alone))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    assert not differ(whole, alone)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("trimmed_mean", {"share": 0.5}),
        ("krum", {"share": -0.1}),
        ("multi_krum", {"share": 0.5}),
        ("multi_krum", {"m": -1}),
        ("geometric_median", {"nu": 0.0}),
        ("geometric_median", {"tolerance": -1.0}),
        ("geometric_median", {"iterations": -1}),
        ("dp_fedavg", {"norm": 0.0}),
        ("dp_fedavg", {"noise_multiplier": -1.0}),
    ],
)
def test_a_hyper_parameter_without_a_meaning_is_refused(name, wrong):
    with pytest.raises(UsageError, match=name):
        methods(name, **wrong)
