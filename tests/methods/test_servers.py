"""Methods of the server and of its choice, written a second time as plain loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from against import CLOSE, SETTING, SIZES, compare, engine, is_fedavg, loop
from conftest import methods, simulate, uneven
from fedgrid.checking.plain import PlainLoop
from fedgrid.federation import schedule, seeds
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError


class FromChange(PlainLoop):
    """A plain loop whose server gets D, the mean of local model - server's model."""

    def aggregate(self, clients, models):
        before = [s.clone() for s in self.sent()]
        super().aggregate(clients, models)
        params = [*self.model.parameters()]
        changes = [w.detach() - s for w, s in zip(params, before, strict=True)]
        steps = self.steps(changes, clients, models, before)
        for w, s, step in zip(params, before, steps, strict=True):
            w.copy_(s + step)


class Adaptive(FromChange):
    lr, beta1, beta2, tau, code = 0.05, 0.8, 0.95, 0.01, False

    def steps(self, changes, *others):
        first = [torch.full_like(d, 0.0 if self.code else self.tau**2) for d in changes]
        v = self.shared.setdefault("v", first)
        m = self.shared.setdefault("m", [torch.zeros_like(d) for d in changes])
        turn, found = self.round + 1, []
        for i, d in enumerate(changes):
            m[i] = self.beta1 * m[i] + (1 - self.beta1) * d
            v[i] = self.second(v[i], d)
            bias = (1 - self.beta2**turn) ** 0.5 / (1 - self.beta1**turn) if self.code else 1.0
            found.append(self.lr * bias * m[i] / (v[i] ** 0.5 + self.tau))
        return found


class FedAdam(Adaptive):
    def second(self, v, d):
        return self.beta2 * v + (1 - self.beta2) * d**2


class FedYogi(Adaptive):
    def second(self, v, d):
        return torch.where(v > d**2, v - (1 - self.beta2) * d**2, v + (1 - self.beta2) * d**2)


class FedAdagrad(Adaptive):
    def second(self, v, d):
        return v + d**2


class FedAdamOfKeras(FedAdam):
    code = True


class FedYogiOfKeras(FedYogi):
    code = True


GIVEN = {"lr": 0.05, "beta1": 0.8, "tau": 0.01}


@pytest.mark.parametrize(
    ("plain", "name", "more"),
    [
        (FedAdam, "fedadam", {"beta2": 0.95}),
        (FedYogi, "fedyogi", {"beta2": 0.95}),
        (FedAdagrad, "fedadagrad", {}),
        (FedAdamOfKeras, "fedadam", {"beta2": 0.95, "form": "code"}),
        (FedYogiOfKeras, "fedyogi", {"beta2": 0.95, "form": "code"}),
    ],
)
def test_adaptive_servers(plain, name, more):
    compare(plain, methods(name, **GIVEN, **more))


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_an_adaptive_server_with_a_huge_tau_is_fedavg(name):
    more = {} if name == "fedadagrad" else {"beta2": 1 - 1e-15}
    is_fedavg(methods(name, lr=2e8, beta1=0.0, tau=1e8, **more), rtol=1e-7, atol=1e-12)


class FedDisco(PlainLoop):
    measure, a, b = "kl", 0.5, 0.1

    def discrepancy(self, client):
        counts = self.data.counts[client].tolist()
        shares = [n / sum(counts) for n in counts]
        if self.measure == "l2":
            return math.dist(shares, [1 / len(shares)] * len(shares))
        return sum(p * math.log(p * len(shares)) for p in shares if p)

    def weights(self, clients, models):
        usual = super().weights(clients, models).tolist()
        far = [self.discrepancy(k) for k in clients]
        if self.measure == "kl":
            far = [d / sum(far) for d in far]
        new = [max(0.0, n - self.a * d + self.b) for n, d in zip(usual, far, strict=True)]
        return torch.tensor([w / sum(new) for w in new], dtype=torch.float64)


