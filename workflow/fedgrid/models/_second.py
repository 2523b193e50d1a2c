"""A shared model, and what a client keeps beside it: a second model, or a second classifier.

Shared entries have the names that they have in the plain model, so that `shared_path` gives the
server's model. The names of private entries begin with `private.`. In training there are two
outputs, logits (B, 2, K), the shared one first. In evaluation there is the client's own alone; the
shared part is called then, too, so that both have the same convolutions (`engine/dead_taps.py`).
"""

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedgrid.models import Classifier


class Pair(nn.Module):
    """A model and its private copy, which begins with the same weights."""

    def __init__(self, model: Classifier):
        super().__init__()
        self.body, self.head = model.body, model.head
        self.private = self.copy(model)
        self.layout, self.width = model.layout, model.width

    def copy(self, model: Classifier) -> nn.Module:
        """Return what the client keeps."""
        return copy.deepcopy(model)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits: in training the shared features, and both logits."""
        features = self.body(x)
        logits = self.head(features)
        own = self.own(x, features.detach(), logits.detach())
        return (features, torch.stack([logits, own[1]], 1)) if self.training else own

    def own(self, x: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the client's own features and logits; it gets the shared ones."""
        return self.private(x)


class Apart(Pair):
    """A model and a private copy that alone is called in evaluation, and is not in training."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits: in training the shared ones."""
        features = self.body(x)
        logits = self.head(features)
        return (features, logits) if self.training else self.private(x)


class Mixture(Pair):
    """A model and a private copy, mixed with the weights 1 - alpha and alpha, cut to 0..1.

    Parameters are mixed or, with `outputs`, logits. The client's own output trains the private copy
    and alpha, not the shared model.
    """

    def __init__(self, model: Classifier, alpha: float, outputs: bool = False):
        super().__init__(model)
        # The model gets the precision of its run later, which may be double.
        self.alpha = nn.Parameter(torch.tensor(alpha, dtype=torch.float64))
        self.outputs = outputs

    def own(self, x: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and logits of the mixture."""
        alpha = self.alpha + (self.alpha.clamp(0, 1) - self.alpha).detach()
        if self.outputs:
            features, own = self.private(x)
            return features, alpha * own + (1 - alpha) * logits
        shared, own = dict(self.named_parameters()), dict(self.private.named_parameters())
        mixed = {name: alpha * w + (1 - alpha) * shared[name].detach() for name, w in own.items()}
        return functional_call(self.private, mixed, (x,))


class TwoHeads(Pair):
    """A model and a private copy of its classifier, whose logits are added to the shared ones."""

    def copy(self, model: Classifier) -> nn.Module:
        """Return a second classifier."""
        return copy.deepcopy(model.head)

    def own(self, x: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and the sum of both logits."""
        return features, logits + self.private(features)
