"""Distillation over some of the classes: what FedNTD, FedLMD and their kin have in common.

A teacher's probabilities and a student's log-probabilities are each taken over the classes that are
kept, at a temperature tau. A sample whose teacher keeps no class contributes nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgrid.method import Step

NEVER = -1e9  # a logit whose probability is 0 beside any other


def but_true(step: Step) -> Tensor:
    """(B, K) False for a sample's own class."""
    return ~F.one_hot(step.y, step.logits.shape[1]).bool()


def majority(step: Step) -> Tensor:
    """(K,) the classes of which the client has more than n_k / K samples (Lu et al., 2023)."""
    return step.counts > step.counts.sum() / len(step.counts)


def teacher(logits: Tensor, kept: Tensor, tau: float) -> Tensor:
    """Probabilities (B, K) over the classes kept (B, K), 0 for the others."""
    return F.softmax((logits / tau).masked_fill(~kept, NEVER), dim=1) * kept


def uniform(step: Step, kept: Tensor, classes: Tensor) -> Tensor:
    """1 / classes for every class kept, (B, K)."""
    return kept.to(step.logits) / classes.clamp(min=1)


def divergence(step: Step, target: Tensor, kept: Tensor, tau: float) -> Tensor:
    """tau^2 KL(target || student), the student over the classes kept; mean over the batch."""
    student = F.log_softmax((step.logits / tau).masked_fill(~kept, NEVER), dim=1)
    each = torch.special.xlogy(target, target) - target * student
    return tau**2 * step.mean(each.sum(1))
