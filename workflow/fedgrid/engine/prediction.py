"""The classes that a finished run's model predicts for inputs as they are in the data."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedgrid.engine.evaluation import EVALUATION_BATCH
from fedgrid.federation import augment
from fedgrid.federation.stored import Data
from fedgrid.runtime.names import UsageError

NO_CLASS = -1  # the class of a sample with a NaN logit


@dataclass(frozen=True)
class Inputs:
    """What the samples of a run's dataset are, and how its protocol normalises them."""

    shape: tuple[int, ...]  # of one sample: (channels, height, width), or of tokens (length,)
    mean: list[float]  # per channel; empty for tokens
    std: list[float]
    tokens: int = 0  # symbols that a token can be; 0: the samples are images
    floats: bool = False  # whether the images are floats, as some of one's own data


def inputs_of(data: Data, statistics: tuple[list[float], list[float]]) -> Inputs:
    """Return the inputs of a dataset with these means and deviations per channel."""
    return Inputs(data.shape, *statistics, data.tokens, data.meta.get("floats", False))


@torch.no_grad()
def forward(module: nn.Module, inputs: Inputs, samples: Any) -> tuple[Tensor, Tensor]:
    """Return the features (n, D) and logits (n, K) of samples (n, ...), in parts of the samples.

    The parts are those in which the test set is evaluated. UsageError for other samples than the
    dataset's.
    """
    samples = checked(samples, inputs)
    parts = np.array_split(samples, max(math.ceil(len(samples) / EVALUATION_BATCH), 1))
    found = [module(normalised(torch.from_numpy(part.copy()), inputs)) for part in parts]
    features, logits = map(torch.cat, zip(*found, strict=True))
    return features, logits


def predict(module: nn.Module, inputs: Inputs, samples: Any) -> Tensor:
    """Return the probabilities (n, K) of all classes for samples, as `forward` takes them."""
    return forward(module, inputs, samples)[1].softmax(1)


def classes(probabilities: Tensor) -> Tensor:
    """Return the likeliest class of each sample (n,); NO_CLASS where it is not a number."""
    found = probabilities.argmax(1)
    return found.masked_fill(probabilities.isnan().any(1), NO_CLASS)


def normalised(samples: Tensor, inputs: Inputs) -> Tensor:
    """Return samples as the model takes them."""
    if inputs.tokens:
        return samples.long()
    mean, std = (torch.tensor(values)[:, None, None] for values in (inputs.mean, inputs.std))
    return augment.normalise(samples, mean, std)


def checked(samples: Any, inputs: Inputs) -> np.ndarray:
    """Return samples (n, *inputs.shape); UsageError unless they are as those of the dataset.

    As in data of one's own, axes of length 1 may be missing: (n, height, width) or (n, features).
    """
    array = samples.numpy(force=True) if isinstance(samples, Tensor) else np.asarray(samples)
    words, right = kind_of(inputs)
    if not (array.ndim and bare(array.shape[1:]) == bare(inputs.shape) and right(array.dtype)):
        shape = ", ".join(map(str, ("n", *inputs.shape)))
        raise UsageError(
            f"`predict` and `features` take the samples as they are in the data, {words} of the "
            f"shape ({shape}), and these are {array.dtype} {array.shape}: give samples that are "
            "not normalised, and one alone as `samples[None]`"
        )
    if inputs.tokens and array.size and not 0 <= array.min() <= array.max() < inputs.tokens:
        raise UsageError(
            f"`predict` and `features` take tokens from 0 to {inputs.tokens - 1}, and these are "
            f"from {array.min()} to {array.max()}: number them as the dataset does"
        )
    return array.reshape(len(array), *inputs.shape)


def bare(shape: tuple[int, ...]) -> list[int]:
    """Return a shape without axes of length 1."""
    return [size for size in shape if size != 1]


def kind_of(inputs: Inputs) -> tuple[str, Callable[[np.dtype], bool]]:
    """Return what the numbers of samples are in words, and a test of their type."""
    if inputs.tokens:
        return f"whole numbers below {inputs.tokens}", lambda dtype: dtype.kind in "iu"
    if inputs.floats:
        return "floats", lambda dtype: dtype.kind == "f"
    return "uint8 from 0 to 255", lambda dtype: dtype == np.uint8
