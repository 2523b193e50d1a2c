"""Methods of the server and of its choice of clients, as plain loops."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from fedgrid.federation import schedule, seeds
from oracles.base import Change, Plain, Uniform, flat, frozen, put


def doubles(values):
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


class FedAvgM(Change):
    def step(self, d, clients):
        scale = 1 - self.p.beta if self.p.damped else 1.0
        self.shared["m"] = self.p.beta * self.shared.get("m", 0.0) + scale * d
        return self.shared["m"]


class ServerRate(Change):
    def step(self, d, clients):
        return self.p.lr * d


class FedAdam(Change):
    """In the form of the code, v begins with 0 and both moments are corrected."""

    def second(self, v, d):
        return self.p.beta2 * v + (1 - self.p.beta2) * d**2

    def step(self, d, clients):
        code, beta1, turn = getattr(self.p, "form", "") == "code", self.p.beta1, self.round + 1
        m = self.shared.get("m", torch.zeros_like(d))
        v = self.shared.get("v", torch.full_like(d, 0.0 if code else self.p.tau**2))
        self.shared = {"m": beta1 * m + (1 - beta1) * d, "v": self.second(v, d)}
        bias = (1 - self.p.beta2**turn) ** 0.5 / (1 - beta1**turn) if code else 1.0
        return self.p.lr * bias * self.shared["m"] / (self.shared["v"].sqrt() + self.p.tau)


class FedYogi(FedAdam):
    def second(self, v, d):
        return v - (1 - self.p.beta2) * d**2 * torch.sign(v - d**2)


class FedAdagrad(FedAdam):
    def second(self, v, d):
        return v + d**2


class FedNova(Plain):
    """A client's change is divided by its steps, and all by their weighted mean."""

    def aggregate(self, clients, models):
        before, weights = self.w, self.weights(clients, models)
        ways = doubles(map(self.way, clients))
        factors = weights * (weights @ ways) / ways
        self.average(models, factors / factors.sum())
        put(self.model, before + factors.sum() * (self.w - before))


class FedAU(Change):
    """The weights are no shares, and statistics are averaged with them as shares."""

    def factors(self, clients):
        ended = self.shared.setdefault("ended", {})
        means = [sum(ended[k]) / len(ended[k]) if k in ended else 1.0 for k in clients]
        return doubles(means) / len(self.kept)

    def weights(self, clients, models):
        factors = self.factors(clients)
        return factors / factors.sum()

    def step(self, d, clients):
        found, wait = self.factors(clients).sum() * d, self.shared.setdefault("wait", {})
        for k in range(len(self.kept)):
            wait[k] = wait.get(k, 0) + 1
            if k in clients or wait[k] >= self.p.cutoff:
                self.shared["ended"].setdefault(k, []).append(wait.pop(k))
        return found


class FedDisco(Plain):
    def discrepancy(self, client):
        counts = self.data.counts[client].tolist()
        shares = [n / sum(counts) for n in counts]
        if self.p.measure == "l2":
            return math.dist(shares, [1 / len(shares)] * len(shares))
        return sum(q * math.log(q * len(shares)) for q in shares if q)

    def weights(self, clients, models):
        far = doubles(map(self.discrepancy, clients))
        far = far / far.sum() if self.p.measure == "kl" else far
        new = (super().weights(clients, models) - self.p.a * far + self.p.b).clamp(min=0)
        return new / new.sum()


class Elastic(Change):
    def sensitivity(self, client):
        found = 0.0
        params = [*self.model.parameters()]
        for x, y in self.epoch(client):
            with torch.enable_grad():
                logits = self.model.eval()(x)[1]
                by_output = self.p.of == "output"
                loss = (logits**2).sum() / len(y) if by_output else F.cross_entropy(logits, y)
                squares = [g**2 for g in torch.autograd.grad(loss, params)]
            if self.p.by == "tensor":
                squares = [torch.full_like(s, float(s.sum())) for s in squares]
            square = torch.cat([s.flatten() for s in squares])
            found = self.p.mu * found + (1 - self.p.mu) * square
        return found

    def aggregate(self, clients, models):
        self.told = torch.stack([self.sensitivity(client) for client in clients])
        super().aggregate(clients, models)

    def step(self, d, clients):
        most = self.told.amax(0)
        mean = self.weights(clients, []) @ self.told
        return (1 + self.p.tau - torch.where(most > 0, mean / most, 1.0)) * d


