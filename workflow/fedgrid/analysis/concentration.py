"""How far weights of a given concentration lie from equal weights, by simulation.

The concentration of weights a is their effective number 1 / sum a^2, and the distance of two
weightings is their total variation, half the sum of absolute differences. Random weights are the
softmax of independent normal scores. The scores of each draw are scaled until the weights have the
effective number that is asked for.
"""

import numpy as np

DRAWS = 200
STEPS = 60  # of the bisection, for the scale of the scores
WIDEST = 1e4  # scale at which one weight is 1


def effective_number(weights: np.ndarray) -> np.ndarray:
    """Return the effective number of weights along the last axis."""
    return 1 / (weights**2).sum(axis=-1)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def random_weights(clients: int, wanted: float, seed: int = 0) -> np.ndarray:
    """Draw DRAWS random weightings of some clients, each with the wanted effective number."""
    scores = np.random.default_rng(seed).standard_normal((DRAWS, clients))
    low, high = np.zeros((DRAWS, 1)), np.full((DRAWS, 1), WIDEST)
    for _ in range(STEPS):
        middle = (low + high) / 2
        spread = effective_number(softmax(middle * scores))[:, None] > wanted
        low, high = np.where(spread, middle, low), np.where(spread, high, middle)
    return softmax(high * scores)


def random_distance(clients: int, wanted: float, seed: int = 0) -> float:
    """Return the mean total variation between random weights and equal weights.

    The random weights have the `wanted` effective number. The result is 0 if that is at least the
    number of clients, and NaN if it is NaN.
    """
    if np.isnan(wanted):
        return float("nan")
    if wanted >= clients:
        return 0.0
    weights = random_weights(clients, wanted, seed)
    return float(np.abs(weights - 1 / clients).sum(axis=-1).mean() / 2)
