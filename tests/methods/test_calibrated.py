"""Methods that train more on the server, or nothing there, written a second time in plain loops."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from against import CLOSE, SETTING, SIZES, compare, engine, is_fedavg, loop
from conftest import brief, methods, simulate, tiny, uneven
from fedgrid.checking.plain import PlainLoop
from fedgrid.federation import schedule, seeds
from fedgrid.runtime.names import UsageError


class Local(PlainLoop):
    """Each client goes on from its own last model."""

    def begin(self, client):
        return copy.deepcopy(self.kept[client].get("model", self.model)).train()

    def aggregate(self, clients, models):
        for client, model in zip(clients, models, strict=True):
            self.kept[client]["model"] = model


def test_local_training_alone():
    found, (plain, _) = engine(methods("local")), loop(Local)
    assert found.memory.keys() == {k for k, kept in enumerate(plain.kept) if kept}
    for client, memory in found.memory.items():
        own = dict(plain.kept[client]["model"].state_dict())
        torch.testing.assert_close(memory["private"], own, **CLOSE)
    start = simulate(methods("local"), "loop", uneven(SIZES)).run
    torch.testing.assert_close(found.server, start.server, rtol=0, atol=0)


class FedDF(PlainLoop):
    """After averaging, Adam on the server's images, with the formulas of its paper."""

    steps, lr, batch, averaged = 7, 0.02, 4, "logits"

    def positions(self):
        members, names = self.data.members, (*self.data.names, self.round)
        cohort = torch.tensor(self.cohort()).numpy()
        noise = schedule.work(cohort, members, self.protocol, *names).noise
        drawn, found = torch.Generator().manual_seed(noise), []
        while len(found) < self.steps:
            order = torch.randperm(len(self.data.server), generator=drawn).tolist()
            found += [order[i : i + self.batch] for i in range(0, len(order), self.batch)]
        return found[: self.steps]

    def aggregate(self, clients, models):
        super().aggregate(clients, models)
        for model in (self.model, *models):
            model.eval()
        params = [*self.model.parameters()]
        mean, square = ([torch.zeros_like(p) for p in params] for _ in range(2))
        for number, positions in enumerate(self.positions()):
            x = self.inputs(self.data.server[positions])
            teachers = [model(x)[1] for model in models]
            if self.averaged == "logits":
                teachers = [sum(teachers) / len(teachers)]
            with torch.enable_grad():
                student = self.model(x)[1].log_softmax(1)
                each = [(t.softmax(1) * (t.log_softmax(1) - student)).sum(1) for t in teachers]
                slopes = torch.autograd.grad(torch.stack(each).mean(), params)
            norm = math.sqrt(sum(float((g**2).sum()) for g in slopes))
            rate = self.lr * (1 + math.cos(math.pi * number / self.steps)) / 2
            for i, g in enumerate(slopes):
                g = g * min(1.0, 5.0 / (norm + 1e-6))
                mean[i] = 0.9 * mean[i] + 0.1 * g
                square[i] = 0.999 * square[i] + 0.001 * g**2
                m, v = mean[i] / (1 - 0.9 ** (number + 1)), square[i] / (1 - 0.999 ** (number + 1))
                params[i].sub_(rate * m / (v.sqrt() + 1e-8))
        self.model.train()


class FedDFOfLosses(FedDF):
    averaged = "losses"


@pytest.mark.parametrize("kind", [FedDF, FedDFOfLosses])
def test_feddf(kind):
    compare(kind, methods("feddf", steps=7, lr=0.02, batch=4, average=kind.averaged))


def test_feddf_without_a_step_is_fedavg():
    is_fedavg(methods("feddf", steps=0), 1e-12, 1e-14)  # it adds up deltas in another way


def test_feddf_needs_data_of_the_server():
    bare = replace(uneven(SIZES), server=uneven(SIZES).server[:0])
    with pytest.raises(UsageError, match="server_data"):
        engine(methods("feddf"), 1, bare)


def own_labels(labels, logits, noise):
    return labels


def predicted_labels(labels, logits, noise):
    return logits.argmax(1)


def shuffled_labels(labels, logits, noise):
    return labels.sort().values[torch.randperm(len(labels), generator=noise)]


