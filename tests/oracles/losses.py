"""Methods that change a client's loss or its steps, as plain loops."""

import copy
import math

import torch
import torch.nn.functional as F

from oracles.base import Change, Plain, Uniform, at, flat, frozen, grads, put, put_grads, slope


class FedProx(Plain):
    def loss(self, client, model, x, y):
        away = flat(model) - self.w
        return super().loss(client, model, x, y) + self.p.mu / 2 * away @ away


# --- losses over classes -------------------------------------------------------------------------


class FedNTD(Plain):
    """The cross-entropy and beta tau^2 KL(target || student), sample by sample."""

    def student(self, client, label):
        """The classes over which the student's probabilities are."""
        return [c for c in range(3) if c != label]

    def kept_classes(self, client, label):
        """The classes over which the target's are."""
        return self.student(client, label)

    def target(self, client, label, teacher):
        classes = self.kept_classes(client, label)
        raised = [math.exp(float(teacher[c]) / self.p.tau) for c in classes]
        return {c: e / sum(raised) for c, e in zip(classes, raised, strict=True)}

    def loss(self, client, model, x, y):
        teachers, logits, far = frozen(self.model, x)[1], model(x)[1], 0.0
        for z, teacher, label in zip(logits, teachers, y.tolist(), strict=True):
            over = torch.logsumexp(z[self.student(client, label)] / self.p.tau, 0)
            for c, q in self.target(client, label, teacher).items():
                far = far + q * (math.log(q) - z[c] / self.p.tau + over)
        return F.cross_entropy(logits, y) + self.p.beta * self.p.tau**2 * far / len(y)


class FedAvgKD(FedNTD):
    def student(self, client, label):
        return [0, 1, 2]


class FedNTDWithoutTeacher(FedNTD):
    def target(self, client, label, teacher):
        return {c: 1 / 2 for c in range(3) if c != label}


class FedLMD(FedNTD):
    def minority(self, client):
        counts = self.data.counts[client].tolist()
        return [c for c in range(3) if counts[c] <= sum(counts) / 3]

    def kept_classes(self, client, label):
        return [c for c in self.minority(client) if c != label]


class FedLMDWithoutTeacher(FedLMD):
    def target(self, client, label, teacher):
        kept = self.kept_classes(client, label)
        number = len(kept if self.p.exact else self.minority(client))
        return dict.fromkeys(kept, 1 / max(1, number))


class Smoothed(Plain):
    def loss(self, client, model, x, y):
        return F.cross_entropy(model(x)[1], y, label_smoothing=self.p.mu)


class FedLC(Plain):
    def counts(self, client):
        return self.data.counts[client]

    def loss(self, client, model, x, y):
        margin = self.p.tau * self.counts(client).double().clamp(min=1e-8) ** -0.25
        moved = model(x)[1] - margin
        true = F.one_hot(y, 3).bool()
        over = moved.masked_fill(true, -torch.inf) if self.p.others else moved
        return (torch.logsumexp(over, 1) - moved[true]).mean()


class FedRS(Plain):
    """By `fading`, the rule by counts is applied to its own factors again in each step."""

    def counts(self, client):
        return self.data.counts[client]

    def train(self, client):
        self.factors = self.counts(client).double()
        return super().train(client)

    def loss(self, client, model, x, y):
        present = self.p.by == "presence"
        share = self.factors.sign() if present else self.factors / self.factors.max()
        scale = self.p.alpha + (1 - self.p.alpha) * share
        self.factors = scale if self.p.by == "fading" else self.factors
        return F.cross_entropy(scale * model(x)[1], y)


# --- features ------------------------------------------------------------------------------------


class FedDecorr(Plain):
    def loss(self, client, model, x, y):
        features, logits = model(x)
        n, dims = features.shape
        z = features - features.mean(0)
        z = z / (1e-8 + z.square().sum(0) / max(n - 1, 1)).sqrt()
        squares = (z.T @ z).square()
        others = squares.sum() - squares.diag().sum()
        return F.cross_entropy(logits, y) + self.p.beta * others / (n * dims * (dims - 1))


class Moon(Plain):
    def loss(self, client, model, x, y):
        features, logits = model(x)
        previous = self.kept[client].get("previous", self.make(7))
        goals = [frozen(one, x)[0] for one in (self.model, previous)]
        near, far = (F.cosine_similarity(features, goal) / self.p.tau for goal in goals)
        away = torch.logsumexp(torch.stack([near, far]), 0) - near
        return F.cross_entropy(logits, y) + self.p.mu * away.mean()

    def remember(self, client, model, optimiser):
        self.kept[client]["previous"] = copy.deepcopy(model)


class FedMLB(Plain):
    """Two hybrid paths of a network of three blocks."""

    def loss(self, client, model, x, y):
        sent = copy.deepcopy(self.model).eval()
        low = model.body[:5](x)
        high = model.body[5:](low)
        own, found = model.head(high), 0.0
        p = (own / self.p.tau).softmax(1)
        for path in (sent.head(sent.body[5:](low)), sent.head(high)):
            q = (path / self.p.tau).softmax(1)
            far = (q * (q / p).log()).sum(1).mean()
            found = found + self.p.lam1 * F.cross_entropy(path, y) + self.p.lam2 * far
        return F.cross_entropy(own, y) + found / 2


