"""Methods whose clients have models of their own, written a second time as plain loops."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from against import CLOSE, SIZES, loop, run
from conftest import PROTOCOL, Simulation, make_step, methods, tiny
from fedgrid.checking.plain import PlainLoop
from fedgrid.engine.client_evaluation import evaluated_model
from fedgrid.method import Cohort, Method, Step
from fedgrid.methods import fedpac
from fedgrid.methods._random_classes import ORDER
from fedgrid.runtime.names import UsageError, registered
from fedgrid.training.build import check_method


def own(found: Simulation, client: int) -> dict:
    """The model by which the engine evaluates a client that waits for its next round."""
    engine = found.engine
    return evaluated_model(engine.method, engine.population.idle_client(found.run, client))


def compare(kind: type[PlainLoop], method: Method, **protocol) -> None:
    """Hold the server's model, and every client's own, against those of a plain loop.

    A plain loop gives a client's own entries, by the engine's names, with `own`.
    """
    found, (plain, _) = run(method, **protocol), loop(kind, **protocol)
    shared = plain.model.state_dict()
    public = found.engine.public(n for n in shared if n in found.run.server)
    theirs = {n: found.run.server[n] for n in public}
    torch.testing.assert_close(theirs, {n: shared[n] for n in public}, **CLOSE)
    for client in range(len(SIZES)):
        expected = plain.own(client)
        model = own(found, client)
        torch.testing.assert_close({n: model[n] for n in expected}, dict(expected), **CLOSE)


def gradient(model: torch.nn.Module, x, y) -> dict:
    """The gradient of the cross-entropy in training mode, by parameter; the model stays."""
    twin = copy.deepcopy(model).train()
    loss = F.cross_entropy(twin(x)[1], y)
    names, params = zip(*twin.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, params), strict=True))


def moved(model: torch.nn.Module, changes: dict, rate: float) -> torch.nn.Module:
    """A copy of a model after a step along a gradient."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, p in twin.named_parameters():
            p.sub_(rate * changes[name])
    return twin


class Keeping(PlainLoop):
    """Clients keep some entries of the model between their rounds."""

    def keeps(self, name: str) -> bool:
        raise NotImplementedError

    def kept_model(self, client):
        first = {n: w for n, w in self.make(7).state_dict().items() if self.keeps(n)}
        return self.model.state_dict() | first | self.kept[client]

    def own(self, client):
        return self.kept_model(client)

    def begin(self, client):
        model = super().begin(client)
        model.load_state_dict(self.kept_model(client), strict=False)
        return model

    def train(self, client):
        model = super().train(client)
        state = model.state_dict()
        self.kept[client] = {n: w.clone() for n, w in state.items() if self.keeps(n)}
        return model


# --- which entries are private -----------------------------------------------------------------


class FedBN(Keeping):
    def keeps(self, name):
        return name.startswith(("body.1.", "body.6."))


def test_fedbn():
    compare(FedBN, methods("fedbn"))


class LGFedAvg(Keeping):
    def keeps(self, name):
        return name.startswith("body.")


def test_lgfedavg():
    compare(LGFedAvg, methods("lgfedavg"))


class FedPer(Keeping):
    def keeps(self, name):
        return name.startswith("head.")


def test_fedper():
    compare(FedPer, methods("fedper"))


# --- fine-tuning -------------------------------------------------------------------------------


class FineTuned(PlainLoop):
    part = ""

    def before(self, client):
        return self.model.state_dict()

    def own(self, client):
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.before(client), strict=False)
        for _ in range(2):
            for x, y in self.epoch(client):
                found = gradient(model, x, y)
                chosen = {n: g * n.startswith(self.part) for n, g in found.items()}
                model = moved(model, chosen, self.rate())
        return model.state_dict()


class HeadTuned(FineTuned):
    part = "head."


class FedPerTuned(FineTuned, FedPer):
    def before(self, client):
        return self.kept_model(client)


def test_finetuned():
    compare(FineTuned, methods("finetuned", epochs=2))
    compare(HeadTuned, methods("finetuned", epochs=2, part="head"))
    compare(FedPerTuned, methods("fedper") | methods("finetuned", epochs=2))


def test_without_epochs_fine_tuning_changes_nothing():
    found = run(methods("finetuned", epochs=0))
    torch.testing.assert_close(own(found, 1), found.run.server, rtol=0, atol=0)


def test_fine_tuning_reaches_the_head_that_fedbabu_never_trains():
    found = run(methods("fedbabu") | methods("finetuned", part="head"))
    model, server = own(found, 1), found.run.server
    assert not torch.equal(model["head.weight"], server["head.weight"])
    assert torch.equal(model["body.5.weight"], server["body.5.weight"])


@pytest.mark.parametrize("name", ["ditto", "apfl", "fedrod", "fedper"])
def test_fine_tuning_joins_methods_with_private_entries(name):
    tuned, plain = run(methods(name) | methods("finetuned")), run(methods(name))
    torch.testing.assert_close(tuned.run.server, plain.run.server, rtol=0, atol=0)
    a, b = own(tuned, 1), own(plain, 1)
    assert any((a[n] - b[n]).abs().max() > 1e-6 for n in plain.run.memory[1]["private"])


# --- a second model ----------------------------------------------------------------------------