class FedDiscoByDistance(FedDisco):
    measure = "l2"


def test_feddisco():
    compare(FedDisco, methods("feddisco"))
    compare(FedDiscoByDistance, methods("feddisco", measure="l2"))


def test_feddisco_without_a_discrepancy_is_fedavg():
    is_fedavg(methods("feddisco", a=0.0, b=0.0), rtol=1e-12, atol=1e-14)


def test_feddisco_keeps_fedavgs_weights_if_no_client_has_another():
    is_fedavg(methods("feddisco", a=100.0, b=0.0, measure="l2"))


class Elastic(FromChange):
    tau, mu, by_tensor = 0.5, 0.9, False

    def of(self, logits, y):
        return (logits**2).sum() / len(y)

    def sensitivity(self, client):
        names = (*self.data.names, self.round, "once more")
        once = dict(self.protocol) | {"local": 1, "least_steps": 0, "most_steps": 0}
        work = schedule.work(torch.tensor([client]).numpy(), self.data.members, once, *names)
        params = [*self.model.parameters()]
        found = [torch.zeros(1 if self.by_tensor else p.numel()).double() for p in params]
        self.model.eval()
        for index, valid in zip(work.index[:, 0], work.valid[:, 0], strict=True):
            x, y = self.inputs(index[valid]), self.data.labels[index[valid]]
            with torch.enable_grad():
                gradients = torch.autograd.grad(self.of(self.model(x)[1], y), params)
            for i, g in enumerate(gradients):
                square = (g**2).sum() if self.by_tensor else (g**2).flatten()
                found[i] = self.mu * found[i] + (1 - self.mu) * square
        self.model.train()
        return found

    def aggregate(self, clients, models):
        self.told = [self.sensitivity(client) for client in clients]
        super().aggregate(clients, models)

    def steps(self, changes, clients, models, before):
        weights, found = self.weights(clients, models).tolist(), []
        for i, change in enumerate(changes):
            factors = []
            for own in zip(*(told[i].tolist() for told in self.told), strict=True):
                mean = sum(a * s for a, s in zip(weights, own, strict=True))
                factors.append(1 + self.tau - (mean / max(own) if max(own) else 1.0))
            many = torch.tensor(factors, dtype=torch.float64)
            found.append(many.view_as(change) * change if len(many) > 1 else many * change)
        return found


class ElasticByLoss(Elastic):
    by_tensor = True

    def of(self, logits, y):
        return F.cross_entropy(logits, y)


def test_elastic():
    compare(Elastic, methods("elastic", mu=0.9))
    compare(ElasticByLoss, methods("elastic", mu=0.9, of="loss", by="tensor"))


@pytest.mark.parametrize("by", ["parameter", "tensor"])
def test_the_placebo_of_elastic_gives_each_parameter_the_factor_of_another(by):
    start = simulate(methods("fedavg"), "loop", uneven(SIZES), **SETTING).run.server
    usual, found = engine(methods("fedavg"), 1).server, {}
    for shuffled in (False, True):
        run = engine(methods("elastic", by=by, shuffled=shuffled), 1).server
        factors = [((run[n] - start[n]) / (usual[n] - start[n])).flatten() for n in HEAD]
        found[shuffled] = torch.cat(factors)
    assert (found[False] - found[True]).abs().max() > 1e-3


HEAD = ("head.weight", "head.bias")