class FedGKD(Plain):
    """The teacher has the mean of earlier parameters, and the present running statistics."""

    def loss(self, client, model, x, y):
        logits, last = model(x)[1], self.shared.get("models", [])[-self.p.models :]
        loss = F.cross_entropy(logits, y)
        if not last:
            return loss
        teacher, tau = at(self.model, sum(last) / len(last)), self.p.tau
        goal, student = (frozen(teacher, x)[1] / tau).softmax(1), (logits / tau).log_softmax(1)
        return loss + self.p.beta * tau**2 * F.kl_div(student, goal, reduction="batchmean")

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        self.shared.setdefault("models", []).append(self.w)


# --- state of clients and of the server ----------------------------------------------------------


class FedCurv(Plain):
    """Each client's u and u w are the latest that it sent; it misses its own."""

    def loss(self, client, model, x, y):
        loss, w = super().loss(client, model, x, y), flat(model)
        for other, kept in enumerate(self.kept):
            if other != client and kept:
                loss = loss + self.p.penalty * (kept["u"] @ w**2 - 2 * kept["uw"] @ w)
        return loss

    def remember(self, client, model, optimiser):
        squares = [slope(model, x, y, training=False) ** 2 for x, y in self.epoch(client)]
        self.shared[client] = sum(squares) / len(squares)

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        for client, model in zip(clients, models, strict=True):
            u = self.shared.pop(client)
            self.kept[client] = {"u": u, "uw": u * flat(model).detach()}


class FedDyn(Change, Uniform):
    """Algorithm 1 of the paper: a gradient g per client, and h on the server.

    The authors' code gives alpha by samples, and limits the gradient before the optimiser adds
    alpha w to it as a decay.
    """

    def alpha(self, client):
        sizes = [len(ids) for ids in self.data.members]
        mean = sum(sizes) / len(sizes)
        return self.p.alpha * (mean / sizes[client] if self.p.by == "samples" else 1.0)

    def loss(self, client, model, x, y):
        w, g = flat(model), self.kept[client].get("g", torch.zeros_like(self.w))
        away = (w - self.w) @ (w - self.w)
        return super().loss(client, model, x, y) - g @ w + self.alpha(client) / 2 * away

    def correct(self, client, model, x, y):
        if self.p.limit:
            decay = self.alpha(client) * flat(model).detach()
            g = grads(model) - decay
            put_grads(model, g * min(1.0, self.p.limit / float(g.norm() + 1e-6)) + decay)

    def step(self, d, clients):
        for client, own in zip(clients, self.each, strict=True):
            kept = self.kept[client]
            kept["g"] = kept.get("g", 0.0) - self.alpha(client) * own
            self.shared["h"] = self.shared.get("h", 0.0) - own / len(self.data.members)
        return d - self.shared["h"]


class FedSAM(Change):
    beta = 1.0

    def correct(self, client, model, x, y):
        g = grads(model)
        there = at(model, flat(model) + self.p.rho * g / (g.norm() + 1e-12))
        mixed = self.shared.get("gradient", torch.zeros_like(g))
        put_grads(model, self.beta * slope(there, x, y) + (1 - self.beta) * mixed)


class MoFedSAM(FedSAM):
    """Each step's gradient also moves later steps where there is momentum."""

    @property
    def beta(self):
        return self.p.beta

    def step(self, d, clients):
        ways = torch.tensor([self.way(k) for k in clients], dtype=torch.float64)
        self.shared["gradient"] = -d / (self.weights(clients, []) @ ways * self.rate())
        return d


class FedACG(Change):
    """With the paper's w and m; clients start from w + lambda m."""

    def served(self):
        return self.w + self.p.momentum * self.shared.get("m", torch.zeros_like(self.w))

    def deployed(self):
        return self.w

    def begin(self, client):
        return put(super().begin(client), self.served())

    def loss(self, client, model, x, y):
        away = flat(model) - self.served()
        return super().loss(client, model, x, y) + self.p.beta / 2 * away @ away

    def step(self, d, clients):
        rolled = self.p.momentum * self.shared.get("m", torch.zeros_like(d))
        self.shared["m"] = rolled + (d - rolled)  # d - lambda m is the mean change of clients
        return self.shared["m"]


class Scaffold(Change):
    def variates(self, client):
        zero = torch.zeros_like(self.w)
        return self.kept[client].get("c", zero), self.shared.get("c", zero)

    def correct(self, client, model, x, y):
        own, everybody = self.variates(client)
        put_grads(model, grads(model) - own + everybody)

    def step(self, d, clients):
        new, _, everybody = {}, *self.variates(clients[0])
        for client, change in zip(clients, self.each, strict=True):
            own = self.variates(client)[0]
            new[client] = own - everybody - change / (self.way(client) * self.rate())
        moved = sum(c - self.variates(client)[0] for client, c in new.items())
        self.shared["c"] = everybody + moved / len(self.kept)
        for client, c in new.items():
            self.kept[client]["c"] = c
        return d


class SGDM(Plain):
    """The momentum of optimisers is averaged, too."""

    def optimiser(self, client, model):
        made = super().optimiser(client, model)
        for p, buffer in zip(model.parameters(), self.shared.get("buffers", ()), strict=False):
            made.state[p]["momentum_buffer"] = buffer.clone()
        return made

    def remember(self, client, model, optimiser):
        states = [optimiser.state[p] for p in model.parameters()]
        self.kept[client]["buffers"] = [state["momentum_buffer"] for state in states]

    def aggregate(self, clients, models):
        weights = self.weights(clients, models)
        each = zip(*(self.kept[k]["buffers"] for k in clients), strict=True)
        self.shared["buffers"] = [
            sum(a * b for a, b in zip(weights, buffers, strict=True)) for buffers in each
        ]
        super().aggregate(clients, models)
