"""Methods whose clients have models of their own, as plain loops.

`own(client)` are entries of the model by which a client is evaluated, by the engine's names.
"""

import copy
import itertools
import math

import torch
import torch.nn.functional as F
from torch.func import functional_call

from oracles.base import Plain, Uniform, at, flat, frozen, of_part, put, put_grads, slope

# --- which entries are private -------------------------------------------------------------------


class Keeping(Plain):
    """Clients keep entries of the model, by the beginnings of their names, between their rounds."""

    private: tuple[str, ...] = ()

    def kept_model(self, client):
        first = self.picked(self.make(7))
        return self.model.state_dict() | first | self.kept[client].get("private", {})

    def own(self, client):
        return self.kept_model(client)

    def picked(self, model):
        state = model.state_dict().items()
        return {n: w.clone() for n, w in state if n.startswith(self.private)}

    def begin(self, client):
        model = super().begin(client)
        model.load_state_dict(self.kept_model(client), strict=False)
        return model

    def train(self, client):
        model = super().train(client)
        self.kept[client]["private"] = self.picked(model)
        return model


class FedBN(Keeping):
    private = ("body.1.", "body.6.")


class LGFedAvg(Keeping):
    private = ("body.",)


class FedPer(Keeping):
    private = ("head.",)


class Local(Keeping):
    private = ("",)


class FedBABU(Uniform):
    def begin(self, client):
        model = super().begin(client)
        model.head.requires_grad_(False)
        return model


class FedRep(FedPer):
    """While the body is trained, the classifier rests, or gets gradients of zero."""

    def train(self, client):
        self.trained, self.all = 0, len([*self.batches(client)])
        return super().train(client)

    def correct(self, client, model, x, y):
        first = self.trained < self.all / 2
        for p in model.body.parameters():
            p.grad = None if first else p.grad
        for p in model.head.parameters():
            p.grad = p.grad if first else None if self.p.rest else torch.zeros_like(p)
        self.trained += 1


class FineTuned(Plain):
    def before(self, client):
        return self.model.state_dict()

    def own(self, client):
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.before(client), strict=False)
        moves = of_part(model, {"all": "", "head": "head."}[self.p.part])
        for x, y in [*self.epoch(client)] * self.p.epochs:
            put(model, flat(model) - moves * (self.rate() * slope(model, x, y)))
        return model.state_dict()


class FedPerTuned(FineTuned, FedPer):
    def before(self, client):
        return self.kept_model(client)


# --- a second model ------------------------------------------------------------------------------


class Beside(Plain):
    """Clients have a second module, which begins as `first` gives it."""

    def first(self):
        return self.make(7)

    def second(self, client):
        return self.kept[client].get("second", self.first())

    def own(self, client):
        return {f"private.{n}": w for n, w in self.second(client).state_dict().items()}

    def train(self, client):
        model, second = self.begin(client), copy.deepcopy(self.second(client)).train()
        both = [self.optimiser(client, part) for part in (model, second)]
        for x, y in self.batches(client):
            for optimiser in both:
                optimiser.zero_grad()
            own = self.second_loss(client, model, second, x, y)
            (own + self.loss(client, model, x, y)).backward()
            for optimiser in both:
                optimiser.step()
        self.kept[client]["second"] = second
        return model


class Ditto(Beside):
    def second_loss(self, client, model, second, x, y):
        away = flat(second) - self.w
        return F.cross_entropy(second(x)[1], y) + self.p.lam / 2 * away @ away


class FedRoD(Beside):
    def first(self):
        return self.make(7).head

    def loss(self, client, model, x, y):
        exp = self.data.counts[client].double() * model(x)[1].exp()
        return -(exp.gather(1, y[:, None])[:, 0] / exp.sum(1)).log().mean()

    def second_loss(self, client, model, second, x, y):
        features, logits = copy.deepcopy(model)(x)
        return F.cross_entropy(logits.detach() + second(features.detach()), y)


def mixed(alpha, model, second):
    """Parameters by name, of which those of `second` have the weight alpha."""
    pairs = zip(second.named_parameters(), model.parameters(), strict=True)
    return {n: alpha * v + (1 - alpha) * w.detach() for (n, v), w in pairs}