class QFedAvg(PlainLoop):
    q = 2.0

    def mean_loss(self, client):
        x, y = self.samples(client)
        self.model.eval()
        found = float(F.cross_entropy(self.model(x)[1], y)) + 1e-10
        self.model.train()
        return found

    def aggregate(self, clients, models):
        before, lipschitz = [s.clone() for s in self.sent()], 1 / self.rate()
        pulls, hs, factors = [torch.zeros_like(s) for s in before], [], []
        for client, model in zip(clients, models, strict=True):
            loss, norm = self.mean_loss(client), 0.0
            for i, (s, w) in enumerate(zip(before, model.parameters(), strict=True)):
                gradient = lipschitz * (s - w)
                norm += float((gradient**2).sum())
                pulls[i] += loss**self.q * gradient
            hs.append(self.q * loss ** (self.q - 1) * norm + lipschitz * loss**self.q)
            factors.append(loss**self.q)
        self.factors = torch.tensor([f / sum(factors) for f in factors], dtype=torch.float64)
        super().aggregate(clients, models)  # of the running statistics
        for w, s, pull in zip(self.model.parameters(), before, pulls, strict=True):
            w.copy_(s - pull / sum(hs))

    def weights(self, clients, models):
        return self.factors


def test_qfedavg():
    compare(QFedAvg, methods("qfedavg", q=2.0))


def test_qfedavg_with_q_0_is_fedavg_with_equal_weights():
    is_fedavg(methods("qfedavg", q=0.0), rtol=1e-10, atol=1e-13, weighed="uniform")


class Uniform(PlainLoop):
    def weights(self, clients, models):
        return torch.full((len(clients),), 1 / len(clients), dtype=torch.float64)


class PowerOfChoice(Uniform):
    d = 5

    def candidates(self):
        noise = seeds.seed("choice", *self.data.names, self.round)
        sizes = torch.tensor([float(len(ids)) for ids in self.data.members]).double()
        drawn = torch.Generator().manual_seed(noise)
        return torch.multinomial(sizes, self.d, generator=drawn).tolist()

    def mean_loss(self, client):
        x, y = self.samples(client)
        self.model.eval()
        with torch.no_grad():
            found = float(F.cross_entropy(self.model(x)[1], y))
        self.model.train()
        return found

    def cohort(self):
        known = self.shared.setdefault("cohorts", [])
        if len(known) == self.round:
            number = len(super().cohort())
            known.append(sorted(self.choose(self.candidates())[:number]))
        return known[self.round]

    def choose(self, candidates):
        return sorted(candidates, key=self.mean_loss, reverse=True)


class ChoiceByLot(PowerOfChoice):
    def choose(self, candidates):
        return candidates


def test_power_of_choice():
    compare(PowerOfChoice, methods("power_of_choice", d=5), participation=1 / 3)


@pytest.mark.parametrize("name", ["power_of_choice", "power_of_choice_random"])
def test_candidates_that_all_take_part_are_no_choice(name):
    chosen = 3  # of six clients, of whom one has no samples
    with pytest.raises(UsageError, match="set d to more than 3"):
        simulate(methods(name, d=chosen), participation=1 / 2).play()
    simulate(methods(name, d=chosen), participation=1.0).play()  # all take part in any case


def test_the_placebo_of_power_of_choice_draws_from_the_candidates():
    compare(ChoiceByLot, methods("power_of_choice_random", d=5), participation=1 / 3)


def test_a_draw_in_proportion_to_samples_is_power_of_choice_by_lot():
    compare(ChoiceByLot, methods("size_sampling"), participation=1 / 3)


def test_a_draw_by_lot_does_not_depend_on_the_number_of_candidates():
    names = [("size_sampling", {}), *(("power_of_choice_random", {"d": d}) for d in (3, 4, 5))]
    found = [engine(methods(name, **d), 2, participation=1 / 3).server for name, d in names]
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], rtol=0, atol=0)


@pytest.mark.parametrize(("asked", "drawn"), [(1, 1), (5, 5), (6, 5)])
def test_a_draw_in_proportion_to_samples_has_the_clients_of_the_protocol(asked, drawn):
    made = simulate(methods("size_sampling"), participation=asked / 6)  # one has no samples
    assert len(made.engine.plan(made.run).clients) == drawn


class ServerRate(FromChange):
    def steps(self, changes, *others):
        return [1.5 * d for d in changes]


