"""Distillation over some classes, for FedNTD, FedLMD and similar methods.

The teacher's probabilities and the student's log-probabilities are each computed over the kept
classes, at a temperature tau. A sample whose teacher keeps no class contributes nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgrid.method import Step

NEVER = -1e9  # a logit whose softmax probability is 0


def but_true(step: Step) -> Tensor:
    """Return (B, K): False for a sample's own class, else True."""
    return ~F.one_hot(step.y, step.logits.shape[1]).bool()


def majority(step: Step) -> Tensor:
    """Return (K,): whether the client has more than n_k / K samples of a class (Lu et al.)."""
    return step.counts > step.counts.sum() / len(step.counts)


def teacher(logits: Tensor, kept: Tensor, tau: float) -> Tensor:
    """Return probabilities (B, K) over the kept classes (B, K), and 0 for the others."""
    return F.softmax((logits / tau).masked_fill(~kept, NEVER), dim=1) * kept


def uniform(step: Step, kept: Tensor, classes: Tensor) -> Tensor:
    """Return 1 / classes for every kept class and 0 for the others, (B, K)."""
    return kept.to(step.logits) / classes.clamp(min=1)


def divergence(step: Step, target: Tensor, kept: Tensor, tau: float) -> Tensor:
    """Return tau^2 KL(target || student) over the kept classes, averaged over the batch."""
    student = F.log_softmax((step.logits / tau).masked_fill(~kept, NEVER), dim=1)
    each = torch.special.xlogy(target, target) - target * student
    return tau**2 * step.mean(each.sum(1))