class Beside(PlainLoop):
    """Clients have a second module, which begins as `first` gives it."""

    def first(self):
        return self.make(7)

    def second(self, client):
        return self.kept[client].get("second", self.first())

    def own(self, client):
        state = self.second(client).state_dict()
        return {f"private.{n}": w for n, w in state.items()}

    def train(self, client):
        model, second = self.begin(client), copy.deepcopy(self.second(client)).train()
        one, two = self.optimiser(client, model), self.optimiser(client, second)
        for x, y in self.batches(client):
            loss = self.second_loss(client, model, second, x, y)
            gradients = torch.autograd.grad(loss, [*second.parameters()])
            one.zero_grad()
            self.loss(client, model, x, y).backward()
            for p, g in zip(second.parameters(), gradients, strict=True):
                p.grad = g
            one.step()
            two.step()
        self.kept[client]["second"] = second
        return model


class Ditto(Beside):
    def second_loss(self, client, model, second, x, y):
        pairs = zip(second.parameters(), self.sent(), strict=True)
        away = sum((v - w).square().sum() for v, w in pairs)
        return F.cross_entropy(second(x)[1], y) + 0.7 / 2 * away


def test_ditto():
    compare(Ditto, methods("ditto", lam=0.7))


def test_ditto_with_adam():
    compare(Ditto, methods("ditto", lam=0.7), optimiser="adam", momentum=0.0)


class APFL(Beside):
    def second_loss(self, client, model, second, x, y):
        theirs = [p.detach() for p in model.parameters()]
        mixed = {
            n: 0.3 * v + 0.7 * w
            for (n, v), w in zip(second.named_parameters(), theirs, strict=True)
        }
        return F.cross_entropy(functional_call(second, mixed, (x,))[1], y)


class OutputsMixed(Beside):
    def second_loss(self, client, model, second, x, y):
        theirs = copy.deepcopy(model)(x)[1].detach()
        return F.cross_entropy(0.3 * second(x)[1] + 0.7 * theirs, y)


class AdaptiveAPFL(APFL):
    """The weight is changed in the first step of each round."""

    def own(self, client):
        return super().own(client) | {"alpha": self.alpha(client)}

    def alpha(self, client):
        return self.kept[client].get("alpha", torch.tensor(0.3, dtype=torch.float64)).clamp(0, 1)

    def train(self, client):
        self.number = 0
        return super().train(client)

    def second_loss(self, client, model, second, x, y):
        alpha = self.alpha(client).requires_grad_()
        theirs = [p.detach() for p in model.parameters()]
        mixed = {
            n: alpha * v + (1 - alpha) * w
            for (n, v), w in zip(second.named_parameters(), theirs, strict=True)
        }
        loss = F.cross_entropy(functional_call(second, mixed, (x,))[1], y)
        if self.number == 0:
            g = torch.autograd.grad(loss, alpha, retain_graph=True)[0]
            g = g + self.protocol["weight_decay"] * alpha.detach()
            # The loss keeps the weight that it was computed with, as the step is one for all.
            self.kept[client]["alpha"] = alpha.detach() - self.rate() * g
        self.number += 1
        return loss


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [(APFL, {}), (OutputsMixed, {"mix": "outputs"}), (AdaptiveAPFL, {"adaptive": True})],
)
def test_apfl(kind, keywords):
    compare(kind, methods("apfl", alpha=0.3, **keywords))


NETWORKS = [name for name in registered("methods") if methods(name).architecture]


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_method_adds_to_a_network_has_the_precision_of_the_run(name):
    """A network is made in single precision, and gets that of the run later."""
    keywords = {"alpha": 0.3} if name == "apfl" else {}
    made = []
    for own in (torch.nn.Module.float, torch.nn.Module.double):
        network = own(tiny(0).float())
        torch.manual_seed(0)
        made.append(methods(name, **keywords).architecture(network).double().state_dict())
    torch.testing.assert_close(*made, rtol=0, atol=0)


class InTurn(AdaptiveAPFL):
    """Each batch has w's step, then v's, then in the first step of a round that of alpha."""

    adaptive = True

    def alpha(self, client):
        return self.kept[client].get("alpha", torch.tensor(0.3, dtype=torch.float64))

    def train(self, client):
        model, second = self.begin(client), copy.deepcopy(self.second(client)).train()
        for number, (x, y) in enumerate(self.batches(client)):
            alpha = self.alpha(client)
            self.pass_once(alpha, model, second, x)
            model = moved(model, gradient(model, x, y), self.rate())
            g_v, g_w = self.gradients(alpha, model, second, x, y)
            second = moved(second, g_v, self.rate())
            if self.adaptive and number == 0:
                w, v = parameters(model), parameters(second)
                way = {n: alpha * g_v[n] + (1 - alpha) * g_w[n] for n in w}
                along = sum(((v[n] - w[n]) * way[n]).sum() for n in w) + 0.02 * alpha
                self.kept[client]["alpha"] = (alpha - self.rate() * along).clamp(0, 1)
        self.kept[client]["second"] = second
        return model

    def pass_once(self, alpha, model, second, x):
        """Change BatchNorm's statistics as a pass before the steps does."""
        model(x), second(x)

    def gradients(self, alpha, model, second, x, y):
        """Those of the loss of both outputs, mixed, with respect to v and w."""
        w, v = copy.deepcopy(model), copy.deepcopy(second)
        loss = F.cross_entropy(alpha * v(x)[1] + (1 - alpha) * w(x)[1], y)
        parts = [[*part.parameters()] for part in (v, w)]
        names = [name for name, _ in v.named_parameters()]
        found = (torch.autograd.grad(loss, part, retain_graph=True) for part in parts)
        return [dict(zip(names, of, strict=True)) for of in found]


