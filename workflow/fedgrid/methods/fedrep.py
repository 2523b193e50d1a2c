"""FedRep: train the classifier first, then the body (Collins et al., ICML 2021).

Each client keeps its classifier. In the first share of its local steps it trains this alone, and in
the others the body alone, which the server averages. The other part, and its momentum, rest
meanwhile. With the same numbers for SGD, the server's body and all classifiers are equal to those
of a copy of the authors' code on the same batches, to 1e-15, if it runs with a PyTorch from 2.0 on.

That code is older. In a PyTorch before 2.0 `zero_grad` leaves gradients of zero, with which the
classifier goes on while the body is trained: by its momentum and by weight decay. `rest=False` does
this, equal to that code with such gradients, to 1e-15.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Method, Model, Step

RANGES = {"head_share": "[0, 1]"}
PRIVATE = ("head.",)
OPTIMISERS = ("sgd",)  # a resting parameter would have other steps than Adam counts
ADDED = ("rest",)


def method(head_share: float = 0.5, rest: bool = True) -> Method:
    """head_share: the share of a client's local steps that train its classifier.

    rest: whether the classifier rests while the body is trained.
    """
    trained = phases(head_share) | Method(private=PRIVATE)
    return trained if rest else coasting(trained)


def coasting(trained: Method) -> Method:
    """Return the method whose classifier gets zero gradients where it would rest."""

    phase: Any = trained.rate

    def rate(step: Step) -> dict[str, Tensor]:
        found = phase(step).items()
        return {n: torch.ones_like(a) if n.startswith(PRIVATE) else a for n, a in found}

    def correct(step: Step, gradient: Model) -> Model:
        return {n: gradient[n] * a for n, a in phase(step).items() if n in gradient}

    return replace(trained, rate=rate, correct=correct)


def phases(head_share: float) -> Method:
    """Return the two phases of the local training."""

    def phase(step: Step) -> dict[str, Tensor]:
        first = (step.step < step.steps * head_share).to(step.valid)
        return {n: first if n.startswith(PRIVATE) else 1 - first for n in step.params}

    return Method(rate=phase, padded=True, optimisers=OPTIMISERS)
