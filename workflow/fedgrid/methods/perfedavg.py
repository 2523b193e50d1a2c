"""Per-FedAvg: train a model that is good after one step of SGD (Fallah et al., NeurIPS 2020).

Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach". The first half D of each batch gives the step
w' = w - alpha grad f(w; D), and the local model follows grad f(w'; D') of the second half D'. With
an odd number of samples, the one in the middle belongs to both. A half may have fewer samples than
the protocol's `smallest_batch`: for a model with BatchNorm set this to 3 or more, because a half of
one sample has no deviation. A client is evaluated after one step with the rate alpha on a batch of
its own.

Without the second derivative this is the paper's variant FO. With `hessian` it is HF: from the
direction g is subtracted alpha times (grad f(w + e g; D) - grad f(w - e g; D)) / (2 e), an estimate
of the Hessian times g. The paper draws three batches for a step and the code of pFedMe's authors
two; here it is one, so that all methods see the same samples. If that code gets the halves as its
two batches, the server's model of FO is equal to its own, to 1e-15. That code evaluates after a
second step with the rate of the local training.
"""

import torch

from fedgrid.method import Client, Method, Model, Step

RANGES = {"alpha": "[0, inf)", "distance": "(0, inf)"}
PRIVATE = True


def method(alpha: float = 0.01, hessian: bool = False, distance: float = 0.001) -> Method:
    """alpha: the rate of the one step; distance: e."""

    def ahead(model: Model, way: Model, rate: float) -> Model:
        return model | {n: model[n] - rate * way[n] for n in way}

    def meta(step: Step, gradient: Model) -> Model:
        place, half = step.valid.cumsum(0), step.size / 2
        first, second = step.valid * (place < half + 1), step.valid * (place > torch.floor(half))
        there = ahead(step.params, step.gradient(step.params, first), alpha)
        way = step.gradient(there, second)
        if not hessian:
            return way
        sides = (step.gradient(ahead(step.params, way, e), first) for e in (-distance, distance))
        up, down = sides
        return {n: g - alpha * (up[n] - down[n]) / (2 * distance) for n, g in way.items()}

    def adapted(client: Client) -> Model:
        for x, y in client.epoch():
            return ahead(client.model, client.gradient(client.model, x, y), alpha)
        return {}

    return Method(correct=meta, personal=adapted, padded=True)