class FixedInTurn(InTurn):
    adaptive = False


class ParametersInTurn(InTurn):
    """Parameters are mixed."""

    def mixed(self, alpha, model, second):
        w, v = parameters(model), parameters(second)
        return {n: alpha * v[n] + (1 - alpha) * w[n] for n in w}

    def pass_once(self, alpha, model, second, x):
        model(x), functional_call(second, self.mixed(alpha, model, second), (x,))

    def gradients(self, alpha, model, second, x, y):
        twin = copy.deepcopy(second)
        twin.load_state_dict(self.mixed(alpha, model, second), strict=False)
        found = gradient(twin, x, y)
        return [{n: part * g for n, g in found.items()} for part in (alpha, 1 - alpha)]


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        (InTurn, {"mix": "outputs", "adaptive": True}),
        (FixedInTurn, {"mix": "outputs"}),
        (ParametersInTurn, {"adaptive": True}),
    ],
)
def test_apfl_in_the_form_of_the_authors_code(kind, keywords):
    plain = {"momentum": 0.0, "weight_decay": 0.0, "lr": 0.3}
    compare(kind, methods("apfl", alpha=0.3, form="code", **keywords), **plain)


def test_in_that_form_alpha_is_cut_at_once():
    """The starting weight of all clients is nearly 0, and leaves 0..1 with a high rate."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "lr": 1.0, "lr_decay": 1.0}
    found = run(methods("apfl", alpha=0.01, adaptive=True, form="code"), **plain)
    kept = torch.stack([memory["private"]["alpha"] for memory in found.run.memory.values()])
    assert ((kept >= 0) & (kept <= 1)).all()
    assert (kept == 0).any()


def test_the_weight_of_apfl_is_cut():
    """With a learning rate of 5, weights of 0.3 leave 0..1 at once."""
    found = run(methods("apfl", alpha=0.3, adaptive=True), lr=5.0, momentum=0.0)
    kept = torch.stack([memory["private"]["alpha"] for memory in found.run.memory.values()])
    assert ((kept < 0) | (kept > 1)).any()
    used = torch.stack([own(found, client)["alpha"] for client in range(len(SIZES))])
    assert ((used >= 0) & (used <= 1)).all()
    compare(AdaptiveAPFL, methods("apfl", alpha=0.3, adaptive=True), lr=0.5, momentum=0.0)


def test_without_a_part_of_its_own_the_mixture_is_the_shared_model():
    found = run(methods("apfl", alpha=0.0))
    x = torch.randn(3, 1, 6, 6).double()
    network, model = found.engine.architecture, own(found, 1)
    mixture = {n: found.run.server[n] for n in network.served}
    statistics = {n: model[f"private.{n}"] for n in network.statistics if n in mixture}
    expected = network.forward_server(mixture | statistics, x)[1]
    torch.testing.assert_close(network.forward(model, x)[1], expected, **CLOSE)


@pytest.mark.parametrize("name", ["apfl", "ditto", "finetuned"])
def test_the_servers_model_is_fedavgs(name):
    fedavg, found = run(Method()).run.server, run(methods(name)).run.server
    torch.testing.assert_close({n: found[n] for n in fedavg}, fedavg, rtol=0, atol=0)


class FedRoD(Beside):
    def first(self):
        return self.make(7).head

    def loss(self, client, model, x, y):
        counts = self.data.counts[client].double()
        exp = counts * model(x)[1].exp()
        return -(exp.gather(1, y[:, None])[:, 0] / exp.sum(1)).log().mean()

    def second_loss(self, client, model, second, x, y):
        features, logits = copy.deepcopy(model)(x)
        return F.cross_entropy(logits.detach() + second(features.detach()), y)


def test_fedrod():
    compare(FedRoD, methods("fedrod"))


def test_fedrod_without_the_balance_has_fedavgs_server():
    fedavg, found = run(Method()).run.server, run(methods("fedrod", gamma=0.0)).run.server
    torch.testing.assert_close({n: found[n] for n in fedavg}, fedavg, rtol=0, atol=0)


def test_a_client_that_lacks_a_class_has_finite_losses():
    found = run(methods("fedrod"))
    assert (found.engine.federation.counts == 0).any()
    assert all(w.isfinite().all() for w in own(found, 1).values())


def recalled(model, stored, x, lam, k, weight):
    """The probabilities of kNN-Per for inputs x, sample by sample."""
    samples, labels = stored
    with torch.no_grad():
        features, logits = model(x)
        far = model(samples)[0] if len(samples) else samples
    found = []
    for f, own in zip(features, logits.softmax(1), strict=True):
        near = sorted((float((f - g).norm()), c) for g, c in zip(far, labels.tolist(), strict=True))
        votes = torch.zeros_like(own)
        for distance, c in near[:k]:
            votes[c] += weight(distance)
        found.append(lam * votes / votes.sum() + (1 - lam) * own if near else own)
    return torch.stack(found)


KERNELS = {
    "plain": lambda d: math.exp(-d),
    "squared": lambda d: math.exp(-(d**2) / (4 * 0.5)),  # of four features
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_knnper(kernel):
    options = {"lam": 0.3, "k": 4, "capacity": 12, "kernel": kernel, "scale": 0.5}
    found, (plain, _) = run(methods("knnper", **options)), loop(PlainLoop)
    shared = plain.model.state_dict()
    torch.testing.assert_close({n: found.run.server[n] for n in shared}, dict(shared), **CLOSE)
    model = plain.model.eval()
    x = torch.cat([plain.samples(client)[0] for client in range(len(SIZES))])
    for client in range(len(SIZES)):
        expected = recalled(model, plain.samples(client), x, 0.3, 4, KERNELS[kernel])
        logits = found.engine.architecture.forward(own(found, client), x)[1]
        torch.testing.assert_close(logits.softmax(1), expected, **CLOSE)
    logits = found.engine.architecture.forward_server(found.run.server, x)[1]
    torch.testing.assert_close(logits, model(x)[1].detach(), **CLOSE)


def test_knnper_stores_as_many_samples_as_there_is_room():
    found = run(methods("knnper", capacity=5, k=9))
    stores = [own(found, client)["store.classes"] for client in range(len(SIZES))]
    assert [int(rows.sum()) for rows in stores] == [min(5, n) for n in SIZES]
    engine = found.engine
    client = replace(engine.population.idle_client(found.run, 1), total=lambda f: f(x[:0], y[:0]))
    x, y = engine.federation.images[:1].double(), engine.federation.labels[:1]
    empty = client.model | engine.method.personal(client)
    assert not empty["store.classes"].any()
    logits = engine.architecture.forward(empty, x)[1]
    plain = engine.architecture.forward_server(found.run.server, x)[1]
    torch.testing.assert_close(logits, plain.log_softmax(1), **CLOSE)


# --- other steps -------------------------------------------------------------------------------


class Coasting(Keeping):
    """FedRep where the classifier gets gradients of zero while the body is trained."""

    def keeps(self, name):
        return name.startswith("head.")

    def train(self, client):
        self.trained, self.all = 0, len([*self.batches(client)])
        return super().train(client)

    def correct(self, client, model, x, y):
        first = self.trained < self.all / 2
        for p in model.body.parameters():
            p.grad = None if first else p.grad
        for p in model.head.parameters():
            p.grad = p.grad if first else torch.zeros_like(p)
        self.trained += 1


def test_fedrep_without_rest():
    compare(Coasting, methods("fedrep", rest=False))
    rests, coasts = (own(run(methods("fedrep", rest=rest)), 1) for rest in (True, False))
    assert (rests["head.weight"] - coasts["head.weight"]).abs().max() > 1e-3


def around(model: torch.nn.Module, w: dict, x, y, mu: float = 0.0) -> torch.nn.Module:
    """A copy of a model after three inner steps near the parameters w."""
    for _ in range(3):
        found, at = gradient(model, x, y), dict(model.named_parameters())
        way = {n: g + mu * at[n] + 4.0 * (at[n] - w[n]) for n, g in found.items()}
        model = moved(model, way, 0.1)
    return model


def parameters(model: torch.nn.Module) -> dict:
    return {n: p.detach().clone() for n, p in model.named_parameters()}


class PFedMe(PlainLoop):
    beta, mu = 1.0, 0.0

    def correct(self, client, model, x, y):
        w = parameters(model)
        theta = parameters(around(model, w, x, y, self.mu))
        for name, p in model.named_parameters():
            p.grad = 4.0 * (w[name] - theta[name])

    def aggregate(self, clients, models):
        before = parameters(self.model)
        super().aggregate(clients, models)
        for name, p in self.model.named_parameters():
            p.copy_(before[name] + self.beta * (p - before[name]))

    def own(self, client):
        theta, w = self.model, parameters(self.model)
        for x, y in self.epoch(client):
            theta = around(theta, w, x, y, self.mu)
        return theta.state_dict()


class Ahead(PFedMe):
    beta = 1.5


class Decayed(PFedMe):
    mu = 0.5


class Carried(PFedMe):
    """Theta begins with that of the last batch; its copy in the model is the client's own."""

    beta, mu = 1.5, 0.5

    def begin(self, client):
        self.kept[client]["theta"] = self.model
        return super().begin(client)

    def correct(self, client, model, x, y):
        w = parameters(model)
        theta = around(self.kept[client]["theta"], w, x, y, self.mu)
        self.kept[client]["theta"] = theta
        for (name, p), t in zip(model.named_parameters(), theta.parameters(), strict=True):
            p.grad = 4.0 * (w[name] - t.detach())

    def own(self, client):
        return {f"private.{n}": w for n, w in super().own(client).items()}


