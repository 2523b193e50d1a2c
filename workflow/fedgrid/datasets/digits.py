"""Handwritten digits, 8x8 grey: the UCI test set that is part of scikit-learn (load_digits).

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
"""

from pathlib import Path

import numpy as np

from fedgrid.datasets import Split

TRAIN = 1_442
TEST = 355
CLASSES = 10
SHAPE = (1, 8, 8)
STATISTICS = {"standard": ((0.30518309,), (0.37599409,))}


def load(root: Path) -> Split:
    """Return all 1,797 images; every fifth image of a class, in their order, is a test image."""
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    images = np.round(values * 255 / 16).astype(np.uint8).reshape(-1, *SHAPE)  # values are 0..16
    labels = labels.astype(np.int64)
    rank = np.empty_like(labels)  # of an image within its class
    for label in range(CLASSES):
        rank[labels == label] = np.arange(np.sum(labels == label))
    test = rank % 5 == 4
    return Split(images[~test], labels[~test], images[test], labels[test])
