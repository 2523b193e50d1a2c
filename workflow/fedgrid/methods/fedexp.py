"""FedExP: a longer server step where clients disagree (Jhunjhunwala, Wang and Joshi, ICLR 2023).

With D_k = server - local of the round's clients, weights a_k and D = sum_k a_k D_k,

    eta = max(1, sum_k a_k |D_k|^2 / (2 (|D|^2 + epsilon)))        w <- w - eta D

In the paper the weights are equal; the authors' code has FedAvg's, as here (combine with `uniform`
for equal ones). That code multiplies epsilon by the number of the round's clients and by the square
of the learning rate as a share of the first round's (`form="code"`). With this form the server's
model and the evaluated one are equal to those of this code on the same batches, to 1e-12. It clips
gradients to the norm 10 (`clip`).

The server is evaluated by the mean of its last two models, as in that code (`average`).
"""

from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Server, Start

RANGES = {"epsilon": "[0, inf)", "form": ("paper", "code")}
ADDED = ("form",)


def method(epsilon: float = 0.001, average: bool = True, form: str = "paper") -> Method:
    """epsilon: the larger, the shorter is the step, and in the limit it is FedAvg's.

    average: whether the mean of the last two models is evaluated; form: of epsilon.
    """
    code = form == "code"

    def extend(cohort: Cohort, weights: Tensor) -> Tensor:
        flat = torch.cat([delta.flatten(1) for delta in cohort.deltas.values()], 1).to(weights)
        mean_square = weights @ flat.square().sum(1)
        added = epsilon * len(cohort.clients) * share_of_rate(cohort) ** 2 if code else epsilon
        square = (weights @ flat).square().sum() + added
        return weights * (mean_square / (2 * square).clamp(min=1e-30)).clamp(min=1)

    found = Method(scale=extend, weigh_after_training=True)
    if code:
        found |= Method(shared=no_rate, share=first_rate, uses_deltas=False)
    return found | averaged() if average else found


def share_of_rate(cohort: Cohort) -> Tensor:
    """Return the learning rate of a round as a share of the first round's."""
    first = cohort.shared["fedexp_lr"]
    return torch.where(first > 0, cohort.lr / first, 1.0)


def no_rate(start: Start) -> Memory:
    """Return that there has been no round."""
    return {"fedexp_lr": start.sizes.new_zeros(())}


def first_rate(cohort: Cohort, update: Model) -> Memory:
    """Return the learning rate of the first round."""
    return {"fedexp_lr": cohort.lr / share_of_rate(cohort)}


def averaged() -> Method:
    """Return a method whose server is evaluated by the mean of its last two models."""

    def first(start: Start) -> Memory:
        return {"fedexp": {n: start.server[n] for n in start.parameters}}

    def keep(cohort: Cohort, update: Model) -> Memory:
        return {"fedexp": {n: cohort.server[n] for n in update}}

    def deploy(server: Server) -> Model:
        before = server.shared["fedexp"] if server.round > 1 else {}
        return {n: (server.model[n] + w) / 2 for n, w in before.items() if n in server.model}

    given: dict[str, Any] = {"shared": first, "share": keep, "uses_deltas": False}
    return Method(deploy=deploy, **given)
