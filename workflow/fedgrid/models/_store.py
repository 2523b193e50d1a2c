"""A model whose evaluation looks up the nearest of stored features.

The store has room for `capacity` features (C, width) and their classes (C, K), each a row with one
1, or zeros where nothing is stored. In training, and with an empty store, the model's output is its
own. The names of the store's entries begin with `store.`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedgrid.models import Classifier

STORE = "store."


class Store(nn.Module):
    """Features and their classes."""

    features: Tensor
    classes: Tensor

    def __init__(self, capacity: int, head: nn.Linear):
        super().__init__()
        weight = head.weight
        self.register_buffer("features", weight.new_zeros((capacity, head.in_features)))
        self.register_buffer("classes", weight.new_zeros((capacity, head.out_features)))


class Recalling(nn.Module):
    """A model and a store; `closeness` gives the logarithm of a neighbour's weight by distance."""

    def __init__(
        self,
        model: Classifier,
        capacity: int,
        k: int,
        lam: float,
        closeness: Callable[[Tensor], Tensor],
    ):
        super().__init__()
        self.body, self.head, self.store = model.body, model.head, Store(capacity, model.head)
        self.layout, self.width = model.layout, model.width
        self.k, self.lam = min(k, capacity), lam
        self.closeness: Callable[[Tensor], Tensor] = closeness

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, width) and logits (B, K); in evaluation, of the mixture."""
        features = self.body(x)
        logits = self.head(features)
        return features, logits if self.training else self.mix(features, logits)

    def mix(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return the logarithm of the mixture of the model's and the neighbours' probabilities."""
        stored, classes = self.store.features, self.store.classes
        far = torch.cdist(features, stored, compute_mode="donot_use_mm_for_euclid_dist")
        far = far.masked_fill(classes.sum(1) == 0, torch.inf)
        distances, places = far.topk(self.k, largest=False)
        there = distances.isfinite()
        weights = self.closeness(distances).masked_fill(~there, -torch.inf).softmax(1)
        found = (weights.nan_to_num()[:, :, None] * classes[places]).sum(1)
        share = self.lam * there.any(1, keepdim=True).to(found)
        mixed = share * found + (1 - share) * logits.softmax(1)
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()
