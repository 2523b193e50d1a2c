"""Handwritten digits by 40 made-up writers, 28x28 grey, for the quick scale: no file is needed.

The images are scikit-learn's digits (`digits.py`), redrawn. The writers are invented: each is a
slant, a width, a height and a thickness of the strokes, drawn from a fixed seed. They are not the
people who wrote the digits. The digits are dealt out to them class by class, so all writers have
nearly equal numbers of each class. A fifth of each writer's images are test images. Ink is bright,
as in MNIST.

An image is enlarged and slanted by bicubic interpolation, and a threshold then makes its strokes
thick or thin. All coordinates are whole multiples of 1/64 of a pixel. So floating-point numbers
hold every product and sum exactly, and every machine gets the same images.
"""

from pathlib import Path

import numpy as np

from fedgrid.datasets import Split

TRAIN = 1_440
TEST = 357
CLASSES = 10
SHAPE = (1, 28, 28)
STATISTICS = {"standard": ((0.19573332,), (0.36825942,))}
WRITERS = 40
TEST_WRITERS = True

PEOPLE = 40
PIXEL = 64  # the unit of slants, widths and heights is this part of an original pixel
SLANTS = (-12, 13)  # what a row is shifted against the next one; the upper ends are excluded
WIDTHS = (20, 33)  # what a pixel shows of the original: less is a wider digit
HEIGHTS = (20, 29)  # and a higher one
INKS = (1, 8)  # darkest ink of the original, of 16, that is not drawn: less is a thicker stroke
GAIN = 40  # brightness for each unit of ink above that


def load(root: Path) -> Split:
    """Return all 1,797 images, one writer after the other in both sets."""
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    dealt = np.argsort(labels, kind="stable")
    order = np.argsort(np.arange(len(labels)) % PEOPLE, kind="stable")
    writers = order % PEOPLE
    # Another fifth for every eight writers: else all test images would be of the same classes.
    test = (order // PEOPLE + writers // 8) % 5 == 3
    originals, labels = values[dealt[order]].reshape(-1, 8, 8), labels[dealt[order]]
    hands = _hands()[writers]
    images = np.stack([_redrawn(*pair) for pair in zip(originals, hands, strict=True)])
    labels = labels.astype(np.int64)
    both = writers[~test], writers[test]
    return Split(images[~test], labels[~test], images[test], labels[test], *both)


def _hands() -> np.ndarray:
    """Return slant, width, height and ink of each writer."""
    random = np.random.RandomState(0)  # numpy guarantees this generator's stream
    limits = (SLANTS, WIDTHS, HEIGHTS, INKS)
    return np.stack([random.randint(*ends, PEOPLE) for ends in limits], axis=1)


def _redrawn(original: np.ndarray, hand: np.ndarray) -> np.ndarray:
    """Return an image of 8x8 values from 0 to 16 in a writer's hand, (1, 28, 28) uint8."""
    drawn = (_enlarged(original, *hand[:3]) - hand[3]) * GAIN
    return np.clip(np.floor(drawn), 0, 255).astype(np.uint8)[None]


def _enlarged(original: np.ndarray, slant: int, width: int, height: int) -> np.ndarray:
    """Return an image enlarged and slanted around its centre, (28, 28)."""
    from skimage.transform import warp

    # From (column, row) of the result to those of the original: (14, 14) is its centre.
    parts = np.array([[width, slant, -14 * (width + slant)], [0, height, -14 * height]]) / PIXEL
    parts[:, 2] += 3.5
    return warp(original, np.vstack([parts, [0, 0, 1]]), output_shape=SHAPE[1:], order=3)