def test_a_learning_rate_of_the_server():
    compare(ServerRate, methods("server_rate", lr=1.5))
    is_fedavg(methods("server_rate"))


class FedExP(FromChange):
    epsilon = 0.001

    def added(self, clients):
        return self.epsilon

    def steps(self, changes, clients, models, before):
        squares = [
            sum(float(((s - w) ** 2).sum()) for s, w in zip(before, m.parameters(), strict=True))
            for m in models
        ]
        mean = sum(
            a * n for a, n in zip(self.weights(clients, models).tolist(), squares, strict=True)
        )
        together = sum(float((d**2).sum()) for d in changes)
        eta = max(1.0, mean / (2 * (together + self.added(clients))))
        self.shared.setdefault("eta", []).append(eta)
        self.shared["before"] = before
        return [eta * d for d in changes]


LONG = {"lr": 0.3, "momentum": 0.0}  # so that the clients disagree


def test_fedexp():
    compare(FedExP, methods("fedexp"), **LONG)
    assert max(loop(FedExP, **LONG)[0].shared["eta"]) > 1.1


class FedExPOfTheCode(FedExP):
    epsilon = 0.01

    def added(self, clients):
        return self.epsilon * len(clients) * (self.rate() / self.protocol["lr"]) ** 2


@pytest.mark.parametrize("average", [True, False])
def test_fedexp_in_the_form_of_the_authors_code(average):
    given = LONG | {"lr_decay": 0.6}
    compare(FedExPOfTheCode, methods("fedexp", epsilon=0.01, form="code", average=average), **given)
    etas = loop(FedExPOfTheCode, **given)[0].shared["eta"]
    assert etas[-1] > 1.01
    assert etas != loop(FedExP, **given)[0].shared["eta"]


def test_fedexp_is_evaluated_by_the_mean_of_the_last_two_models():
    made = simulate(methods("fedexp"), "loop", uneven(SIZES), **SETTING | LONG)
    assert made.engine.evaluation.deployed(made.run) == made.run.server
    made.play(1)
    found = made.engine.evaluation.deployed(made.run)
    torch.testing.assert_close(found, made.run.server, rtol=0, atol=0)
    made.play(2)
    plain, expected = loop(FedExP, **LONG)
    names = [name for name, _ in plain.model.named_parameters()]
    for name, before in zip(names, plain.shared["before"], strict=True):
        expected[name] = (expected[name] + before) / 2
    torch.testing.assert_close(made.engine.evaluation.deployed(made.run), expected, **CLOSE)
    alone = simulate(methods("fedexp", average=False), "loop", uneven(SIZES), **SETTING | LONG)
    run = alone.play(3)
    torch.testing.assert_close(run.server, made.run.server, rtol=0, atol=0)
    assert alone.engine.evaluation.deployed(run) == run.server


def test_fedexp_with_a_huge_epsilon_is_fedavg():
    is_fedavg(methods("fedexp", epsilon=1e9), rtol=1e-12, atol=1e-14)


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


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fedadam", {"tau": 0.0}),
        ("fedadam", {"form": "keras"}),
        ("fedyogi", {"beta2": 1.0}),
        ("fedadagrad", {"beta1": -0.1}),
        ("feddisco", {"a": -1.0}),
        ("feddisco", {"measure": "l1"}),
        ("elastic", {"tau": -1.0}),
        ("elastic", {"mu": 1.0}),
        ("elastic", {"of": "features"}),
        ("elastic", {"by": "layer"}),
        ("qfedavg", {"q": -1.0}),
        ("power_of_choice", {"d": 0}),
        ("power_of_choice_random", {"d": 0}),
        ("fedexp", {"epsilon": -1.0}),
        ("fedexp", {"form": "text"}),
    ],
)
def test_a_hyper_parameter_without_a_meaning_is_refused(name, wrong):
    with pytest.raises(UsageError, match=name):
        methods(name, **wrong)
