"""CINIC-10, 32x32 colour (Darlow, Crowley, Antoniou and Storkey, arXiv:1810.03505).

The authors' archive, https://doi.org/10.7488/ds/2448: 90,000 training and 90,000 test images; the
90,000 images of `valid` are not used. CINIC-10's test set contains all of CIFAR-10's test set.
"""

import re
from pathlib import Path

from fedgrid.datasets import Split, _archives
from fedgrid.runtime.download import fetch

TRAIN = 90_000
TEST = 90_000
CLASSES = 10
SHAPE = (3, 32, 32)
STATISTICS = {
    "standard": ((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
HASHES = ()  # the authors publish no hashes of decoded images
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

URL = "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz"
MIRRORS = (  # the same file, at the repository's newer address
    "https://datashare.ed.ac.uk/server/api/core/bitstreams/"
    "e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
)
CHECKSUM = "md5:6ee4d0c996905fe93221de577967a372"


def load(root: Path) -> Split:
    """Read `root`/CINIC-10 if it exists, else the archive, downloaded if missing.

    Classes are numbered in alphabetical order, airplane to truck, as in CIFAR-10.
    """
    source = root / "CINIC-10"
    if not source.is_dir():
        source = fetch(URL, root / "CINIC-10.tar.gz", CHECKSUM, MIRRORS)
    return _archives.load(source, _place, (TRAIN, TEST), CLASSES, SHAPE)


def _place(name: str) -> _archives.Place | None:
    found = re.fullmatch(rf"(?:.*/)?(train|test)/({'|'.join(NAMES)})/([^/.][^/]*\.png)", name)
    return (found[1], found[2], found[3]) if found else None
