"""Compare a decoded dataset with the published one: SHA-256 of its arrays, and their statistics.

A dataset's file gives the first digits of its arrays' hashes (`HASHES`, as `fedgrid data` writes
the arrays). `HASHES = ()` says that none are published. The first correct reading then writes its
hashes to a file under the root, and later readings must have the same; an array that is new to the
dataset is added to the file.

JPEG decoders may differ a little (`LOSSY`). If this machine's decoder gives other pixels for a
known picture, hashes of images cannot be compared. A warning says so, and only the numbers, labels
and names of the images are checked.
"""

import base64
import hashlib
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fedgrid.runtime import cli, files
from fedgrid.runtime.names import UsageError

NEAR = 0.002  # largest difference of `standard` from the measured mean and deviation
DIGITS = 8  # stored digits of a hash
# A JPEG picture of 16x16 pixels with halved colour resolution, as in most JPEG files.
PROBE = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
    "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAQABADASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAA"
    "BAb/xAAZEAADAQEBAAAAAAAAAAAAAAAABCIBMSH/xAAUAQEAAAAAAAAAAAAAAAAAAAAE/8QAGxEAAgEFAAAAAAAA"
    "AAAAAAAAAAQxAwUiJEH/2gAMAwEAAhEDEQA/AF67XRSrtZ6SWu10Uq7WUFrq7cdDKWfGD//Z"
)
PIXELS = "c08c7130"  # sha256 of its pixels by libjpeg-turbo 3.2


def verify(module: ModuleType, name: str, root: Path, found: dict[str, str]) -> None:
    """Raise a UsageError if the hashes `found`, by array, are not the dataset's known ones."""
    if not hasattr(module, "HASHES"):
        return
    note = root / f"{name}.sha256"
    known = module.HASHES or noted(note, [*found])
    pairs = zip(found, known, strict=True)
    wrong = [array for array, digits in pairs if not found[array].startswith(digits)]
    images = all(array.endswith("images") for array in wrong)
    if wrong and images and getattr(module, "LOSSY", False) and not decodes_alike():
        cli.warn(
            f"{name}: this machine's JPEG decoder gives other pixels than the decoder of the known "
            f"hashes, so {' and '.join(wrong)} could not be checked; numbers, names and labels of "
            "the images are right"
        )
    elif wrong:
        origin = "HASHES in its file" if module.HASHES else f"{note}, written by the first reading"
        raise UsageError(
            f"{name}: {' and '.join(wrong)} under {root} differ from the published dataset "
            f"(sha256 of the arrays against {origin}): delete or replace its files"
        )
    elif not all(known):
        keep(note, found)


def noted(note: Path, arrays: list[str]) -> list[str]:
    """Return the hashes of the first reading; "" for an array that it did not have."""
    with files.whole(str(note)):
        lines = note.read_text().splitlines() if note.exists() else []
        kept: dict[str, str] = dict(line.split()[::-1] for line in lines)
        return [kept.get(array, "") for array in arrays]


def keep(note: Path, hashes: dict[str, str]) -> None:
    """Store the hashes for later readings; log a warning if the file cannot be written."""
    lines = (f"{digits[:DIGITS]} {array}\n" for array, digits in hashes.items())
    try:
        with files.replacing(note) as temporary:
            temporary.write_text("".join(lines))
    except OSError as problem:
        cli.warn(f"{note} cannot be written ({problem.strerror}): later readings are not compared")


def decodes_alike() -> bool:
    """Whether this machine's decoder gives the known pixels for the known picture."""
    from PIL import Image

    with Image.open(BytesIO(base64.b64decode(PROBE))) as image:
        pixels = np.asarray(image.convert("RGB"))
    return hashlib.sha256(pixels.tobytes()).hexdigest().startswith(PIXELS)


# -- statistics -----------------------------------------------------------------------------------


def compare(name: str, statistics: dict[str, Any], own: tuple[list[float], list[float]]) -> None:
    """Log a warning if `standard` is not near the training images' `own` mean and deviation."""
    if np.abs(np.subtract(own, statistics["standard"])).max() > NEAR:
        mean, deviation = (tuple(round(one, 5) for one in of) for of in own)
        cli.warn(
            f"datasets/{name}.py: `standard` in STATISTICS is {statistics['standard']}, but the "
            f"training images have the mean {mean} and the deviation {deviation}: write these, or "
            "rename the other statistics"
        )