NEAR = {"lam": 4.0, "delta": 0.1, "inner": 3}


@pytest.mark.parametrize("kind", [PFedMe, Ahead, Decayed, Carried])
def test_pfedme(kind):
    form = "code" if kind is Carried else "paper"
    compare(kind, methods("pfedme", beta=kind.beta, mu=kind.mu, form=form, **NEAR))


def test_theta_of_a_batch_is_where_that_of_the_next_begins():
    found = run(methods("pfedme", beta=1.5, mu=0.5, form="code", **NEAR))
    plain, _ = loop(Carried)
    assert len(found.run.memory) == len(SIZES)
    for client, memory in found.run.memory.items():
        expected = parameters(plain.kept[client]["theta"])
        theta = {n: memory["private"][f"private.{n}"] for n in expected}
        torch.testing.assert_close(theta, expected, **CLOSE)


def test_a_client_predicts_with_theta():
    found, (plain, _) = run(methods("pfedme", form="code", mu=0.5, beta=1.5, **NEAR)), loop(Carried)
    network, x = found.engine.architecture, plain.samples(1)[0]
    theta = {n.removeprefix("private."): w for n, w in plain.own(1).items()}
    expected = network.forward_server(found.run.server | theta, x)[1]
    torch.testing.assert_close(network.forward(own(found, 1), x)[1], expected, **CLOSE)


