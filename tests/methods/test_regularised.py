"""Methods that change a client's loss or its steps, written a second time as plain loops."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from against import CLOSE, SETTING, SIZES, compare, engine, is_fedavg, loop
from conftest import methods, simulate, uneven
from fedgrid.checking.plain import PlainLoop
from fedgrid.runtime.names import UsageError


def names(model):
    """The names of a module's parameters."""
    return [name for name, _ in model.named_parameters()]


class Uniform(PlainLoop):
    def weights(self, clients, models):
        return torch.full((len(clients),), 1 / len(clients), dtype=torch.float64)


class FedDyn(Uniform):
    """Algorithm 1 of the paper: a gradient per client, and h on the server."""

    alpha, by_samples = 0.1, False

    def own_alpha(self, client):
        sizes = [len(ids) for ids in self.data.members]
        scale = sum(sizes) / len(sizes) / sizes[client] if self.by_samples else 1.0
        return self.alpha * scale

    def loss(self, client, model, x, y):
        alpha, kept = self.own_alpha(client), self.kept[client]
        found = super().loss(client, model, x, y)
        for i, (w, s) in enumerate(zip(model.parameters(), self.sent(), strict=True)):
            gradient = kept["gradient"][i] if kept else torch.zeros_like(s)
            found = found - (gradient * w).sum() + alpha / 2 * (w - s).square().sum()
        return found

    def aggregate(self, clients, models):
        sent = [s.clone() for s in self.sent()]
        h = self.shared.setdefault("h", [torch.zeros_like(s) for s in sent])
        for client, model in zip(clients, models, strict=True):
            alpha = self.own_alpha(client)
            own = self.kept[client].setdefault("gradient", [torch.zeros_like(s) for s in sent])
            for i, (w, s) in enumerate(zip(model.parameters(), sent, strict=True)):
                own[i] = own[i] - alpha * (w - s)
                h[i] = h[i] - (w - s) / len(self.data.members)
        super().aggregate(clients, models)
        for w, change in zip(self.model.parameters(), h, strict=True):
            w.sub_(change)


class FedDynBySamples(FedDyn):
    by_samples = True


def test_feddyn():
    compare(FedDyn, methods("feddyn", alpha=0.1))


def test_feddyn_weighs_a_client_by_its_samples_as_the_authors_code_does():
    compare(FedDynBySamples, methods("feddyn", alpha=0.1, by="samples"))


class FedDynLimited(FedDyn):
    def correct(self, client, model, x, y):
        """The authors' code limits the gradient before the optimiser adds alpha w as a decay."""
        alpha, params = self.own_alpha(client), [*model.parameters()]
        for p in params:
            p.grad = p.grad - alpha * p.detach()
        torch.nn.utils.clip_grad_norm_(params, 0.3)
        for p in params:
            p.grad = p.grad + alpha * p.detach()


def test_feddyn_limits_the_gradient_as_the_authors_code_does():
    compare(FedDynLimited, methods("feddyn", alpha=0.1, limit=0.3))
    usual, limited = (engine(methods("feddyn", alpha=0.1, limit=n)).server for n in (0.0, 0.3))
    assert (usual["head.weight"] - limited["head.weight"]).abs().max() > 1e-3


class FedLC(PlainLoop):
    tau, others = 0.5, False

    def counts(self, client):
        return self.data.counts[client]

    def loss(self, client, model, x, y):
        total, logits = 0.0, model(x)[1]
        for sample, label in zip(logits, y.tolist(), strict=True):
            counts = self.counts(client).double()
            pairs = zip(sample, counts, strict=True)
            moved = [f - self.tau * max(n, 1e-8) ** -0.25 for f, n in pairs]
            over = [g for c, g in enumerate(moved) if not (self.others and c == label)]
            total = total + torch.logsumexp(torch.stack(over), 0) - moved[label]
        return total / len(y)


class FedLCOfThePaper(FedLC):
    others = True


def test_fedlc():
    compare(FedLC, methods("fedlc", tau=0.5))


def test_fedlc_of_the_paper_leaves_the_true_class_out_of_the_sum():
    compare(FedLCOfThePaper, methods("fedlc", tau=0.5, others=True))


def test_fedlc_without_calibration_is_fedavg():
    is_fedavg(methods("fedlc", tau=0.0))
    is_fedavg(methods("fedlc_random", tau=0.0))
    is_fedavg(methods("fedrs_random", alpha=1.0))


