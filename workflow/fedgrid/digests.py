"""Whether a decoded data set is the published one: the SHA-256 of its arrays, and their statistics.

A dataset's file gives the first digits of its arrays' hashes (`HASHES`, as `fedgrid.data` writes
the arrays), or says with `HASHES = ()` that nobody has published them: then those of the first
reading that was found right are kept in a file under the root, and later readings must have them.

JPEG allows decoders to differ a little (`LOSSY`). Where images differ and this machine's decoder
gives other pixels for a known picture, the hashes of the images cannot decide: the numbers of
images, their labels and names, which are checked in any case, decide alone, and a warning says so.
"""

import base64
import hashlib
from io import BytesIO
from pathlib import Path
from types import ModuleType

import numpy as np

from fedgrid import cli, files
from fedgrid.arrays import ARRAYS
from fedgrid.names import UsageError

CHANGES_RESULTS = False  # it refuses a data set or lets it pass
NEAR = 0.002  # how far `standard` may be from the measured mean and deviation
DIGITS = 8  # of a hash that are kept
# 16x16 pixels with halved colour, as most JPEG files have it.
PROBE = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
    "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAQABADASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAA"
    "BAb/xAAZEAADAQEBAAAAAAAAAAAAAAAABCIBMSH/xAAUAQEAAAAAAAAAAAAAAAAAAAAE/8QAGxEAAgEFAAAAAAAA"
    "AAAAAAAAAAQxAwUiJEH/2gAMAwEAAhEDEQA/AF67XRSrtZ6SWu10Uq7WUFrq7cdDKWfGD//Z"
)
PIXELS = "c08c7130"  # sha256 of what libjpeg-turbo 3.2 makes of it


def verify(module: ModuleType, name: str, root: Path, found: dict[str, str]) -> None:
    """UsageError unless the arrays' hashes, by `<array>.npy`, are the known ones of the dataset."""
    if not hasattr(module, "HASHES"):
        return
    note = root / f"{name}.sha256"
    known = module.HASHES or noted(note)
    if not known:
        return keep(note, [found[f"{array}.npy"][:DIGITS] for array in ARRAYS])
    pairs = zip(ARRAYS, known, strict=True)
    wrong = [array for array, digits in pairs if not found[f"{array}.npy"].startswith(digits)]
    images = all(array.endswith("images") for array in wrong)
    if wrong and images and getattr(module, "LOSSY", False) and not decodes_alike():
        cli.warn(
            f"{name}: this machine's JPEG decoder gives other pixels than the one by which the "
            f"hashes of {' and '.join(wrong)} were taken, so these could not be checked; numbers, "
            "names and labels of the images are right, as far as files and folders tell"
        )
    elif wrong:
        raise UsageError(
            f"{name}: {' and '.join(wrong)} under {root} are not those of the published data set "
            f"(sha256 of the arrays against {origin(note, module)}): delete or replace its files"
        )


def origin(note: Path, module: ModuleType) -> str:
    """Where the hashes come from that a dataset was compared with."""
    return "HASHES in its file" if module.HASHES else f"{note}, which the first reading left"


def noted(note: Path) -> list[str]:
    """The hashes that the first reading left, or none."""
    if not note.exists():
        return []
    with files.whole(str(note)):
        kept = dict(reversed(line.split()) for line in note.read_text().splitlines())
        return [kept[array] for array in ARRAYS]


def keep(note: Path, hashes: list[str]) -> None:
    """Leave the hashes for later readings; a warning where that cannot be."""
    lines = (f"{digits} {array}\n" for digits, array in zip(hashes, ARRAYS, strict=True))
    try:
        with files.replacing(note, result=False) as temporary:
            temporary.write_text("".join(lines))
    except OSError as problem:
        cli.warn(f"{note} cannot be written ({problem.strerror}): later readings are not compared")


def decodes_alike() -> bool:
    """Whether this machine decodes the known picture as the hashes' machine did."""
    from PIL import Image

    with Image.open(BytesIO(base64.b64decode(PROBE))) as image:
        pixels = np.asarray(image.convert("RGB"))
    return hashlib.sha256(pixels.tobytes()).hexdigest().startswith(PIXELS)


# -- statistics -----------------------------------------------------------------------------------


def measured(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel of uint8 images, scaled to [0, 1]."""
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in np.moveaxis(images, 1, 0):
        share = np.bincount(channel.ravel(), minlength=256) / channel.size
        means.append(float(share @ values))
        deviations.append(float(np.sqrt(share @ (values - means[-1]) ** 2)))
    return means, deviations


def compare(name: str, statistics: dict, images: np.ndarray) -> None:
    """A warning if `standard` is not near the training images' own mean and deviation."""
    own = measured(images)
    if np.abs(np.subtract(own, statistics["standard"])).max() > NEAR:
        mean, deviation = (tuple(round(one, 5) for one in of) for of in own)
        cli.warn(
            f"datasets/{name}.py: `standard` in STATISTICS is {statistics['standard']}, and the "
            f"training images have the mean {mean} and the deviation {deviation}: write these, or "
            "give the other ones another name"
        )
