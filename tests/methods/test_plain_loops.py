"""Methods of the first studies as plain loops over several rounds; others are beside their rules.

Their equations are held piece by piece in `test_methods.py`, `test_distillation.py` and
`test_variates.py`. Here the whole method is written once more, with loops over samples and classes.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from against import compare
from conftest import methods
from fedgrid.checking.plain import PlainLoop


class FedAvgM(PlainLoop):
    beta, scale = 0.7, 1.0

    def aggregate(self, clients, models):
        before = copy.deepcopy(self.sent())
        super().aggregate(clients, models)
        rolling = self.shared.setdefault("m", [torch.zeros_like(w) for w in before])
        for k, (old, new) in enumerate(zip(before, self.model.parameters(), strict=True)):
            rolling[k] = self.beta * rolling[k] + self.scale * (old - new)
            new.copy_(old - rolling[k])


class FedAvgMDamped(FedAvgM):
    scale = 1 - FedAvgM.beta


def test_fedavgm():
    compare(FedAvgM, methods("fedavgm", beta=0.7), rounds=4)
    compare(FedAvgMDamped, methods("fedavgm", beta=0.7, damped=True), rounds=4)


# --- losses over classes -------------------------------------------------------------------------


class Distilled(PlainLoop):
    """The cross-entropy and beta tau^2 KL(target || student), sample by sample."""

    beta, tau, has_teacher = 0.7, 2.0, True

    def student_has(self, client: int, label: int) -> list[int]:
        return [c for c in range(3) if c != label]

    def target_has(self, client: int, label: int) -> list[int]:
        return self.student_has(client, label)

    def minority(self, client: int) -> list[int]:
        counts = self.data.counts[client].tolist()
        return [c for c in range(3) if counts[c] <= sum(counts) / 3]

    def target(self, client, label, teacher):
        classes = self.target_has(client, label)
        raised = [math.exp(float(teacher[c]) / self.tau) for c in classes]
        return {c: e / sum(raised) for c, e in zip(classes, raised, strict=True)}

    def loss(self, client, model, x, y):
        with torch.no_grad():
            teacher = copy.deepcopy(self.model).eval()(x)[1]
        logits, far = model(x)[1], 0.0
        for z, t, label in zip(logits, teacher, y.tolist(), strict=True):
            over = torch.logsumexp(z[self.student_has(client, label)] / self.tau, 0)
            for c, p in self.target(client, label, t).items():
                far = far + (p * (math.log(p) - (z[c] / self.tau - over)) if p else 0.0)
        return F.cross_entropy(logits, y) + self.beta * self.tau**2 * far / len(y)


class FedAvgKD(Distilled):
    def student_has(self, client, label):
        return [0, 1, 2]


class FedLMD(Distilled):
    def target_has(self, client, label):
        return [c for c in self.minority(client) if c != label]


class FedNTDWithoutTeacher(Distilled):
    def target(self, client, label, teacher):
        return {c: 1 / 2 for c in range(3) if c != label}


class FedLMDWithoutTeacher(FedLMD):
    def target(self, client, label, teacher):
        number = len(self.minority(client))
        return dict.fromkeys(self.target_has(client, label), 1 / number)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (FedAvgKD, "fedavg_kd"),
        (Distilled, "fedntd"),
        (FedNTDWithoutTeacher, "fedntd_tf"),
        (FedLMD, "fedlmd"),
        (FedLMDWithoutTeacher, "fedlmd_tf"),
    ],
)
def test_distillation(kind, name):
    compare(kind, methods(name, beta=0.7, tau=2.0))


class Smoothed(PlainLoop):
    def loss(self, client, model, x, y):
        return F.cross_entropy(model(x)[1], y, label_smoothing=0.2)


def test_label_smoothing():
    compare(Smoothed, methods("fedavg_ls", mu=0.2))


# --- features ------------------------------------------------------------------------------------


class FedDecorr(PlainLoop):
    def loss(self, client, model, x, y):
        features, logits = model(x)
        n = len(features)
        columns = [f - f.mean() for f in features.T]
        columns = [f / (1e-8 + f.square().sum() / max(n - 1, 1)).sqrt() for f in columns]
        pairs = [(a, b) for i, a in enumerate(columns) for j, b in enumerate(columns) if i != j]
        squares = sum((a @ b) ** 2 for a, b in pairs)
        return F.cross_entropy(logits, y) + 0.3 * squares / (n * len(pairs))


def test_feddecorr():
    compare(FedDecorr, methods("feddecorr", beta=0.3))


class Moon(PlainLoop):
    def loss(self, client, model, x, y):
        features, logits = model(x)
        previous = self.kept[client].get("previous", self.first)
        with torch.no_grad():
            near, far = (copy.deepcopy(one).eval()(x)[0] for one in (self.model, previous))
        away = 0.0
        for z, a, b in zip(features, near, far, strict=True):
            similar = [(z @ w) / (z.norm() * w.norm()) / 0.5 for w in (a, b)]
            away = away - (similar[0] - torch.logsumexp(torch.stack(similar), 0))
        return F.cross_entropy(logits, y) + 2.0 * away / len(y)

    def remember(self, client, model, optimiser):
        self.kept[client]["previous"] = copy.deepcopy(model)

    def play(self, rounds):
        self.first = copy.deepcopy(self.model)
        return super().play(rounds)


def test_moon():
    compare(Moon, methods("moon", mu=2.0, tau=0.5, projection=0), rounds=4)


# --- state of the server -------------------------------------------------------------------------


class FedAU(PlainLoop):
    """The weights are no shares, and statistics are averaged with them as shares."""

    cutoff = 2

    def aggregate(self, clients, models):
        wait, ended = (self.shared.setdefault(name, {}) for name in ("wait", "ended"))
        everybody = range(len(self.kept))
        mean = {k: sum(found) / len(found) for k, found in ended.items() if found}
        factors = torch.tensor([mean.get(k, 1.0) for k in clients], dtype=torch.float64)
        factors = factors / len(everybody)
        before = copy.deepcopy(self.sent())
        self.average(models, factors / factors.sum())
        for k, (old, new) in enumerate(zip(before, self.model.parameters(), strict=True)):
            theirs = [[*model.parameters()][k] for model in models]
            new.copy_(old - sum(a * (old - w) for a, w in zip(factors, theirs, strict=True)))
        for k in everybody:
            wait[k] = wait.get(k, 0) + 1
            if k in clients or wait[k] >= self.cutoff:
                ended.setdefault(k, []).append(wait[k])
                wait[k] = 0


def test_fedau():
    compare(FedAU, methods("fedau", cutoff=2), rounds=6)


class FedCurv(PlainLoop):
    """Each client's u and u w are the latest that it sent; it misses its own."""

    def loss(self, client, model, x, y):
        loss = super().loss(client, model, x, y)
        for k, w in enumerate(model.parameters()):
            for other, kept in enumerate(self.kept):
                if other != client and "u" in kept:
                    u, away = kept["u"][k], kept["uw"][k]
                    loss = loss + 0.2 * ((u * w**2).sum() - 2 * (away * w).sum())
        return loss

    def remember(self, client, model, optimiser):
        network, sums, batches = copy.deepcopy(model).eval(), None, 0
        for x, y in self.epoch(client):
            of = torch.autograd.grad(F.cross_entropy(network(x)[1], y), [*network.parameters()])
            sums = [s + g**2 for s, g in zip(sums or [0] * len(of), of, strict=True)]
            batches += 1
        self.shared.setdefault("sent", {})[client] = [s / batches for s in sums], model

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        for client, (u, model) in self.shared.pop("sent").items():
            away = [a * w.detach() for a, w in zip(u, model.parameters(), strict=True)]
            self.kept[client] |= {"u": u, "uw": away}


def test_fedcurv():
    compare(FedCurv, methods("fedcurv", penalty=0.2, size=0), rounds=4)