class APFL(Beside):
    """An adaptive weight is changed in the first step of each round, and cut where it is used."""

    def alpha(self, client):
        first = torch.tensor(self.p.alpha, dtype=torch.float64)
        return self.kept[client].get("alpha", first).clamp(0, 1)

    def own(self, client):
        return super().own(client) | ({"alpha": self.alpha(client)} if self.p.adaptive else {})

    def train(self, client):
        self.number = 0
        return super().train(client)

    def second_loss(self, client, model, second, x, y):
        alpha = self.alpha(client).requires_grad_()
        if self.p.mix == "outputs":
            theirs = copy.deepcopy(model)(x)[1].detach()
            logits = alpha * second(x)[1] + (1 - alpha) * theirs
        else:
            logits = functional_call(second, mixed(alpha, model, second), (x,))[1]
        loss = F.cross_entropy(logits, y)
        if self.p.adaptive and self.number == 0:
            (g,) = torch.autograd.grad(loss, alpha, retain_graph=True)
            decayed = g + self.protocol["weight_decay"] * alpha.detach()
            self.kept[client]["alpha"] = alpha.detach() - self.rate() * decayed
        self.number += 1
        return loss


class InTurn(APFL):
    """The authors' code: each batch has w's step, then v's, then in the first that of alpha."""

    def train(self, client):
        model, second = self.begin(client), copy.deepcopy(self.second(client)).train()
        for number, (x, y) in enumerate(self.batches(client)):
            alpha = self.alpha(client)
            self.pass_once(alpha, model, second, x)
            put(model, flat(model) - self.rate() * slope(model, x, y))
            g_v, g_w = self.slopes(alpha, model, second, x, y)
            put(second, flat(second) - self.rate() * g_v)
            if self.p.adaptive and number == 0:
                along = (flat(second) - flat(model)) @ (alpha * g_v + (1 - alpha) * g_w)
                moved = alpha - self.rate() * (along.detach() + 0.02 * alpha)
                self.kept[client]["alpha"] = moved.clamp(0, 1)
        self.kept[client]["second"] = second
        return model

    def pass_once(self, alpha, model, second, x):
        """Change BatchNorm's statistics as a pass before the steps does."""
        model(x)
        outputs = self.p.mix == "outputs"
        second(x) if outputs else functional_call(second, mixed(alpha, model, second), (x,))

    def slopes(self, alpha, model, second, x, y):
        """The gradients with respect to v and w of the mixed model's loss."""
        if self.p.mix == "parameters":
            found = slope(at(second, alpha * flat(second) + (1 - alpha) * flat(model)), x, y)
            return alpha * found, (1 - alpha) * found
        w, v = copy.deepcopy(model), copy.deepcopy(second)
        loss = F.cross_entropy(alpha * v(x)[1] + (1 - alpha) * w(x)[1], y)
        loss.backward()
        return [torch.cat([p.grad.flatten() for p in part.parameters()]) for part in (v, w)]


class FedPHP(Plain):
    """Of four rounds a client is expected in 4 * 4 / 6 of them."""

    def private(self, client):
        return self.kept[client].get("private", self.make(7))

    def own(self, client):
        return self.private(client).state_dict()

    def loss(self, client, model, x, y):
        goal = (frozen(self.private(client), x)[1] / self.p.tau).softmax(1)
        logits, lam = model(x)[1], self.p.lam
        return (1 - lam) * F.cross_entropy(logits, y) + lam * F.cross_entropy(logits, goal)

    def train(self, client):
        model = super().train(client)
        seen = self.kept[client].get("seen", 0)
        mu, private = self.p.inherit * min(1, seen / (4 * 4 / 6)), copy.deepcopy(model)
        for name, entry in private.state_dict().items():
            entry.copy_(mu * self.own(client)[name] + (1 - mu) * entry)
        self.kept[client] = {"seen": seen + 1, "private": private}
        return model


class FedAMP(Plain):
    """A client is pulled to a cloud model: its own, moved to similar ones of the round."""

    def mine(self, client):
        return self.kept[client].get("model", self.make(7))

    def own(self, client):
        return self.mine(client).state_dict()

    def begin(self, client):
        if self.shared.get("round") != self.round:
            models = {k: flat(self.mine(k)).detach() for k in self.cohort()}
            self.shared = {"round": self.round, "models": models}
        return copy.deepcopy(self.mine(client)).train()

    def loss(self, client, model, x, y):
        models, alpha, sigma = self.shared["models"], self.p.alpha, self.p.sigma
        mine = models[client]
        cloud = mine.clone()
        for theirs in models.values():
            away = (mine - theirs) @ (mine - theirs)
            cloud += alpha * torch.exp(-away / sigma) / sigma * (theirs - mine)
        pull = (flat(model) - cloud) @ (flat(model) - cloud)
        return super().loss(client, model, x, y) + self.p.lam / (2 * alpha) * pull

    def train(self, client):
        model = super().train(client)
        self.kept[client]["model"] = copy.deepcopy(model)
        return model