def calibrated(plain, labelled, samples, epochs, batch, lr, momentum):
    """The classifier of a plain loop's model, by means and covariances of clients, and SGD."""
    told, classes = [], plain.data.counts.shape[1]
    plain.model.eval()
    seed = seeds.seed("server", *plain.data.names, plain.round)
    noise = torch.Generator().manual_seed(seed)
    for client in range(len(plain.data.members)):
        x, y = plain.samples(client)
        z, logits = plain.model(x)
        z, y = z.detach(), labelled(y, logits, noise)
        told.append([z[y == c] for c in range(classes)])
    noise = torch.Generator().manual_seed(seed)
    features, labels = [], []
    for c in range(classes):
        parts = [of[c] for of in told if len(of[c])]
        number = sum(map(len, parts))
        if number < 2:
            continue
        mean = sum(len(z) / number * z.mean(0) for z in parts)
        spread = torch.zeros(len(mean), len(mean), dtype=torch.float64)
        for z in parts:
            own = z.mean(0)
            if len(z) > 1:
                spread += (len(z) - 1) / (number - 1) * torch.cov(z.T)
            spread += len(z) / (number - 1) * torch.outer(own, own)
        spread -= number / (number - 1) * torch.outer(mean, mean)
        values, vectors = torch.linalg.eigh(spread)
        normal = torch.randn((samples, len(mean)), generator=noise, dtype=torch.float64)
        root = vectors * values.clamp(min=0).sqrt()
        features += [mean + root @ row for row in normal]
        labels += [c] * samples
    w, b = plain.model.head.weight.detach().clone(), plain.model.head.bias.detach().clone()
    moving = [torch.zeros_like(w), torch.zeros_like(b)]
    for _ in range(epochs):
        order = torch.randperm(len(labels), generator=noise).tolist()
        for i in range(0, len(order), batch):
            which = order[i : i + batch]
            z, y = torch.stack([features[j] for j in which]), [labels[j] for j in which]
            wrong = F.softmax(z @ w.T + b, 1) - F.one_hot(torch.tensor(y), classes)
            slopes = wrong.T @ z / len(which), wrong.mean(0)
            moving = [momentum * m + g for m, g in zip(moving, slopes, strict=True)]
            w, b = w - lr * moving[0], b - lr * moving[1]
    return {"head.weight": w, "head.bias": b}


@pytest.mark.parametrize(
    ("name", "labelled"),
    [
        ("ccvr", own_labels),
        ("ccvr_predicted", predicted_labels),
        ("ccvr_random", shuffled_labels),
    ],
)
def test_ccvr_and_its_placebos(name, labelled):
    given = {"samples": 5, "epochs": 3, "batch": 4, "lr": 0.1, "momentum": 0.9}
    made = simulate(methods(name, **given), "loop", uneven(SIZES), **SETTING)
    run = made.play(3)
    torch.testing.assert_close(run.server, engine(methods("fedavg")).server, rtol=0, atol=0)
    plain, expected = loop(PlainLoop)
    own = calibrated(plain, labelled, **given)
    assert float((own["head.weight"] - expected["head.weight"]).abs().max()) > 0.01
    found = made.engine.evaluation.deployed(run)
    torch.testing.assert_close(found, expected | own, rtol=1e-7, atol=1e-9)
    again = made.engine.evaluation.deployed(replace(run))
    torch.testing.assert_close(again, found, rtol=0, atol=0)


def test_ccvr_by_predictions_reads_no_label_and_is_ccvr_where_all_are_right():
    """Of one model, on the same images with labels that it predicts, and with others."""
    data = uneven(SIZES)
    plain = loop(PlainLoop, rounds=0)[0]
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


def test_ccvr_without_an_epoch_is_fedavg():
    made = simulate(methods("ccvr", epochs=0), "loop", uneven(SIZES), **SETTING)
    run = made.play(2)
    torch.testing.assert_close(made.engine.evaluation.deployed(run), run.server, rtol=0, atol=0)


def test_ccvr_makes_a_blind_classifier_see():
    """A classifier of zeros, on features that tell the classes apart, learns from their moments."""
    made = simulate(methods("ccvr", epochs=50, lr=0.1), "loop", uneven(SIZES), **SETTING)
    blind = {n: w * (not n.startswith("head.")) for n, w in made.run.server.items()}
    made.run = type(made.run)(blind, made.run.shared)
    before, after = (
        made.engine.evaluation.evaluate(blind),
        made.engine.evaluation.evaluate(made.engine.evaluation.deployed(made.run)),
    )
    assert after["loss"] < before["loss"]


@pytest.mark.parametrize("name", ["ccvr", "ccvr_predicted", "ccvr_random", "feddf"])
def test_a_server_in_single_precision_stays_in_it(name):
    data = uneven(SIZES)
    data = replace(data, mean=data.mean.float(), std=data.std.float())
    made = simulate(brief(name), "loop", data, lambda seed: tiny(seed).float(), **SETTING)
    found = made.engine.evaluation.deployed(made.play(1))
    assert {w.dtype for w in found.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("ccvr", {"samples": 0}),
        ("ccvr", {"batch": 0}),
        ("ccvr", {"epochs": -1}),
        ("feddf", {"steps": -1}),
        ("feddf", {"batch": 0}),
        ("feddf", {"average": "models"}),
    ],
)
def test_a_hyper_parameter_without_a_meaning_is_refused(name, wrong):
    with pytest.raises(UsageError, match=name):
        methods(name, **wrong)