def test_one_inner_step_of_the_inverse_rate_is_fedavg():
    found = run(methods("pfedme", lam=4.0, delta=0.25, inner=1)).run.server
    torch.testing.assert_close(found, run(Method()).run.server, **CLOSE)


class PerFedAvg(PlainLoop):
    def correct(self, client, model, x, y):
        there = moved(model, gradient(model, x[:3], y[:3]), 0.2)
        found = gradient(there, x[2:], y[2:])
        for name, p in model.named_parameters():
            p.grad = found[name]

    def own(self, client):
        x, y = next(self.epoch(client))
        return moved(self.model, gradient(self.model, x, y), 0.2).state_dict()


class WithHessian(PerFedAvg):
    def correct(self, client, model, x, y):
        super().correct(client, model, x, y)
        g = {n: p.grad for n, p in model.named_parameters()}
        up = gradient(moved(model, g, -0.01), x[:3], y[:3])
        down = gradient(moved(model, g, 0.01), x[:3], y[:3])
        for name, p in model.named_parameters():
            p.grad = p.grad - 0.2 * (up[name] - down[name]) / 0.02


HALVES = {"batch": 5, "smallest_batch": 5}  # the third sample is in both halves


def test_perfedavg():
    compare(PerFedAvg, methods("perfedavg", alpha=0.2), **HALVES)
    compare(WithHessian, methods("perfedavg", alpha=0.2, hessian=True, distance=0.01), **HALVES)


def test_a_batch_of_one_sample_has_two_equal_halves():
    found = run(methods("perfedavg"), batch=3, smallest_batch=2)
    assert all(w.isfinite().all() for w in found.run.server.values())


# --- a beginning of its own --------------------------------------------------------------------


class FedALA(PlainLoop):
    part, epochs = "head.", 4

    def learn(self, client):
        old = self.kept[client].get("old", parameters(self.make(7)))
        new = parameters(self.model)
        names = [n for n in old if n.startswith(self.part)]
        weights = self.kept[client].get("weights", {n: torch.ones_like(old[n]) for n in names})
        model = copy.deepcopy(self.model)

        def fill():
            with torch.no_grad():
                for n, p in model.named_parameters():
                    if n in names:
                        p.copy_(old[n] * (1 - weights[n]) + new[n] * weights[n])

        fill()
        if all(torch.equal(old[n], new[n]) for n in names):
            return model, weights, False
        batches, losses = [*self.epoch(client)], []
        while not self.enough(client, losses):
            for x, y in batches[: max(1, round(0.5 * len(batches)))]:
                last = F.cross_entropy(copy.deepcopy(model).eval()(x)[1], y).item()
                found = gradient(model, x, y)
                for n in names:
                    weights[n] = (weights[n] - 3.0 * found[n] * (new[n] - old[n])).clamp(0, 1)
                fill()
            losses.append(last)
        return model, weights, True

    def enough(self, client, losses):
        """Whether there were as many epochs, with these losses, as the client needs."""
        return len(losses) == (1 if self.kept[client].get("learnt") else self.epochs)

    def own(self, client):
        kept = copy.deepcopy(self.kept[client])
        model = self.learn(client)[0].state_dict()
        self.kept[client] = kept
        return model

    def begin(self, client):
        model, weights, learnt = self.learn(client)
        learnt = learnt or self.kept[client].get("learnt", False)
        self.kept[client] |= {"weights": weights, "learnt": learnt}
        return model.train()

    def train(self, client):
        model = super().train(client)
        self.kept[client]["old"] = parameters(model)
        return model


class OfAllLayers(FedALA):
    part = ""


class Settled(FedALA):
    """The first epochs go on until the losses of three of them hardly differ."""

    part, lengths = "", ()

    def enough(self, client, losses):
        if self.kept[client].get("learnt"):
            return len(losses) == 1
        last = torch.tensor(losses[-3:]).double()
        done = len(losses) >= 4 and bool((last - last.mean()).square().mean().sqrt() < 2e-3)
        self.lengths += (len(losses),) * done
        return done


def test_fedala_learns_until_its_losses_settle():
    given = {"share": 0.5, "eta": 3.0, "first": 4, "part": "all"}
    compare(Settled, methods("fedala", settled=2e-3, **given))
    lengths = loop(Settled)[0].lengths
    assert min(lengths) < max(lengths) < 1000