class QFedAvg(Change):
    def weights(self, clients, models):
        raised = self.losses(clients) ** self.p.q
        return raised / raised.sum()

    def losses(self, clients):
        return self.shared["losses"]

    def aggregate(self, clients, models):
        self.shared["losses"] = doubles(map(self.mean_loss, clients)) + 1e-10
        super().aggregate(clients, models)

    def step(self, d, clients):
        losses, q, lipschitz = self.losses(clients), self.p.q, 1 / self.rate()
        gradients = -lipschitz * self.each
        norms = gradients.square().sum(1)
        h = q * losses ** (q - 1) * norms + lipschitz * losses**q
        return -(losses**q @ gradients) / h.sum()


class PowerOfChoice(Uniform):
    """Of d candidates, drawn in proportion to samples, those with the largest losses."""

    d = 5

    def cohort(self):
        known = self.shared.setdefault("cohorts", [])
        if len(known) == self.round:
            noise = seeds.seed("choice", *self.data.names, self.round)
            drawn = torch.Generator().manual_seed(noise)
            sizes = doubles(map(len, self.data.members))
            candidates = torch.multinomial(sizes, self.d, generator=drawn).tolist()
            known.append(sorted(self.choose(candidates)[: len(super().cohort())]))
        return known[self.round]

    def choose(self, candidates):
        return sorted(candidates, key=self.mean_loss, reverse=True)


class ChoiceByLot(PowerOfChoice):
    def choose(self, candidates):
        return candidates


class FedExP(Change):
    """In the form of the code, epsilon is of each client and falls with the rate."""

    def step(self, d, clients):
        fallen = (self.rate() / self.protocol["lr"]) ** 2
        added = self.p.epsilon * (len(clients) * fallen if self.p.form == "code" else 1.0)
        mean = self.weights(clients, []) @ self.each.square().sum(1)
        eta = max(1.0, float(mean / (2 * (d @ d + added))))
        self.shared.setdefault("eta", []).append(eta)
        self.shared["before"] = flat(self.model).detach() - d
        return eta * d

    def deployed(self):
        return (self.w + self.shared["before"]) / 2 if self.p.average else self.w


# --- robust and private --------------------------------------------------------------------------


class Median(Change):
    def step(self, d, clients):
        ordered, n = self.each.sort(0).values, len(clients)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


class TrimmedMean(Change):
    def step(self, d, clients):
        number = int(self.p.share * len(clients))
        return self.each.sort(0).values[number : len(clients) - number].mean(0)


class MultiKrum(Change):
    number = 0

    def weights(self, clients, models):
        n, f = len(clients), int(self.p.share * len(clients))
        away = torch.cdist(self.each, self.each, compute_mode="donot_use_mm_for_euclid_dist")
        scores = (away**2).sort(1).values[:, 1 : n - f - 1].sum(1)
        best = scores.argsort(stable=True)[: self.number or n - f]
        return torch.zeros(n, dtype=torch.float64).index_fill(0, best, 1 / len(best))


class MultiKrumOfThree(MultiKrum):
    number = 3


class Krum(MultiKrum):
    number = 1


class OfTheFirst(Plain):
    def weights(self, clients, models):
        return doubles([1] + [0] * (len(clients) - 1))


class GeometricMedian(Change):
    """The iterations end when the sum of distances hardly falls."""

    def distances(self, weights):
        centre = weights @ self.each
        return (self.each - centre).norm(dim=1)

    def weights(self, clients, models):
        found = usual = super().weights(clients, models)
        sums = [float(usual @ self.distances(usual))]
        for number in range(self.p.iterations):
            found = usual / self.distances(found).clamp(min=self.p.nu)
            found = found / found.sum()
            sums.append(float(usual @ self.distances(found)))
            if abs(sums[-2] - sums[-1]) < self.p.tolerance * sums[-1]:
                self.shared.setdefault("ends", []).append(number + 1)
                break
        return found


class DPFedAvg(Change):
    def cut(self):
        return (self.p.norm / self.each.norm(dim=1)).clamp(max=1.0)

    def weights(self, clients, models):
        return self.cut() / self.cut().sum()

    def step(self, d, clients):
        names = (*self.data.names, self.round)
        seed = schedule.work(np.array(clients), self.data.members, self.protocol, *names).noise
        drawn, noise = torch.Generator().manual_seed(seed), {}
        named = dict(self.model.named_parameters())
        for name in sorted(named):
            noise[name] = torch.randn(named[name].shape, generator=drawn, dtype=torch.float64)
        flat_noise = torch.cat([noise[name].flatten() for name in named])
        sent = self.cut() @ self.each
        return (sent - self.p.noise_multiplier * self.p.norm * flat_noise) / len(clients)


