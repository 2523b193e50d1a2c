"""FedRS: scale down the logits of classes that a client does not have (Li & Zhan, KDD 2021).

The rule `by="presence"` and its alpha of 0.5 are the paper's, as in FedDecorr's code; `by="count"`
is the rule of the authors' later code, FedRepo. FedRepo's classifier has no bias. The classifiers
here have one, and it is scaled with the rest of the logit, as in FedDecorr's code.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.runtime.names import UsageError

NEUTRAL = {"alpha": 1.0}  # with which it is FedAvg


def method(alpha: float = 0.5, by: str = "presence") -> Method:
    """The logit of a missing class is multiplied by alpha in [0, 1]; 1 is FedAvg.

    by="presence" is the paper's rule. With by="count", of the authors' later code, the factor grows
    from alpha to 1 with the class's samples divided by those of the most frequent class.
    """
    if by not in ("presence", "count"):
        raise UsageError(f"fedrs: by is presence or count, not {by!r}")

    def restricted(step: Step) -> Tensor:
        counts = step.counts.to(step.logits)
        share = (counts > 0).to(counts) if by == "presence" else counts / counts.max().clamp(min=1)
        return replace(
            step, logits=step.logits * torch.lerp(share, torch.ones_like(share), alpha)
        ).cross_entropy()

    return Method(loss=restricted, padded=True)