# --- other steps ---------------------------------------------------------------------------------


class PFedMe(Plain):
    """In the form of the code, theta begins with that of the last batch, and is kept."""

    def around(self, model, w, x, y):
        """A copy of a model after the inner steps near the parameters w."""
        for _ in range(self.p.inner):
            way = slope(model, x, y) + self.p.mu * flat(model) + self.p.lam * (flat(model) - w)
            model = at(model, flat(model) - self.p.delta * way)
        return model

    def begin(self, client):
        self.kept[client]["theta"] = self.model
        return super().begin(client)

    def correct(self, client, model, x, y):
        w, kept = flat(model).detach(), self.kept[client]
        kept["theta"] = self.around(kept["theta"] if self.p.form == "code" else model, w, x, y)
        put_grads(model, self.p.lam * (w - flat(kept["theta"]).detach()))

    def aggregate(self, clients, models):
        before = self.w
        super().aggregate(clients, models)
        put(self.model, before + self.p.beta * (self.w - before))

    def own(self, client):
        theta = self.model
        for x, y in self.epoch(client):
            theta = self.around(theta, self.w, x, y)
        start = "private." if self.p.form == "code" else ""
        return {f"{start}{n}": w for n, w in theta.state_dict().items()}


class PerFedAvg(Plain):
    """The third sample of a batch is in both of its halves."""

    def correct(self, client, model, x, y):
        w, alpha = flat(model), self.p.alpha
        g = slope(at(model, w - alpha * slope(model, x[:3], y[:3])), x[2:], y[2:])
        far, found = self.p.distance * g, g
        if self.p.hessian:
            up, down = (slope(at(model, w + d), x[:3], y[:3]) for d in (far, -far))
            found = g - alpha * (up - down) / (2 * self.p.distance)
        put_grads(model, found)

    def own(self, client):
        x, y = next(self.epoch(client))
        model = at(self.model, self.w - self.p.alpha * slope(self.model, x, y))
        return model.state_dict()


class FedALA(Plain):
    """Clients begin with a mixture of their last model and the server's, by weights they learn."""

    def learn(self, client):
        """The mixture, its weights, and the losses of the epochs in which they were learnt."""
        kept, model = self.kept[client], copy.deepcopy(self.model)
        old, new = kept.get("old", flat(self.make(7)).detach()), self.w
        chosen = of_part(model, {"all": "", "head": "head."}[self.p.part])
        weights = kept.get("weights", torch.ones_like(new))
        put(model, new + chosen * (1 - weights) * (old - new))
        batches, losses = [*self.epoch(client)], []
        if torch.equal(old[chosen], new[chosen]):
            return model, weights, losses
        while not self.enough(kept, losses):
            for x, y in batches[: max(1, round(self.p.share * len(batches)))]:
                losses_of_batch = F.cross_entropy(frozen(model, x)[1], y).item()
                step = self.p.eta * slope(model, x, y) * (new - old)
                weights = (weights - chosen * step).clamp(0, 1)
                put(model, new + chosen * (1 - weights) * (old - new))
            losses.append(losses_of_batch)
        return model, weights, losses

    def enough(self, kept, losses):
        """Whether there were as many epochs, with these losses, as the client needs."""
        if kept.get("learnt"):
            return len(losses) == 1
        if not self.p.settled or len(losses) < self.p.first:
            return len(losses) == self.p.first
        last = torch.tensor(losses[1 - self.p.first :], dtype=torch.float64)
        return last.std(correction=0) < self.p.settled

    def own(self, client):
        return self.learn(client)[0].state_dict()

    def begin(self, client):
        model, weights, losses = self.learn(client)
        learnt = bool(losses) or self.kept[client].get("learnt", False)
        self.kept[client] |= {"weights": weights, "learnt": learnt}
        self.shared.setdefault("lengths", []).append(len(losses))
        return model.train()

    def train(self, client):
        model = super().train(client)
        self.kept[client]["old"] = flat(model).detach().clone()
        return model


