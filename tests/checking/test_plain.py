"""Methods written a second time as plain loops, against the engine: `fedgrid.checking.plain`."""

import pytest
import torch

from conftest import methods
from fedgrid.checking import small
from fedgrid.checking.plain import PlainLoop, difference, play_both
from fedgrid.method import Method
from fedgrid.runtime.names import UsageError


def test_fedavg():
    assert difference(PlainLoop, methods("fedavg")) < 1e-12


def test_fedavg_with_adam():
    assert difference(PlainLoop, methods("fedavg"), optimiser="adam", momentum=0.0) < 1e-9


class FedSAM(PlainLoop):
    def correct(self, client, model, x, y):
        params = [*model.parameters()]
        norm = torch.stack([p.grad.square().sum() for p in params]).sum().sqrt()
        with torch.no_grad():
            far = [0.1 * p.grad / (norm + 1e-12) for p in params]
            for p, e in zip(params, far, strict=True):
                p.add_(e)
                p.grad = None
        there = {n: b.clone() for n, b in model.named_buffers()}
        self.loss(client, model, x, y).backward()
        with torch.no_grad():
            for p, e in zip(params, far, strict=True):
                p.sub_(e)
            for name, buffer in model.named_buffers():  # not changed by the second pass
                buffer.copy_(there[name])


def test_fedsam():
    assert difference(FedSAM, methods("fedsam", rho=0.1)) < 1e-12


class FedRep(PlainLoop):
    def begin(self, client):
        model = super().begin(client)
        own = self.kept[client].get("head", self.make(7).head.state_dict())
        model.head.load_state_dict(own)
        return model

    def train(self, client):
        model, batches = self.begin(client), [*self.batches(client)]
        head, body = [*model.head.parameters()], [*model.body.parameters()]
        rate = {"lr": self.rate(), "momentum": self.protocol["momentum"]}
        rate["weight_decay"] = self.protocol["weight_decay"]
        first, second = torch.optim.SGD(head, **rate), torch.optim.SGD(body, **rate)
        for number, (x, y) in enumerate(batches):
            model.zero_grad()
            self.loss(client, model, x, y).backward()
            (first if number < len(batches) * 0.5 else second).step()
        self.kept[client]["head"] = {n: w.clone() for n, w in model.head.state_dict().items()}
        return model


def test_fedrep():
    found, plain = play_both(FedRep, methods("fedrep"))
    expected = plain.model.state_dict()
    body = {n: w for n, w in expected.items() if not n.startswith("head.")}
    torch.testing.assert_close({n: found.server[n] for n in body}, body, rtol=1e-9, atol=1e-11)
    for client, memory in found.memory.items():
        own = {n.removeprefix("head."): w for n, w in memory["private"].items()}
        torch.testing.assert_close(own, plain.kept[client]["head"], rtol=1e-9, atol=1e-11)


def test_a_misspelt_field_and_a_name_instead_of_a_method_are_refused():
    with pytest.raises(UsageError, match="participation"):
        difference(PlainLoop, Method(), partcipation=0.2)
    with pytest.raises(UsageError, match="not a method"):
        difference(PlainLoop, "fedprox")


def test_a_client_without_steps_is_named_if_a_method_divides_by_them():
    def zeros(start, client):
        return {"kept": torch.zeros(1, dtype=torch.float64)}

    def divided(client):
        return {"kept": torch.ones(1, dtype=torch.float64) / torch.tensor(float(client.steps))}

    data = small.uneven((5, 0, 9))
    with pytest.raises(UsageError, match=r"kept.*steps"):
        play_both(PlainLoop, Method(memory=zeros, remember=divided), data=data, participation=1.0)
