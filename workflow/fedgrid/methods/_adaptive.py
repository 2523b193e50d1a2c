"""Adaptive optimisers on the server (Reddi et al., "Adaptive Federated Optimization", ICLR 2021).

With D the round's weighted mean of local model - server's model, by element,

    m <- beta1 m + (1 - beta1) D        w <- w + lr m / (sqrt(v) + tau)

where v changes as the method says, with m = 0 and v = tau^2 at the start, as in the paper. Its
hyper-parameters are beta1 = 0.9, beta2 = 0.99 and tau = 0.001; lr is tuned for every dataset, and
has no default in the paper.

In the authors' code the optimisers are those of Keras: v begins at 0, and Adam and Yogi correct the
bias, m by 1 - beta1^t and v by 1 - beta2^t in round t (`form="code"`). Its Adagrad has no mean, and
is the same with beta1 = 0 in both forms but for the beginning of v.

With beta1 = 0, a huge tau and lr = 2 tau it is nearly FedAvg (`form="paper"`).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Start

Square = Callable[[Tensor, Tensor], Tensor]  # v, D^2 -> the new v


def adapt(
    name: str, square: Square, lr: float, beta1: float, tau: float, form: str, beta2: float = 0.0
) -> Method:
    """Return the method whose v follows `square`; in Adagrad beta2 is 0, and v has no bias."""
    code = form == "code"

    def first(start: Start) -> Memory:
        second = {n: torch.full_like(w, 0 if code else tau**2) for n, w in start.zeros().items()}
        counted = {"turns": start.sizes.new_zeros(())} if code else {}
        return {name: {"mean": start.zeros(), "square": second, **counted}}

    def remember(cohort: Cohort, update: Model) -> Memory:
        before = cohort.shared[name]
        mean, second = before["mean"], before["square"]
        mean = {n: beta1 * mean[n] + (1 - beta1) * change for n, change in update.items()}
        second = {n: square(second[n], change.square()) for n, change in update.items()}
        counted = {"turns": before["turns"] + 1} if code else {}
        return {name: {"mean": mean, "square": second, **counted}}

    def step(update: Model, shared: Memory) -> Model:
        mean, second = shared[name]["mean"], shared[name]["square"]
        rate = lr * (correction(shared[name]["turns"]) if code else 1)
        return {n: rate * mean[n] / (second[n].sqrt() + tau) for n in update}

    def correction(turns: Tensor) -> Tensor:
        return (1 - beta2**turns).sqrt() / (1 - beta1**turns)

    return Method(server=step, share=remember, shared=first, uses_deltas=False)
