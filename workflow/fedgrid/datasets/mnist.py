"""MNIST, 28x28 grey (LeCun, Bottou, Bengio and Haffner, Proc. IEEE 1998).

Four IDX files, http://yann.lecun.com/exdb/mnist/, with torchvision's checksums and mirrors.
"""

import gzip
from pathlib import Path

import numpy as np

from fedgrid.datasets import Split
from fedgrid.runtime.download import fetch

TRAIN = 60_000
TEST = 10_000
CLASSES = 10
SHAPE = (1, 28, 28)
STATISTICS = {"standard": ((0.1307,), (0.3081,))}
HASHES = ("ce5e2952", "10226b93", "b5eacb27", "99607423")


def load(root: Path) -> Split:
    """Read the four .gz files of `root`/MNIST/raw, downloaded if they are missing."""
    from torchvision.datasets import MNIST

    arrays = {}
    for name, md5 in MNIST.resources:
        first, *mirrors = (mirror + name for mirror in MNIST.mirrors)
        path = fetch(first, root / "MNIST" / "raw" / name, f"md5:{md5}", mirrors)
        arrays[name] = _parse(gzip.decompress(path.read_bytes()))
    return Split(
        arrays["train-images-idx3-ubyte.gz"][:, None],
        arrays["train-labels-idx1-ubyte.gz"].astype(np.int64),
        arrays["t10k-images-idx3-ubyte.gz"][:, None],
        arrays["t10k-labels-idx1-ubyte.gz"].astype(np.int64),
    )


def _parse(data: bytes) -> np.ndarray:
    """Parse IDX: two zeros, the type (8 is uint8), the number of axes, big-endian sizes, values."""
    axes = data[3]
    sizes = np.frombuffer(data, ">i4", count=axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(sizes)
