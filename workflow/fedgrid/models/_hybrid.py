"""A model with hybrid paths: its lower blocks, and the upper ones as the server sent them.

The blocks that the server sent are a copy whose entries begin with `sent.`. It is not trained, and
its BatchNorm has the running statistics that the server sent. In training there are several
outputs, logits (B, 1 + paths, K), the model's own first; path l has the model's first l blocks. In
evaluation there is the model's own alone; the copy is called then, too, so that both have the same
convolutions (`engine/dead_taps.py`).
"""

import copy
from typing import Self

import torch
from torch import Tensor

from fedgrid.models import Classifier
from fedgrid.models._branches import Branch, check_split

SENT = "sent."  # how the names of the copy's entries begin


class Hybrids(Branch):
    """A model whose blocks have names: inputs (B, *shape) -> features (B, width), logits."""

    def __init__(self, model: Classifier):
        check_split(model, None)
        self.places = range(len(model.blocks))
        super().__init__(model, self.places)
        self.sent = Sent(copy.deepcopy(model), self.places[1:])
        self.layout, self.width = model.layout, model.width

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the last block and, in training, all outputs."""
        hidden = [x]
        for place in self.places:
            hidden.append(self.run(hidden[-1], range(place, place + 1)))
        *lower, logits = hidden[1:]
        starts = zip(self.places[1:], lower, strict=True)
        paths = [self.sent.run(h, range(place, len(self.places))) for place, h in starts]
        return lower[-1], torch.stack([logits, *paths], 1) if self.training else logits


class Sent(Branch):
    """Blocks that are always in evaluation mode."""

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)
