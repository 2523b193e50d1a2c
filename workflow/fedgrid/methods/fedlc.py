"""FedLC: logits are calibrated by a client's class counts (Zhang et al., ICML 2022).

The logit f_c of class c becomes g_c = f_c - tau n_c^(-1/4), with n_c the client's samples of the
class, and the loss of a sample of class y is

    -log(exp(g_y) / sum_c exp(g_c))

In the paper the sum leaves out c = y, so that the loss can be negative and does not level off
(`others=True`). The code that other groups published sums over all classes, as the default does,
whose server's model is equal to the one with FL-bench's loss on the same batches, to 1e-15.
A class without samples counts as 1e-8 samples, which lowers its logit by 100 tau; in the limit of
the equation such a class takes no part.

The placebo `fedlc_random` permutes a client's counts among the classes that it holds.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedgrid.method import Method, Step

NEUTRAL = {"tau": 0.0}  # with which it is FedAvg
RANGES = {"tau": "[0, inf)"}

LEAST = 1e-8  # samples of a class that a client does not have


def method(tau: float = 1.0, others: bool = False) -> Method:
    """tau weighs the calibration; 0 is FedAvg if `others` is False."""

    def loss(step: Step) -> Tensor:
        return calibrated(step, step.counts, tau, others)

    return Method(loss=loss, padded=True)


def calibrated(step: Step, counts: Tensor, tau: float, others: bool) -> Tensor:
    """Return the loss of a batch with logits that are calibrated by counts (K,)."""
    logits = step.logits - tau * counts.to(step.logits).clamp(min=LEAST) ** -0.25
    if not others:
        return replace(step, logits=logits).cross_entropy()
    true = step.y[:, None] == torch.arange(logits.shape[1], device=logits.device)
    own = logits.gather(1, step.y[:, None])[:, 0]
    return step.mean(logits.masked_fill(true, -torch.inf).logsumexp(1) - own)