def test_fedala():
    given = {"share": 0.5, "eta": 3.0, "first": 4}
    compare(FedALA, methods("fedala", **given))
    compare(OfAllLayers, methods("fedala", part="all", **given))
    weights = run(methods("fedala", part="all", **given)).run.memory[1]["ala_weights"]
    assert any((w < 1).any() for w in weights.values())


def test_without_learning_the_weights_the_whole_server_model_is_taken():
    found = run(methods("fedala", eta=0.0, part="all")).run.server
    torch.testing.assert_close(found, run(Method()).run.server, **CLOSE)


class FedPHP(PlainLoop):
    """Of four rounds a client is expected in 4 * 4 / 6 of them."""

    def private(self, client):
        return self.kept[client].get("private", self.make(7))

    def own(self, client):
        return self.private(client).state_dict()

    def loss(self, client, model, x, y):
        with torch.no_grad():
            goal = (copy.deepcopy(self.private(client)).eval()(x)[1] / 3.0).softmax(1)
        logits = model(x)[1]
        return 0.7 * F.cross_entropy(logits, y) + 0.3 * F.cross_entropy(logits, goal)

    def train(self, client):
        model = super().train(client)
        seen = self.kept[client].get("seen", 0)
        mu, private = 0.9 * min(1, seen / (4 * 4 / 6)), copy.deepcopy(model)
        before = self.own(client)
        for name, entry in private.state_dict().items():
            entry.copy_(mu * before[name] + (1 - mu) * entry)
        self.kept[client] = {"seen": seen + 1, "private": private}
        return model


def test_fedphp():
    compare(FedPHP, methods("fedphp", lam=0.3, tau=3.0))


class FedAMP(PlainLoop):
    def mine(self, client):
        return self.kept[client].get("model", self.make(7))

    def own(self, client):
        return self.mine(client).state_dict()

    def begin(self, client):
        if self.shared.get("round") != self.round:
            self.shared = {"round": self.round, "models": {k: self.mine(k) for k in self.cohort()}}
        return copy.deepcopy(self.mine(client)).train()

    def loss(self, client, model, x, y):
        models = {k: parameters(m) for k, m in self.shared["models"].items()}
        mine = models.pop(client)
        cloud = {n: w.clone() for n, w in mine.items()}
        for theirs in models.values():
            away = sum((mine[n] - w).square().sum() for n, w in theirs.items())
            attention = 0.3 * torch.exp(-away / 2.0) / 2.0
            cloud = {n: u + attention * (theirs[n] - mine[n]) for n, u in cloud.items()}
        pull = sum((p - cloud[n]).square().sum() for n, p in model.named_parameters())
        return super().loss(client, model, x, y) + 0.7 / (2 * 0.3) * pull

    def train(self, client):
        model = super().train(client)
        self.kept[client]["model"] = copy.deepcopy(model)
        return model


def test_fedamp():
    compare(FedAMP, methods("fedamp", lam=0.7, alpha=0.3, sigma=2.0))


# --- prototypes --------------------------------------------------------------------------------


class Pulled(PlainLoop):
    """Features are pulled to prototypes (K,), of which the server may lack some."""

    equal = True

    def loss(self, client, model, x, y):
        features, logits = model(x)
        goals = features.detach().clone()
        for i, label in enumerate(y.tolist()):
            goals[i] = self.shared.get(label, goals[i])
        return F.cross_entropy(logits, y) + 0.8 * F.mse_loss(features, goals)

    def collect(self, clients, models):
        found: dict = {}
        for client, model in zip(clients, models, strict=True):
            x, y = self.samples(client)
            features = copy.deepcopy(model).eval()(x)[0]
            for label in y.unique().tolist():
                of = features[y == label]
                parts = [of.mean(0)] if self.equal else [*of]
                found.setdefault(label, []).extend(parts)
        self.shared |= {label: torch.stack(parts).mean(0) for label, parts in found.items()}


class FedProto(Pulled, Keeping):
    def keeps(self, name):
        return True

    def aggregate(self, clients, models):
        self.collect(clients, models)


class BySamples(FedProto):
    equal = False


def test_fedproto():
    compare(FedProto, methods("fedproto", lam=0.8))
    compare(BySamples, methods("fedproto", lam=0.8, average="samples"))


def test_a_class_keeps_its_last_prototype():
    found = run(methods("fedproto"), 0, participation=1 / 6)
    before = found.play(1).shared["prototypes"]
    after = found.play(1).shared["prototypes"]
    assert (before["known"] <= after["known"]).all()
    gone = [k for k in range(3) if torch.equal(before["mean"][k], after["mean"][k])]
    assert all(after["mean"][k].any() == bool(before["known"][k]) for k in gone)


