"""Methods whose clients have models of their own, written a second time as plain loops."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from conftest import PROTOCOL, Simulation, methods, simulate, tiny, uneven
from fedgrid.checking.plain import PlainLoop
from fedgrid.engine.client_evaluation import evaluated_model
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError
from fedgrid.training.build import check_method

SETTING = {"augment": [], "local_unit": "epochs", "local": 2, "rounds": 4}
SIZES = (5, 9, 12, 6, 8, 7)
EXACT = {"rtol": 1e-9, "atol": 1e-11}
ROUNDS = 3


def run(method: Method, **protocol) -> Simulation:
    """The engine after three rounds."""
    found = simulate(method, "loop", uneven(SIZES), **SETTING | protocol)
    found.play(ROUNDS)
    return found


def played(kind: type[PlainLoop], **protocol) -> PlainLoop:
    """A plain loop after three rounds."""
    made = kind(tiny, uneven(SIZES), PROTOCOL | SETTING | protocol, 7)
    made.play(ROUNDS)
    return made


def own(found: Simulation, client: int) -> dict:
    """The model by which the engine evaluates a client that waits for its next round."""
    engine = found.engine
    return evaluated_model(engine.method, engine.idle_client(found.run, client))


def compare(kind: type[PlainLoop], method: Method, **protocol) -> None:
    """Hold the server's model, and every client's own, against those of a plain loop.

    A plain loop gives a client's own entries, by the engine's names, with `own`.
    """
    found, plain = run(method, **protocol), played(kind, **protocol)
    shared = plain.model.state_dict()
    public = found.engine.public(n for n in shared if n in found.run.server)
    theirs = {n: found.run.server[n] for n in public}
    torch.testing.assert_close(theirs, {n: shared[n] for n in public}, **EXACT)
    for client in range(len(SIZES)):
        expected = plain.own(client)
        model = own(found, client)
        torch.testing.assert_close({n: model[n] for n in expected}, dict(expected), **EXACT)


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

    def own(self, client):
        first = {n: w for n, w in self.make(7).state_dict().items() if self.keeps(n)}
        return self.model.state_dict() | first | self.kept[client]

    def begin(self, client):
        model = super().begin(client)
        model.load_state_dict(self.own(client), strict=False)
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


# --- fine-tuning -------------------------------------------------------------------------------


class FineTuned(PlainLoop):
    part = ""

    def own(self, client):
        model = copy.deepcopy(self.model)
        for _ in range(2):
            for x, y in self.epoch(client):
                found = gradient(model, x, y)
                chosen = {n: g * n.startswith(self.part) for n, g in found.items()}
                model = moved(model, chosen, self.rate())
        return model.state_dict()


class HeadTuned(FineTuned):
    part = "head."


def test_finetuned():
    compare(FineTuned, methods("finetuned", epochs=2))
    compare(HeadTuned, methods("finetuned", epochs=2, part="head"))


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
    torch.testing.assert_close(network.forward(model, x)[1], expected, **EXACT)


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
    ("fedrod", {"gamma": -1.0}),
]


@pytest.mark.parametrize(("name", "keywords"), WRONG)
def test_a_value_that_means_nothing_is_refused(name, keywords):
    with pytest.raises(UsageError, match=name):
        methods(name, **keywords)