# --- prototypes ----------------------------------------------------------------------------------


class Pulled(Plain):
    """Features are pulled to prototypes (K,), of which the server may lack some."""

    def loss(self, client, model, x, y):
        features, logits = model(x)
        goals = features.detach().clone()
        for i, label in enumerate(y.tolist()):
            goals[i] = self.shared.get(label, goals[i])
        return F.cross_entropy(logits, y) + self.p.lam * F.mse_loss(features, goals)

    def collect(self, clients, models, equal):
        found: dict = {}
        for client, model in zip(clients, models, strict=True):
            x, y = self.samples(client)
            features = frozen(model, x)[0]
            for label in y.unique().tolist():
                of = features[y == label]
                found.setdefault(label, []).append(of.mean(0, keepdim=True) if equal else of)
        self.shared |= {label: torch.cat(parts).mean(0) for label, parts in found.items()}


class FedProto(Pulled, Local):
    def aggregate(self, clients, models):
        self.collect(clients, models, self.p.average == "equal")


class FedPAC(Pulled):
    """The head is trained first, then the body; heads of the round are combined for each client."""

    def head(self, client):
        return self.kept[client].get("head", self.make(7).head.state_dict())

    def own(self, client):
        head = {f"head.{n}": w for n, w in self.head(client).items()}
        return self.model.state_dict() | head

    def train(self, client):
        x, y = self.samples(client)
        features = frozen(self.model, x)[0]
        h = torch.stack([features[y == k].sum(0) / len(y) for k in range(3)])
        total = features.square().sum() / len(y)
        self.kept[client] |= {"h": h, "v": (total - (h * h).sum()) / len(y)}
        model = self.begin(client)
        model.head.load_state_dict(self.head(client))
        given = {name: self.protocol[name] for name in ("momentum", "weight_decay")}
        rate = self.p.head_lr or self.rate()
        first = torch.optim.SGD(model.head.parameters(), lr=rate, **given)
        second = torch.optim.SGD(model.body.parameters(), lr=self.rate(), **given)
        batches = [*self.batches(client)]
        for number, (x, y) in enumerate(batches):
            model.zero_grad()
            self.loss(client, model, x, y).backward()
            (first if number < len(batches) * self.p.head_share else second).step()
        return model

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        self.collect(clients, models, equal=False)
        h = torch.stack([self.kept[k]["h"].flatten() for k in clients])
        variances = torch.stack([self.kept[k]["v"] for k in clients]).diag()
        for client in clients:
            away = self.kept[client]["h"].flatten() - h
            a = smallest(away @ away.T + variances)
            a = torch.where(a < 1e-3, 0, a)
            heads = [(one, m.head.state_dict()) for one, m in zip(a / a.sum(), models, strict=True)]
            names = heads[0][1]
            self.kept[client]["head"] = {n: sum(one * of[n] for one, of in heads) for n in names}


def smallest(matrix: torch.Tensor) -> torch.Tensor:
    """The minimum of a' P a over a >= 0 with the sum 1: the best of all supports."""
    found, places = [], range(len(matrix))
    for support in itertools.chain(*(itertools.combinations(places, n + 1) for n in places)):
        part = matrix[support, :][:, support]
        a = torch.linalg.solve(part, torch.ones(len(part), dtype=torch.float64))
        if (a / a.sum() >= 0).all():
            whole = torch.zeros(len(matrix), dtype=torch.float64)
            whole[[*support]] = a / a.sum()
            found.append((float(whole @ matrix @ whole), whole))
    return min(found, key=lambda pair: pair[0])[1]


def recalled(model, stored, x, p):
    """The probabilities of kNN-Per for inputs x, sample by sample."""
    samples, labels = stored
    features, logits = frozen(model, x)
    far, found = frozen(model, samples)[0], []
    kernels = {
        "plain": lambda d: math.exp(-d),
        "squared": lambda d: math.exp(-(d**2) / (features.shape[1] * p.scale)),
    }
    for f, own in zip(features, logits.softmax(1), strict=True):
        near = sorted((float((f - g).norm()), c) for g, c in zip(far, labels.tolist(), strict=True))
        votes = torch.zeros_like(own)
        for distance, c in near[: p.k]:
            votes[c] += kernels[p.kernel](distance)
        found.append(p.lam * votes / votes.sum() + (1 - p.lam) * own)
    return torch.stack(found)
