"""What plain loops share: a model's parameters as one vector, and servers that add a change.

A plain loop is a method's algorithm as its paper has it, without the engine. `p` has the method's
hyper-parameters, by the names of its file.
"""

import copy
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedgrid.checking.plain import PlainLoop


def flat(model):
    """The parameters (P,), with their graph."""
    return parameters_to_vector(model.parameters())


def put(model, vector):
    """Set the parameters of a model in place, and return it."""
    vector_to_parameters(vector.detach().clone(), model.parameters())
    return model


def at(model, vector):
    """A copy of a model with other parameters."""
    return put(copy.deepcopy(model), vector)


def slope(model, x, y, training=True):
    """The gradient of the cross-entropy (P,); the model stays as it is."""
    twin = copy.deepcopy(model).train(training)
    loss = F.cross_entropy(twin(x)[1], y)
    return parameters_to_vector(torch.autograd.grad(loss, [*twin.parameters()]))


def grads(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def put_grads(model, vector):
    params = [*model.parameters()]
    for p, g in zip(params, vector.split([p.numel() for p in params]), strict=True):
        p.grad = g.view_as(p).clone()


def frozen(model, x):
    """Features and logits of a model in evaluation mode, which stays as it is."""
    with torch.no_grad():
        return copy.deepcopy(model).eval()(x)


def of_part(model, start):
    """Whether each parameter is in a part of the model, by the beginning of its name (P,)."""
    named = model.named_parameters()
    return torch.cat([torch.full((p.numel(),), n.startswith(start)) for n, p in named])


class Plain(PlainLoop):
    """FedAvg; `served` are the parameters that clients get, `deployed` those that are evaluated."""

    p: SimpleNamespace

    @property
    def w(self):
        """The server's parameters (P,)."""
        return flat(self.model).detach()

    def served(self):
        return self.w

    def deployed(self):
        return self.served()

    def mean_loss(self, client):
        """The loss of the server's model on all samples of a client."""
        x, y = self.samples(client)
        return float(F.cross_entropy(frozen(self.model, x)[1], y))

    def way(self, client):
        """The factors of the gradients of all local steps in a client's change, added up."""
        way = running = 0.0
        for _ in self.batches(client):
            running = self.protocol["momentum"] * running + 1
            way += running
        return way


class Change(Plain):
    """The server adds `step(d)` to its parameters: d is the mean of the clients' changes, `each`.

    The running statistics are averaged with the same weights.
    """

    def aggregate(self, clients, models):
        before = self.w
        self.each = torch.stack([flat(model).detach() - before for model in models])
        super().aggregate(clients, models)
        put(self.model, before + self.step(self.w - before, clients))

    def step(self, d, clients):
        return d


class Uniform(Plain):
    def weights(self, clients, models):
        return torch.full((len(clients),), 1 / len(clients), dtype=torch.float64)
