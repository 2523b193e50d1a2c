"""Which GPU a job takes, where jobs share a machine with several and no scheduler has said.

Every GPU has a file with a byte for each gigabyte of its memory. A job locks as many bytes of one
of them as it needs, or all, and waits while no GPU has that many to spare. The kernel takes the
locks back when the job ends, however it ends. Once a GPU is taken, CUDA sees no other.

FEDGRID_GPUS lists GPUs and their gigabytes in place of what the driver says: `0:80,1:80`.
"""

import fcntl
import logging
import os
import tempfile
import time
from pathlib import Path

from fedgrid import nvml
from fedgrid.names import UsageError

CHANGES_RESULTS = False
POLL = 1.0  # seconds between two looks

log = logging.getLogger(__name__)
_held = []  # the open file: closing it would give the GPU back


def claim(gigabytes: int) -> str | None:
    """Take a GPU with so much free memory, or a whole one for 0; its name.

    Nothing is taken, and None returned, where CUDA_VISIBLE_DEVICES is set, as schedulers do, and
    where there is no GPU. UsageError if no GPU is so large.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ or not (there := gpus()):
        return None
    if gigabytes > max(there.values()):
        raise UsageError(f"no GPU has {gigabytes} GB: there is {listed(there)}")
    said = False
    while (taken := first_free(there, gigabytes)) is None:
        if not said:
            log.info("waiting for %s of GPU memory", f"{gigabytes} GB" if gigabytes else "all")
            said = True
        time.sleep(POLL)
    os.environ["CUDA_VISIBLE_DEVICES"] = taken
    return taken


def gpus() -> dict[str, int]:
    """The gigabytes of every GPU by its name, as CUDA_VISIBLE_DEVICES takes it."""
    if text := os.environ.get("FEDGRID_GPUS"):
        try:
            return {
                name: int(size) for name, _, size in (g.partition(":") for g in text.split(","))
            }
        except ValueError:
            raise UsageError(f"FEDGRID_GPUS is `{text}`, not like 0:80,1:80") from None
    try:
        return nvml.memory()
    except nvml.NvmlError:
        return {}


def listed(there: dict[str, int]) -> str:
    """GPUs and their memory, for people."""
    return ", ".join(f"{name} with {size} GB" for name, size in there.items())


def first_free(there: dict[str, int], gigabytes: int) -> str | None:
    """A GPU that is locked now: of those with room the fullest, so that whole ones stay free."""
    for name in sorted(there, key=lambda name: free(name, there[name])):
        if free(name, there[name]) >= (gigabytes or there[name]) and lock(
            name, there[name], gigabytes or there[name]
        ):
            return name
    return None


def place(name: str) -> Path:
    """The file of a GPU, this user's."""
    folder = Path(tempfile.gettempdir()) / f"fedgrid-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / name


def free(name: str, size: int) -> int:
    """How many gigabytes of a GPU nobody has locked."""
    with place(name).open("a+b") as file:
        return sum(try_byte(file, byte) for byte in range(size))


def lock(name: str, size: int, wanted: int) -> bool:
    """Whether so many of a GPU's bytes could be locked; all or nothing."""
    file, got = place(name).open("a+b"), 0
    for byte in range(size):
        got += try_byte(file, byte)
        if got == wanted:
            _held.append(file)
            return True
    file.close()
    return False


def try_byte(file, byte: int) -> bool:
    """Lock one byte, if nobody has."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except OSError:
        return False
    return True
