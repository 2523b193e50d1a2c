"""CIFAR-100, 32x32 colour, fine labels (Krizhevsky, Learning Multiple Layers of Features, 2009).

The "python version" of https://www.cs.toronto.edu/~kriz/cifar.html, with torchvision's checksums.
"""

from pathlib import Path

from fedgrid.datasets import Split
from fedgrid.datasets.cifar10 import read

TRAIN = 50_000
TEST = 10_000
CLASSES = 100
SHAPE = (3, 32, 32)
STATISTICS = {
    "standard": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    # the same with more digits; also FedDecorr's
    "moon": (
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    "gradma": (
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    # CIFAR-10's statistics, with the wrong std; also FedAU's
    "fedps": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "fedbabu": ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
HASHES = ("26f5f26a", "233cdd4a", "4af8a71e", "7827272d")


def load(root: Path) -> Split:
    """Read `root`/cifar-100-python if it exists, else the archive, downloaded if missing."""
    from torchvision.datasets import CIFAR100

    return read(root, CIFAR100, b"fine_labels")