# --- more training on the server -----------------------------------------------------------------


class FedDF(Plain):
    """After averaging, Adam on the server's images."""

    def positions(self):
        members, names = self.data.members, (*self.data.names, self.round)
        noise = schedule.work(np.array(self.cohort()), members, self.protocol, *names).noise
        drawn, found = torch.Generator().manual_seed(noise), []
        while len(found) < self.p.steps:
            found += torch.randperm(len(self.data.server), generator=drawn).split(self.p.batch)
        return found[: self.p.steps]

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        student, params = self.model.eval(), [*self.model.parameters()]
        adam = torch.optim.Adam(params)
        for number, positions in enumerate(self.positions()):
            x = self.inputs(self.data.server[positions])
            teachers = torch.stack([frozen(model, x)[1] for model in models])
            if self.p.average == "logits":
                teachers = teachers.mean(0, keepdim=True)
            with torch.enable_grad():
                far = teachers.log_softmax(2) - student(x)[1].log_softmax(1)
                adam.zero_grad()
                (teachers.softmax(2) * far).sum(2).mean().backward()
            torch.nn.utils.clip_grad_norm_(params, 5.0)
            turn = 1 + math.cos(math.pi * number / self.p.steps)
            adam.param_groups[0]["lr"] = self.p.lr * turn / 2
            adam.step()
        student.train()


class Normalised(Plain):
    """Client contribution normalisation, before the loop that has a method's equations."""

    distance, temperature = 0.0, 0.3

    def weights(self, clients, models):
        weights = super().weights(clients, models)
        pairs = zip(clients, models, strict=True)
        means = torch.stack([frozen(m, self.samples(k)[0])[0].mean(0) for k, m in pairs])
        cosines = F.cosine_similarity(means[:, None], means[None], dim=2)
        new = (1 - (cosines.sum(1) / self.temperature).softmax(0)) * weights
        self.distance = float((new / new.sum() - weights).abs().sum()) / 2
        return new / new.sum()


class CCVR(Plain):
    """The classifier is trained on features drawn with the means and covariances of clients."""

    def labelled(self, y, logits, noise):
        return y

    def features(self, noise):
        """Features (n, D) and labels, `samples` for each class with a covariance."""
        told, found, classes = [], [], self.data.counts.shape[1]
        for client in range(len(self.data.members)):
            x, y = self.samples(client)
            z, logits = frozen(self.model, x)
            told.append((z, self.labelled(y, logits, noise)))
        noise.manual_seed(noise.initial_seed())
        for c in range(classes):
            parts = [z[y == c] for z, y in told if (y == c).any()]
            number = sum(map(len, parts))
            if number < 2:
                continue
            mean = sum(len(z) / number * z.mean(0) for z in parts)
            spread = -number / (number - 1) * torch.outer(mean, mean)
            for z in parts:
                if len(z) > 1:
                    spread += (len(z) - 1) / (number - 1) * torch.cov(z.T)
                spread += len(z) / (number - 1) * torch.outer(z.mean(0), z.mean(0))
            values, vectors = torch.linalg.eigh(spread)
            size = self.p.samples, len(mean)
            normal = torch.randn(size, generator=noise, dtype=torch.float64)
            found.append((c, mean + normal @ (vectors * values.clamp(min=0).sqrt()).T))
        labels = torch.tensor([c for c, z in found for _ in z])
        return torch.cat([z for _, z in found]), labels

    def deployed(self):
        noise = torch.Generator().manual_seed(seeds.seed("server", *self.data.names, self.round))
        z, y = self.features(noise)
        head = self.model.head
        w, b, m_w, m_b = head.weight.detach().clone(), head.bias.detach().clone(), 0.0, 0.0
        for _ in range(self.p.epochs):
            order = torch.randperm(len(y), generator=noise)
            for which in order.split(self.p.batch):
                wrong = (z[which] @ w.T + b).softmax(1) - F.one_hot(y[which], len(b))
                m_w = self.p.momentum * m_w + wrong.T @ z[which] / len(which)
                m_b = self.p.momentum * m_b + wrong.mean(0)
                w, b = w - self.p.lr * m_w, b - self.p.lr * m_b
        body = self.w[: -w.numel() - b.numel()]
        return torch.cat([body, w.flatten(), b])


class CCVRPredicted(CCVR):
    def labelled(self, y, logits, noise):
        return logits.argmax(1)


class CCVRRandom(CCVR):
    def labelled(self, y, logits, noise):
        return y.sort().values[torch.randperm(len(y), generator=noise)]