class FedRS(PlainLoop):
    def counts(self, client):
        return self.data.counts[client]

    def factor(self, count: int, most: int) -> float:
        return 1.0 if count else 0.3

    def loss(self, client, model, x, y):
        counts = self.counts(client).tolist()
        factors = [self.factor(n, max(counts)) for n in counts]
        return F.cross_entropy(model(x)[1] * torch.tensor(factors, dtype=torch.float64), y)


class FedRSByCount(FedRS):
    def factor(self, count, most):
        return 0.3 + 0.7 * count / most


@pytest.mark.parametrize(("kind", "by"), [(FedRS, "presence"), (FedRSByCount, "count")])
def test_fedrs(kind, by):
    compare(kind, methods("fedrs", alpha=0.3, by=by))


def sent_counts(kind, method) -> list[dict]:
    """Hold a placebo against a plain loop with the counts that it sends; return these by client."""
    sent = []

    class Placebo(kind):
        def counts(self, client):
            return sent[self.round][client]

    def seen(cohort):
        given = method.send(cohort)
        counts = [next(iter(memory.values())) for memory in given]
        if len(sent) == cohort.round:
            sent.append(dict(zip(cohort.clients.tolist(), counts, strict=True)))
        return given

    found = engine(replace(method, send=seen)).server
    torch.testing.assert_close(found, loop(Placebo)[1], **CLOSE)
    return sent


@pytest.mark.parametrize(("kind", "by"), [(FedRS, "presence"), (FedRSByCount, "count")])
def test_the_placebo_of_fedrs_has_the_counts_of_another_client_of_the_round(kind, by):
    own = uneven(SIZES).counts
    for clients in sent_counts(kind, methods("fedrs_random", alpha=0.3, by=by)):
        assert sorted(map(tuple, (c.tolist() for c in clients.values()))) == sorted(
            tuple(own[k].tolist()) for k in clients
        )


def test_the_placebo_of_fedlc_has_a_clients_counts_for_other_classes():
    own, wrong = uneven(SIZES).counts, 0
    for clients in sent_counts(FedLC, methods("fedlc_random", tau=0.5)):
        for client, counts in clients.items():
            assert sorted(counts.tolist()) == sorted(own[client].tolist())
            wrong += not torch.equal(counts, own[client])
    assert wrong


class MoFedSAM(PlainLoop):
    rho, beta = 0.1, 0.3

    def correct(self, client, model, x, y):
        params = [*model.parameters()]
        norm = sum(p.grad.square().sum() for p in params).sqrt()
        with torch.no_grad():
            far = [self.rho * p.grad / (norm + 1e-12) for p in params]
            for p, e in zip(params, far, strict=True):
                p.add_(e)
                p.grad = None
        there = {n: b.clone() for n, b in model.named_buffers()}
        self.loss(client, model, x, y).backward()
        server = self.shared.get("gradient", [torch.zeros_like(p) for p in params])
        with torch.no_grad():
            for p, e, d in zip(params, far, server, strict=True):
                p.sub_(e)
                p.grad = self.beta * p.grad + (1 - self.beta) * d
            for name, buffer in model.named_buffers():
                buffer.copy_(there[name])

    def aggregate(self, clients, models):
        before = [s.clone() for s in self.sent()]
        super().aggregate(clients, models)
        rho, ways = self.protocol["momentum"], []
        for client in clients:  # of each step's gradient: with momentum it also moves later ones
            steps = len([*self.batches(client)])
            ways.append(sum((1 - rho ** (steps - s)) / (1 - rho) for s in range(steps)))
        way = sum(a * w for a, w in zip(self.weights(clients, models), ways, strict=True))
        pairs = zip(before, self.model.parameters(), strict=True)
        self.shared["gradient"] = [(s - w.detach()) / (way * self.rate()) for s, w in pairs]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_mofedsam(momentum):
    compare(MoFedSAM, methods("mofedsam", rho=0.1, beta=0.3), momentum=momentum)


def test_mofedsam_without_the_servers_momentum_is_fedsam():
    found, usual = engine(methods("mofedsam", beta=1.0)), engine(methods("fedsam", rho=0.1))
    torch.testing.assert_close(found.server, usual.server)
    is_fedavg(methods("mofedsam", rho=0.0, beta=1.0), rtol=1e-9, atol=1e-12)


