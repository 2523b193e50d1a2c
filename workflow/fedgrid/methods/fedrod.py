"""Fed-RoD: a shared classifier for all classes, a private one for a client's own (ICLR 2022).

Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification".
Body and shared classifier minimise the balanced softmax: the cross-entropy of the logits plus
gamma log n_c, where n_c is the number of the client's samples of class c. Upon the same features a
private classifier minimises the cross-entropy of the sum of its logits and the shared ones; this
trains no shared entry. The server averages the shared ones. A client is evaluated with the sum.

The authors have published no code. As in PFLlib, a private classifier begins with the weights of
the shared one; the server's model and all private classifiers are equal to those of PFLlib's steps
on the same batches, to 1e-15. The paper's variant with a hypernetwork is not here.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedgrid.method import Method, Step
from fedgrid.methods._partial import keep
from fedgrid.models._second import TwoHeads

RANGES = {"gamma": "[0, inf)"}
PRIVATE = ("private.",)


def method(gamma: float = 1.0) -> Method:
    """gamma: the power of the counts in the balanced softmax; 0 is the cross-entropy."""

    return two_heads(gamma, lambda step: step.counts)


def two_heads(gamma: float, get_counts: Callable[[Step], Tensor]) -> Method:
    """Return the method whose balanced softmax takes the counts (K,) that the function gives."""

    def balanced(step: Step) -> Tensor:
        generic, own = step.logits.unbind(1)
        counts = get_counts(step).to(generic)
        prior = gamma * counts.clamp(min=torch.finfo(counts.dtype).tiny).log()
        parts = (replace(step, logits=logits) for logits in (generic + prior, own))
        return torch.stack([part.cross_entropy() for part in parts]).sum()

    return keep(TwoHeads, True, False) | Method(loss=balanced, padded=True)
