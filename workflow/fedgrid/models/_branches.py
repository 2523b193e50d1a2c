"""A model whose blocks are shared, private or both, built from any model that names its blocks.

Li et al., "Aggregate or Not? Exploring Where to Privatize in DNN Based Federated Learning Under
Different Non-IID Scenes" (arXiv 2107.11954, 2021), definitions 4.1 to 4.3. A split cuts the blocks
of a model into a lower and an upper part. A way to privatise is written with letters, as in the
paper: A and B are the lower and the upper part that all clients share, a and b are those that each
client keeps for itself. So AaB has a shared and a private lower part, and a shared upper part.

Shared blocks have the names that they have in the plain model, and the names of private entries
begin with `private.`. If a block is shared and private, the private one is drawn anew.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedgrid.federation import seeds
from fedgrid.models import Classifier
from fedgrid.runtime.names import UsageError

PRIVATE = "private."  # how the names of private entries begin


class Branch(nn.Module):
    """The blocks of a model at some places, under the names that they have in the model."""

    def __init__(self, model: Classifier, places: Iterable[int]):
        super().__init__()
        self.blocks = {place: children(model, place) for place in places}
        self.body = nn.Sequential()
        for name in (name for names in self.blocks.values() for name in names):
            if name == "head":
                self.head = model.head
            else:
                self.body.add_module(name, getattr(model.body, name))

    def run(self, x: Tensor, places: range) -> Tensor:
        """Return the output of the blocks at these places, one after the other."""
        for name in (name for place in places for name in self.blocks[place]):
            x = (self.head if name == "head" else getattr(self.body, name))(x)
        return x

    def end(self, h: Tensor, places: range) -> tuple[Tensor, Tensor]:
        """Return the input and the output of the last block, after those at these places."""
        features = self.run(h, places[:-1])
        return features, self.run(features, places[-1:])


class Branches(Branch):
    """A model with a way to privatise: inputs (B, *shape) -> features (B, width), logits.

    Two lower parts before one upper part give the mean of their outputs. Two upper parts give
    logits (B, 2, K) in training, the shared ones first. In evaluation they give the logarithm of
    the mean of both probabilities or, with `product`, of their product.
    """

    def __init__(
        self, model: Classifier, way: str, split: int | None = None, product: bool = False
    ):
        split = check_split(model, split)
        every = range(len(model.blocks))
        parts = {"A": every[:split], "B": every[split:]}
        shared = [place for letter in parts if letter in way for place in parts[letter]]
        own = [place for letter in parts if letter.lower() in way for place in parts[letter]]
        super().__init__(model, shared)
        self.private = Branch(drawn_again(model) if {*shared} & {*own} else model, own)
        self.lower, self.upper = parts.values()
        self.below, self.above = (
            [self] * (letter in way) + [self.private] * (letter.lower() in way) for letter in parts
        )
        self.border = every[: model.encoder], every[model.encoder :]  # of encoder and classifier
        self.layout, self.width, self.product = model.layout, model.width, product

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the last block, the shared one if there is one, and logits."""
        hidden = [branch.run(x, self.lower) for branch in self.below]
        if len(hidden) > len(self.above):
            total: Any = sum(hidden)
            hidden = [total / len(hidden)]
        pairs = zip(
            self.above, hidden if len(hidden) > 1 else hidden * len(self.above), strict=True
        )
        features, logits = zip(*(branch.end(h, self.upper) for branch, h in pairs), strict=True)
        return features[0], self.joined(*logits)

    def joined(self, *logits: Tensor) -> Tensor:
        """Return the logits of one upper part, or of two: side by side, or as a prediction."""
        if len(logits) == 1:
            return logits[0]
        both = torch.stack(logits, 1)
        if self.training:
            return both
        both = both.log_softmax(2)
        return both.sum(1) if self.product else both.logsumexp(1) - math.log(2)

    def is_double(self) -> bool:
        """Whether both branches have all blocks."""
        return len(self.blocks) == len(self.private.blocks) == len(self.lower) + len(self.upper)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the shared and of the private encoder."""
        return self.run(x, self.border[0]), self.private.run(x, self.border[0])

    def classify(self, shared: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the shared and of the private classifier."""
        return self.run(shared, self.border[1]), self.private.run(own, self.border[1])


