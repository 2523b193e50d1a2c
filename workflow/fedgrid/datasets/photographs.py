"""Colour photographs that are part of scikit-image, cut into 64x64 patches: no file is needed.

An astronaut, a cat, a cup of coffee and a motorcycle: the natural photographs of `skimage/data`
(S. van der Walt et al., PeerJ 2014) stored in colour and without loss, so every decoder gives the
same pixels. The label is the photograph.
"""

from pathlib import Path

import numpy as np

from fedgrid.datasets import Split
from fedgrid.runtime.names import UsageError

TRAIN = 181
TEST = 42
CLASSES = 4
SHAPE = (3, 64, 64)
STATISTICS = {
    "standard": ((0.55308734, 0.38670311, 0.31954284), (0.26328697, 0.24597325, 0.25048920))
}
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "motorcycle_left")


def load(root: Path) -> Split:
    """Return all whole patches, row by row; every fifth patch of a photograph is a test image."""
    patches = [_cut(_read(name)) for name in PHOTOGRAPHS]
    labels = np.repeat(np.arange(CLASSES), [len(part) for part in patches]).astype(np.int64)
    rank = np.concatenate([np.arange(len(part)) for part in patches])
    images, test = np.concatenate(patches), rank % 5 == 4
    return Split(images[~test], labels[~test], images[test], labels[test])


def _read(name: str) -> np.ndarray:
    """Read a photograph from the installed package; skimage.data might try to download it."""
    import skimage
    from PIL import Image

    path = Path(skimage.__file__).parent / "data" / f"{name}.png"
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except OSError as problem:
        raise UsageError(f"scikit-image's {path} cannot be read: {problem}") from problem


def _cut(photograph: np.ndarray) -> np.ndarray:
    """Cut (height, width, 3) into (patches, 3, 64, 64); incomplete patches are not used."""
    channels, height, width = SHAPE
    rows, columns = photograph.shape[0] // height, photograph.shape[1] // width
    whole = photograph[: rows * height, : columns * width]
    tiles = whole.reshape(rows, height, columns, width, channels)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(-1, *SHAPE)