class FedACG(PlainLoop):
    """With the paper's w and m; clients start from w + lambda m."""

    momentum, beta = 0.85, 0.05

    def ahead(self):
        m = self.shared.get("m", [torch.zeros_like(s) for s in self.sent()])
        return [w + self.momentum * v for w, v in zip(self.sent(), m, strict=True)]

    def begin(self, client):
        model = super().begin(client)
        with torch.no_grad():
            for p, s in zip(model.parameters(), self.ahead(), strict=True):
                p.copy_(s)
        return model

    def loss(self, client, model, x, y):
        pairs = zip(model.parameters(), self.ahead(), strict=True)
        away = sum((p - s).square().sum() for p, s in pairs)
        return super().loss(client, model, x, y) + self.beta / 2 * away

    def aggregate(self, clients, models):
        before, ahead = [s.clone() for s in self.sent()], self.ahead()
        m = self.shared.get("m", [torch.zeros_like(s) for s in before])
        super().aggregate(clients, models)  # of the running statistics
        means = [w.detach().clone() for w in self.model.parameters()]
        triples = zip(m, means, ahead, strict=True)
        self.shared["m"] = [self.momentum * v + mean - s for v, mean, s in triples]
        for w, s, v in zip(self.model.parameters(), before, self.shared["m"], strict=True):
            w.copy_(s + v)


def test_fedacg():
    method = methods("fedacg", momentum=0.85, beta=0.05)
    made = simulate(method, "loop", uneven(SIZES), **SETTING)
    made.play(3)
    plain, expected = loop(FedACG)
    torch.testing.assert_close(made.engine.evaluation.deployed(made.run), expected, **CLOSE)
    of_params = names(plain.model)
    ahead = dict(zip(of_params, plain.ahead(), strict=True))
    sent = {name: made.run.server[name] for name in of_params}
    torch.testing.assert_close(sent, ahead, **CLOSE)


def test_fedacg_without_momentum_and_penalty_is_fedavg():
    is_fedavg(methods("fedacg", momentum=0.0, beta=0.0))


class FedMLB(PlainLoop):
    """Two hybrid paths of a network of three blocks, with the formulas of the paper."""

    lam1, lam2, tau = 0.5, 0.8, 2.0

    def loss(self, client, model, x, y):
        sent = copy.deepcopy(self.model).eval()
        low = model.body[:5](x)
        high = model.body[5:](low)
        own, paths = model.head(high), [sent.head(sent.body[5:](low)), sent.head(high)]
        found = F.cross_entropy(own, y)
        for path in paths:
            q, p = (path / self.tau).softmax(1), (own / self.tau).softmax(1)
            found = found + self.lam1 * F.cross_entropy(path, y) / len(paths)
            found = found + self.lam2 * (q * (q / p).log()).sum(1).mean() / len(paths)
        return found


class CrossEntropyAlone(FedMLB):
    lam2 = 0.0


@pytest.mark.parametrize("kind", [FedMLB, CrossEntropyAlone])
def test_fedmlb(kind):
    found = engine(methods("fedmlb", lam1=kind.lam1, lam2=kind.lam2, tau=kind.tau)).server
    expected = loop(kind)[1]
    torch.testing.assert_close({n: found[n] for n in expected}, expected, **CLOSE)
    sent = {n.removeprefix("sent."): w for n, w in found.items() if n not in expected}
    assert {n for n in expected if not n.startswith("body.0.")} >= {*sent} > {"head.weight"}
    assert all(torch.equal(w, found[n]) for n, w in sent.items())
    assert not {w.data_ptr() for w in sent.values()} & {found[n].data_ptr() for n in sent}


def test_fedmlb_without_paths_is_fedavg():
    is_fedavg(methods("fedmlb", lam1=0.0, lam2=0.0))


class FedRSOfItsCode(PlainLoop):
    """FedRepo's local steps: the rule by counts, applied to its own factors again."""

    alpha = 0.3

    def train(self, client):
        self.factors = self.data.counts[client].double()
        return super().train(client)

    def loss(self, client, model, x, y):
        largest = self.factors / self.factors.max()
        self.factors = largest * (1 - self.alpha) + self.alpha
        return F.cross_entropy(self.factors * model(x)[1], y)


def test_fedrs_fades_as_in_the_authors_code():
    compare(FedRSOfItsCode, methods("fedrs", alpha=0.3, by="fading"))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fedrs", {"by": "size"}),
        ("fedrs_random", {"by": "size"}),
        ("fedmlb", {"lam1": -1.0}),
        ("fedmlb", {"tau": 0.0}),
        ("feddyn", {"alpha": 0.0}),
        ("feddyn", {"by": "size"}),
        ("feddyn", {"limit": -1.0}),
        ("fedlc", {"tau": -1.0}),
        ("fedlc_random", {"tau": -1.0}),
        ("mofedsam", {"beta": 0.0}),
        ("mofedsam", {"rho": -1.0}),
        ("fedacg", {"momentum": 1.0}),
        ("fedacg", {"beta": -1.0}),
    ],
)
def test_a_hyper_parameter_without_a_meaning_is_refused(name, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        methods(name, **wrong)
