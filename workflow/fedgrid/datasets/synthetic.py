"""Coloured tiles and noise in the shape of CIFAR-10, for tests and benchmarks, without a file."""

from pathlib import Path

import numpy as np

from fedgrid.datasets import Split

TRAIN = 2_000
TEST = 500
CLASSES = 10
SHAPE = (3, 32, 32)
STATISTICS = {
    "standard": ((0.49049541, 0.50163205, 0.50550045), (0.23270956, 0.23595749, 0.22863805)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def load(root: Path) -> Split:
    """Draw a pattern of 4x4 tiles per class; an image is its class's pattern plus noise."""
    random = np.random.RandomState(0)  # numpy guarantees this generator's stream
    tiles = random.uniform(64, 192, (CLASSES, 3, 4, 4))
    prototypes = tiles.repeat(8, axis=2).repeat(8, axis=3)
    return Split(*_draw(TRAIN, prototypes, random), *_draw(TEST, prototypes, random))


def _draw(
    count: int, prototypes: np.ndarray, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count, dtype=np.int64) % CLASSES
    noise = random.normal(0, 48, (count, *SHAPE))
    return np.clip(prototypes[labels] + noise, 0, 255).astype(np.uint8), labels