class FedPAC(Pulled):
    equal = False

    def head_rate(self):
        return self.rate()

    def head(self, client):
        return self.kept[client].get("head", self.make(7).head.state_dict())

    def own(self, client):
        head = {f"head.{n}": w for n, w in self.head(client).items()}
        return self.model.state_dict() | head

    def train(self, client):
        x, y = self.samples(client)
        features = copy.deepcopy(self.model).eval()(x)[0].detach()
        h = torch.stack([features[y == k].sum(0) / len(y) for k in range(3)])
        total = sum(f @ f for f in features) / len(y)
        self.kept[client] |= {"h": h, "v": (total - (h * h).sum()) / len(y)}
        model = self.begin(client)
        model.head.load_state_dict(self.head(client))
        head, body = [*model.head.parameters()], [*model.body.parameters()]
        given = {name: self.protocol[name] for name in ("momentum", "weight_decay")}
        first = torch.optim.SGD(head, lr=self.head_rate(), **given)
        second = torch.optim.SGD(body, lr=self.rate(), **given)
        batches = [*self.batches(client)]
        for number, (x, y) in enumerate(batches):
            model.zero_grad()
            self.loss(client, model, x, y).backward()
            (first if number < len(batches) * 0.5 else second).step()
        return model

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        self.collect(clients, models)
        for client in clients:
            a = smallest(self.matrix(client, clients))
            a = torch.where(a < 1e-3, 0, a)
            parts = [m.head.state_dict() for m in models]
            self.kept[client]["head"] = {
                n: sum(one * part[n] for one, part in zip(a / a.sum(), parts, strict=True))
                for n in parts[0]
            }

    def matrix(self, client, clients):
        h = {k: self.kept[k]["h"] for k in clients}
        rows = [[((h[client] - h[j]) * (h[client] - h[k])).sum() for k in clients] for j in clients]
        own = torch.stack([self.kept[k]["v"] for k in clients])
        return torch.tensor(rows, dtype=torch.float64) + own.diag()


def smallest(matrix: torch.Tensor) -> torch.Tensor:
    """The minimum of a' P a over a >= 0 with the sum 1: the best of all supports."""
    found = []
    for size in range(1, len(matrix) + 1):
        for support in itertools.combinations(range(len(matrix)), size):
            part = matrix[support, :][:, support]
            a = torch.linalg.solve(part, torch.ones(size, dtype=torch.float64))
            a = a / a.sum()
            if (a >= 0).all():
                whole = torch.zeros(len(matrix), dtype=torch.float64)
                whole[[*support]] = a
                found.append((float(whole @ matrix @ whole), whole))
    return min(found, key=lambda pair: pair[0])[1]


class HeadRate(FedPAC):
    def head_rate(self):
        return 0.02


def test_fedpac():
    compare(FedPAC, methods("fedpac", lam=0.8))
    compare(HeadRate, methods("fedpac", lam=0.8, head_lr=0.02))


# --- placebos ----------------------------------------------------------------------------------


def step_of(order, y) -> Step:
    """A step of three classes with prototypes, for a client with an order of the classes."""
    means = torch.arange(6.0).double().view(3, 2) ** 2
    known = torch.tensor([1.0, 0.0, 1.0]).double()
    return make_step(
        features=torch.tensor([[0.5, 1.0], [2.0, 3.0]]).double(),
        logits=torch.tensor([[0.5, 1.0, 0.0], [2.0, 3.0, 1.0]]).double()[:, None].expand(2, 2, 3),
        y=torch.tensor(y),
        counts=torch.tensor([7, 2, 1]),
        memory={ORDER: torch.tensor(order)},
        shared={"prototypes": {"mean": means, "known": known}},
    )


def test_the_placebo_of_prototypes_pulls_to_those_of_the_drawn_classes():
    placebo, real = methods("fedproto_random").penalty, methods("fedproto").penalty
    assert placebo(step_of([2, 0, 1], [0, 1])) == real(step_of([0, 1, 2], [2, 0]))
    assert placebo(step_of([2, 0, 1], [0, 1])) != real(step_of([2, 0, 1], [0, 1]))


@pytest.mark.parametrize("name", ["fedrod", "fedlc"])
def test_a_placebo_of_counts_has_them_for_other_classes_that_the_client_holds(name):
    placebo, real = methods(f"{name}_random"), methods(name)
    step = replace(step_of([0, 1, 2], [0, 1]), counts=torch.tensor([7, 2, 0]))
    if name == "fedlc":
        step = replace(step, logits=step.logits[:, 0])
    seen = set()
    for noise in range(9):
        (sent,) = placebo.send(cohort_of(counts=step.counts[None], noise=noise))
        seen.add(float(placebo.loss(replace(step, memory=sent))))
    own, other = (real.loss(replace(step, counts=torch.tensor(n))) for n in ([7, 2, 0], [2, 7, 0]))
    assert seen == {float(own), float(other)}


def cohort_of(**fields) -> Cohort:
    return Cohort(**dict.fromkeys(Cohort.__dataclass_fields__) | fields)


def test_the_placebo_of_fedamp_has_the_same_weights_for_other_pairs():
    places = torch.tensor([[0.0], [0.3], [1.0], [4.0]]).double()
    before = [{"fedamp": {"parameters": {"w": place}}} for place in places]
    sent = {}
    for shuffled in (False, True):
        given = methods("fedamp", shuffled=shuffled).send(cohort_of(before=before, noise=3))
        sent[shuffled] = torch.stack([one["fedamp_u"]["w"] for one in given])
        # The weights are symmetric, so that the mean of the clients' models stays.
        torch.testing.assert_close(sent[shuffled].mean(), places.mean())
    assert not torch.allclose(sent[False], sent[True])


