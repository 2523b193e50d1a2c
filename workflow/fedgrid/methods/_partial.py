"""Methods whose clients keep a part of the network: its lower or its upper blocks, or copies.

Li et al., "Aggregate or Not? Exploring Where to Privatize in DNN Based Federated Learning Under
Different Non-IID Scenes" (arXiv 2107.11954, 2021). `split` is the number of blocks below the split:
the paper's b - 1. Without it, the split is between encoder and classifier. The server averages the
shared entries. The private ones persist at their client, and all clients start with the same.

The private entries are what a client can remember. The placebo `forgets` takes this memory away:
private entries are drawn anew whenever their client takes part.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from fedgrid.method import Method, Step
from fedgrid.models._branches import PRIVATE, Branches, shared_path


def privatise(way: str, split: int | None, forgets: bool, **options: Any) -> Method:
    """Return the method of a way to privatise, written with letters (`models/_branches.py`)."""
    there = way if split != 0 else way.replace("A", "").replace("a", "")
    if there.isupper():  # below the first block there is nothing that could be private
        return Method(architecture=partial(Branches, way="AB"))
    branches = partial(Branches, way=way, split=split, **options)
    loss = two_losses if "Bb" in way else None
    return keep(branches, {*way} >= {"A", "B"}, forgets) | Method(loss=loss, padded=True)


def keep(architecture: Callable[[Any], nn.Module], whole: bool, forgets: bool) -> Method:
    """Return a method with private entries; `whole` says that the shared blocks are all blocks."""
    served: Any = shared_path if whole else None
    private = (PRIVATE,)
    return Method(architecture=architecture, private=private, served=served, forgets=forgets)


def two_losses(step: Step) -> Tensor:
    """Return the sum of the cross-entropies of two outputs, logits (B, 2, K)."""
    outputs = step.logits.unbind(1)
    total: Any = sum(replace(step, logits=logits).cross_entropy() for logits in outputs)
    return total
