"""FedPAC: align features by prototypes, and combine classifiers for each client (ICLR 2023).

Xu, Tong and Huang, "Personalized Federated Learning with Feature Alignment and Classifier
Collaboration". In the first share of its local steps a client trains its classifier, in the others
the body, with features pulled to the global prototypes (`_prototypes.py`, weighed by samples). The
server averages the bodies. Client i of a round gets the classifier sum_j a_j phi_j of the round's
classifiers, where a >= 0 with the sum 1 minimises sum_j a_j^2 V_j + |sum_j a_j (h_i - h_j)|^2.
Here h_j (K, D) has the mean features of each class times the class's share of the client's samples,
and V_j is their variance divided by the number of samples, both under the body that the server
sent. Weights below 0.001 are set to 0, as in the official code.

That code trains the classifier for one epoch with the rate 0.1; here `head_share` says how long,
and `head_lr` may give such a rate, which does not fall from round to round. With both, all bodies
and classifiers are equal to that code's on the same batches, to 1e-15. It pulls the features of a
class without a global prototype to the client's own, here they are not pulled. The server also has
the mean of the classifiers, which the paper does not use. The placebo `shuffled` gives each client
the weights a of another one.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedgrid.method import Client, Cohort, Memory, Method, Model, Start, Step, relative
from fedgrid.methods import fedrep
from fedgrid.methods._prototypes import pull, total
from fedgrid.methods.contribution import of_another

RANGES = {"lam": "[0, inf)", "head_share": "[0, 1]", "head_lr": "[0, inf)"}
PRIVATE = True
OPTIMISERS = ("sgd",)  # a resting parameter would have other steps than Adam counts
ADDED = ("head_lr",)
LEAST = 0.001  # smaller weights are 0


def method(
    lam: float = 1.0, head_share: float = 0.5, shuffled: bool = False, head_lr: float = 0.0
) -> Method:
    """lam weighs the pull; head_share: share of steps that train the classifier.

    head_lr: the classifier's learning rate; 0: the protocol's. shuffled: the placebo.
    """
    local = Method(memory=number, remember=number_again, begin=begin, measure=tell)
    server = Method(shared=first, share=partial(combine, shuffled=shuffled), uses_deltas=False)
    phases = fedrep.phases(head_share)
    phases = with_head_rate(phases, head_lr) if head_lr else phases
    return phases | pull(lam, "samples") | local | server


def with_head_rate(phases: Method, lr: float) -> Method:
    """Return the phases of the local training with a learning rate of the classifier."""
    phase: Any = phases.rate

    def rate(step: Step) -> dict[str, Tensor]:
        found = phase(step).items()
        return {n: a * lr / step.lr if n.startswith("head.") else a for n, a in found}

    return replace(phases, rate=rate)


def number(start: Start, client: int) -> Memory:
    """Return the client's place among the classifiers."""
    return {"fedpac_client": torch.tensor(client, device=start.sizes.device)}


def number_again(client: Client) -> Memory:
    """Return the same place."""
    return {"fedpac_client": client.memory["fedpac_client"]}


def first(start: Start) -> Memory:
    """Return the initial classifier for every client."""
    heads = {n: start.server[n] for n in start.parameters if n.startswith("head.")}
    return {"fedpac": {n: w.expand(start.population, *w.shape) for n, w in heads.items()}}


def begin(client: Client) -> Model:
    """Return the classifier that the server has for the client."""
    place = client.memory["fedpac_client"]
    return {
        n: heads.index_select(0, place[None])[0] for n, heads in client.shared["fedpac"].items()
    }


def tell(client: Client) -> Memory:
    """Return the client's classifier, and h and V of its features."""
    size, found = client.counts.sum().clamp(min=1), total(client, client.server)
    h = found["features"] / size
    variance = (found["squares"] / size - h.square().sum()) / size
    head = {n: client.model[n] for n in client.shared["fedpac"]}
    return {"fedpac": {"h": h.flatten(), "variance": variance, "head": head}}


def combine(cohort: Cohort, update: Model, shuffled: bool) -> Memory:
    """Return the classifiers of all clients, with new ones for those of the round."""
    here = cohort.sizes.nonzero()[:, 0]
    told = [cohort.measured[k]["fedpac"] for k in here.tolist()]
    h, variance = (torch.stack([one[name] for one in told]) for name in ("h", "variance"))
    weights = torch.stack([best(one, h, variance) for one in h])
    if shuffled:
        weights = weights[of_another(weights, cohort.noise)]
    heads = {}
    for name, before in cohort.shared["fedpac"].items():
        new = torch.tensordot(weights, torch.stack([one["head"][name] for one in told]), dims=1)
        heads[name] = before.index_copy(0, cohort.clients[here], new)
    return {"fedpac": heads}


def best(own: Tensor, h: Tensor, variance: Tensor) -> Tensor:
    """Return the weights (C,) of a client with statistics h (D,) among those of the round (C, D).

    Least squares of the goal and of the sum's distance from 1 have the minimum's direction.
    """
    roots = variance.clamp(min=0).sqrt().diag()
    rows = torch.cat([roots, (own - h).T, torch.ones_like(roots[:1])]).double().cpu().numpy()
    if not np.isfinite(rows).all():  # the run diverges
        return torch.full_like(variance, torch.nan)
    goal = np.zeros(len(rows))
    goal[-1] = 1
    weights = relative(torch.from_numpy(nnls(rows, goal)[0]))
    return relative(weights * (weights >= LEAST)).to(h)
