"""FedRS: scale down the logits of classes that a client does not have (Li & Zhan, KDD 2021).

The rule `by="presence"` and its alpha of 0.5 are the paper's, as in FedDecorr's code; `by="count"`
is the rule of the authors' later code, FedRepo, as it is meant. In fact FedRepo applies the rule to
its own factors again in each local step, so that a factor's distance from 1 shrinks in each step by
the factor 1 - alpha; `by="fading"` does this. FedRepo's classifier has no bias. The classifiers
here have one, and it is scaled with the rest of the logit, as in FedDecorr's code. If the bias is
scaled in FedRepo, too, the server's model with `by="fading"` is equal to its own on the same
batches, to 1e-15.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Method, Step

NEUTRAL = {"alpha": 1.0}  # with which it is FedAvg
RANGES = {"alpha": "[0, 1]", "by": ("presence", "count", "fading")}


def method(alpha: float = 0.5, by: str = "presence") -> Method:
    """The logit of a missing class is multiplied by alpha; 1 is FedAvg.

    by="presence" is the paper's rule. With by="count", of the authors' later code, the factor grows
    from alpha to 1 with the class's samples divided by those of the most frequent class. With
    by="fading", as that code does, this restriction fades from one local step to the next.
    """

    def restricted(step: Step) -> Tensor:
        counts = step.counts.to(step.logits)
        share = (counts > 0).to(counts) if by == "presence" else counts / counts.max().clamp(min=1)
        weight: Any = 1 - (1 - alpha) ** (step.step + 1).to(share) if by == "fading" else alpha
        factors = torch.lerp(share, torch.ones_like(share), weight)
        return replace(step, logits=step.logits * factors).cross_entropy()

    return Method(loss=restricted, padded=True)
