"""TinyImageNet, 64x64 colour, 200 classes (Le and Yang, Stanford CS231n, 2015).

http://cs231n.stanford.edu/tiny-imagenet-200.zip. Its `val` folder is the test set, as usual in the
literature, because its `test` folder has no labels.
"""

import re
from collections.abc import Callable
from pathlib import Path

from fedgrid.datasets import Split, _archives
from fedgrid.runtime.download import fetch
from fedgrid.runtime.names import UsageError

TRAIN = 100_000
TEST = 10_000
CLASSES = 200
SHAPE = (3, 64, 64)
STATISTICS = {
    "standard": ((0.48024, 0.44807, 0.39750), (0.27644, 0.26886, 0.28159)),
    # also FedNTD's and FedLMD's
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    # also FedDecorr's
    "moon": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
HASHES = ("0770c3a8", "fd297be8", "9111884c", "adb79584")  # by libjpeg-turbo 3.2
LOSSY = True

URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
CHECKSUM = "md5:90528d7ca1a48142e341f4ef8d21d0de"


def load(root: Path) -> Split:
    """Read `root`/tiny-imagenet-200 if it exists, else the archive, downloaded if missing.

    Classes are numbered in the order of their WordNet ids.
    """
    source = root / "tiny-imagenet-200"
    if not source.is_dir():
        source = fetch(URL, root / "tiny-imagenet-200.zip", CHECKSUM)
    return _archives.load(source, _places(_annotations(source)), (TRAIN, TEST), CLASSES, SHAPE)


def _annotations(source: Path) -> dict[str, str]:
    """Return file name -> class of the validation images; empty if they are in class folders."""

    def wanted(name: str) -> bool | None:
        return name.endswith("val/val_annotations.txt") or None

    lines = b"".join(data for _, data in _archives.contents(source, wanted)).splitlines()
    try:
        return dict(line.decode().split()[:2] for line in lines)
    except ValueError as problem:
        raise UsageError(f"{source}: val/val_annotations.txt is damaged ({problem})") from problem


def _places(annotations: dict[str, str]) -> Callable[[str], _archives.Place | None]:
    """Return a function from a path to its place.

    Validation images may be at val/images/*, val/<class>/* or val/<class>/images/*.
    """
    pattern = re.compile(r"(?:.*/)?(train|val)/(?:(n\d+)/)?(?:images/)?([^/.][^/]*\.JPEG)")

    def place(name: str) -> _archives.Place | None:
        if not (found := pattern.fullmatch(name)):
            return None
        part, label, file = found.groups()
        if label is None and file not in annotations:
            raise UsageError(f"{name} has no label: it is not in val/val_annotations.txt")
        if part == "train" and not file.startswith(f"{label}_"):
            raise UsageError(f"{name} is in the folder of another class: move it back")
        return "train" if part == "train" else "test", label or annotations[file], file

    return place