class Fusion(Branches):
    """Both branches whole, with weights that are learnt: AutoCS, AutoSA and AutoHS (section 4.3).

    `alpha` mixes the outputs of both encoders, and `beta` those of both classifiers. A matrix
    (2, 2) has a row for each classifier; a pair (2,) is for both. Weights are the softmax of
    coefficients divided by `temperature`. With `noise` Gumbel noise is added to them in training,
    once per batch. With `hard` it is added in evaluation, too, and the larger weight is then 1 in
    the forward pass.

    There is one output, or, if `beta` has the form of `alpha` (`two_outputs`), there are two.
    """

    def __init__(
        self,
        model: Classifier,
        matrix: bool,
        temperature: float,
        noise: bool = False,
        hard: bool = False,
        two_outputs: bool = False,
    ):
        super().__init__(model, "AaBb")
        shape = (2, 2) if matrix else (2,)
        equal = partial(model.head.weight.new_full, fill_value=0.5)  # as in the authors' code
        self.alpha = nn.Parameter(equal(shape))
        self.beta = nn.Parameter(equal(shape if two_outputs else (2,)))
        self.temperature, self.noise, self.hard = temperature, noise, hard
        self.two_outputs = two_outputs

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the shared classifier's last block, and logits."""
        pairs = zip((self, self.private), self.mix(self.alpha, *self.encode(x)), strict=True)
        features, logits = zip(*(branch.end(h, self.border[1]) for branch, h in pairs), strict=True)
        fused = self.mix(self.beta, *logits)
        return features[0], self.joined(*fused[: 1 + self.two_outputs])

    def mix(self, coefficients: Tensor, shared: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixture for the shared and that for the private branch."""
        rows = self.weights(coefficients, shared).expand(2, 2)
        return tuple(row[0] * shared + row[1] * own for row in rows)

    def weights(self, coefficients: Tensor, features: Tensor) -> Tensor:
        """Return weights that sum to 1 in each row, for a batch with these features."""
        noisy = self.noise and (self.training or self.hard)
        if noisy:
            coefficients = coefficients - (-self.uniform(coefficients, features).log()).log()
        soft = torch.softmax(coefficients / self.temperature, -1)
        if not (noisy and self.hard):
            return soft
        largest = (soft == soft.amax(-1, keepdim=True)).to(soft)
        return largest - soft.detach() + soft

    def uniform(self, coefficients: Tensor, features: Tensor) -> Tensor:
        """Return a random number in [0, 1) for each coefficient.

        In evaluation the batch seeds them: evaluating a model changes neither the random numbers of
        its training nor those of its next evaluation.
        """
        if self.training:
            return torch.rand_like(coefficients)
        about = seeds.seed("noise", coefficients.tolist(), features.sum().item())
        drawn = torch.rand(coefficients.shape, generator=torch.Generator().manual_seed(about))
        return drawn.to(coefficients)


def shared_path(model: Branches) -> Classifier:
    """Return the plain model of the shared blocks, with the same parameters and names."""
    plain = Classifier(nn.Sequential(), 1, 1)
    plain.body, plain.head, plain.width = model.body, model.head, model.width
    return plain.train(model.training)


def check_split(model: Classifier, split: int | None) -> int:
    """Return the split, the model's own if there is none; UsageError if it does not exist."""
    if not model.blocks:
        raise UsageError(
            "this model has no blocks of which some can be private: choose a model with `BLOCKS` "
            "in its file"
        )
    split = model.encoder if split is None else split
    if not 0 <= split < len(model.blocks):
        raise UsageError(
            f"split {split} is not one of the model's {len(model.blocks)} blocks: it is the number "
            f"of blocks below the split, from 0 to {len(model.blocks) - 1}"
        )
    return split


def children(model: Classifier, place: int) -> list[str]:
    """Return the names of the body's children, or `head`, that are the block at this place."""
    names = [*(name for name, _ in model.body.named_children()), "head"]
    starts = [*map(names.index, model.blocks), len(names)]
    return names[starts[place] : starts[place + 1]]


def drawn_again(model: Classifier) -> Classifier:
    """Return a model of the same kind with other initial weights, which torch's seed fixes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.seed("private", torch.initial_seed()))
        assert model.draw is not None
        return model.draw()