def test_the_placebo_of_fedpac_gives_a_client_the_weights_of_another():
    h = torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]]).double()
    head = {"head.bias": torch.zeros(4, 1).double()}
    told = [
        {"fedpac": {"h": h[k], "variance": h.new_tensor(0.1), "head": {"head.bias": h[k, :1]}}}
        for k in range(3)
    ]
    fields = {"clients": torch.tensor([0, 1, 3]), "sizes": torch.tensor([4.0, 4.0, 4.0])}
    cohort = cohort_of(measured=told, shared={"fedpac": head}, noise=0, **fields)
    real, placebo = (
        fedpac.combine(cohort, {}, shuffled)["fedpac"]["head.bias"][:, 0].tolist()
        for shuffled in (False, True)
    )
    assert real[2] == placebo[2] == 0  # it was not in the round
    assert sorted(real) == sorted(placebo)
    assert all(a != b for a, b in zip(real[:2] + real[3:], placebo[:2] + placebo[3:], strict=True))


# --- a teacher of earlier models ---------------------------------------------------------------


class FedGKD(PlainLoop):
    """The teacher's statistics are those of the present model."""

    def __init__(self, *given):
        super().__init__(*given)
        self.models: list[dict] = []

    def loss(self, client, model, x, y):
        logits = model(x)[1]
        loss = F.cross_entropy(logits, y)
        if not self.models:
            return loss
        teacher, last = copy.deepcopy(self.model).eval(), self.models[-2:]
        with torch.no_grad():
            for n, p in teacher.named_parameters():
                p.copy_(sum(of[n] for of in last) / len(last))
            goal = (teacher(x)[1] / 2.0).softmax(1)
        student = (logits / 2.0).log_softmax(1)
        return loss + 0.7 * 4.0 * F.kl_div(student, goal, reduction="batchmean")

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        self.models.append(parameters(self.model))


def test_fedgkd():
    method = methods("fedgkd", beta=0.7, tau=2.0, models=2)
    found, expected = run(method, 4).run.server, loop(FedGKD, 4)[1]
    torch.testing.assert_close(found, dict(expected), **CLOSE)


def test_fedgkd_with_one_model_has_the_servers_as_teacher():
    found = run(methods("fedgkd", beta=0.7, models=1), 1).run.server
    torch.testing.assert_close(found, run(Method(), 1).run.server, **CLOSE)
    step = make_step(
        logits=torch.tensor([[1.0, 2.0]]).double(),
        features=torch.zeros(1, 1),
        server={"w": torch.ones(1)},
        shared={"fedgkd": {"sum": {"w": torch.zeros(1)}, "number": torch.tensor(7.0)}},
        forward=lambda model, x: (None, torch.stack([model["w"], 2 - model["w"]], 1).double()),
    )
    one = methods("fedgkd", beta=0.7, tau=1.0, models=1).penalty(step)
    torch.testing.assert_close(one, methods("fedavg_kd", beta=0.7).penalty(step))


# --- what a client keeps -----------------------------------------------------------------------


@pytest.mark.parametrize("private", [(), ("head.",)])
def test_an_initial_memory_stays_if_a_method_keeps_nothing_else(private):
    seen = []
    method = Method(
        memory=lambda start, client: {"place": torch.tensor(client)},
        begin=lambda client: seen.append(int(client.memory["place"])) or {},
        private=private,
    )
    found = run(method)
    seen.clear()
    own(found, 4)
    assert {*seen} == {4}


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made", [Method(begin=lambda client: {}), Method(personal=lambda client: {})]
)
def test_a_model_of_ones_own_needs_tests_of_ones_own(made):
    with pytest.raises(UsageError, match="`mine` is evaluated on every client's own test data"):
        check_method("mine", made, PROTOCOL)
    check_method("mine", made, PROTOCOL | {"client_test": 0.2})


WRONG = [
    ("finetuned", {"part": "tail"}),
    ("finetuned", {"epochs": -1}),
    ("ditto", {"lam": -1.0}),
    ("apfl", {"alpha": 1.5}),
    ("apfl", {"mix": "both"}),
    ("apfl", {"form": "text"}),
    ("fedrod", {"gamma": -1.0}),
    ("fedphp", {"lam": 2.0}),
    ("pfedme", {"delta": 0.0}),
    ("pfedme", {"inner": 0}),
    ("pfedme", {"mu": -1.0}),
    ("pfedme", {"form": "text"}),
    ("knnper", {"lam": 1.5}),
    ("knnper", {"k": 0}),
    ("knnper", {"kernel": "cubic"}),
    ("perfedavg", {"alpha": -0.1}),
    ("perfedavg", {"distance": 0.0}),
    ("fedala", {"part": "body"}),
    ("fedala", {"share": 0.0}),
    ("fedala", {"settled": -1.0}),
    ("fedproto", {"average": "none"}),
    ("fedamp", {"sigma": 0.0}),
    ("fedgkd", {"models": 0}),
    ("fedpac", {"lam": -1.0}),
    ("fedpac", {"head_share": 2.0}),
    ("fedpac", {"head_lr": -1.0}),
]


@pytest.mark.parametrize(("name", "keywords"), WRONG)
def test_a_value_that_means_nothing_is_refused(name, keywords):
    with pytest.raises(UsageError, match=name):
        methods(name, **keywords)
