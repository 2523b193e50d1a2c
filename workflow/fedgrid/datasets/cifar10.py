"""CIFAR-10, 32x32 colour (Krizhevsky, Learning Multiple Layers of Features, 2009).

The "python version" of https://www.cs.toronto.edu/~kriz/cifar.html, with torchvision's checksums.
"""

import pickle
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedgrid.datasets import Split
from fedgrid.datasets._archives import contents
from fedgrid.runtime.download import fetch, verify
from fedgrid.runtime.names import UsageError

TRAIN = 50_000
TEST = 10_000
CLASSES = 10
SHAPE = (3, 32, 32)
STATISTICS = {
    "standard": ((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)),
    # (125.3, 123.0, 113.9) / 255 and (63.0, 62.1, 66.7) / 255; also FedDecorr's
    "moon": (
        (0.49137254901960784, 0.4823529411764706, 0.4466666666666667),
        (0.24705882352941178, 0.24352941176470588, 0.2615686274509804),
    ),
    # the well-known wrong std, the mean of single images' stds; also FedAU's
    "gradma": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "fedps": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    # also FedBABU's
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
HASHES = ("cca17af9", "9dfee6f2", "efbfa3b2", "fc48d9ec")


def load(root: Path) -> Split:
    """Read `root`/cifar-10-batches-py if it exists, else the archive, downloaded if missing."""
    from torchvision.datasets import CIFAR10

    return read(root, CIFAR10, b"labels")


def read(root: Path, listing: Any, key: bytes) -> Split:
    """Read the archive described by `listing`, a class of torchvision; labels are under `key`."""
    checksums: dict[str, str] = dict(map(tuple, listing.train_list + listing.test_list))
    source = root / listing.base_folder
    if not source.is_dir():
        source = fetch(listing.url, root / listing.filename, f"md5:{listing.tgz_md5}")

    def wanted(name: str) -> str | None:
        last = PurePosixPath(name).name
        return last if last in checksums else None

    batches = {}
    for name, data in contents(source, wanted):
        # Before unpickling: a pickle can run any code.
        verify(BytesIO(data), f"md5:{checksums[name]}", f"{source / name}")
        batch = pickle.loads(data, encoding="bytes")
        batches[name] = batch[b"data"].reshape(-1, *SHAPE), np.asarray(batch[key], np.int64)
    if missing := sorted(checksums.keys() - batches.keys()):
        raise UsageError(f"{source} lacks {', '.join(missing)}: delete or complete it")
    return Split(
        *_join([batches[name] for name, _ in listing.train_list]),
        *_join([batches[name] for name, _ in listing.test_list]),
    )


def _join(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)
