"""Choose a GPU for a job on a machine with several GPUs and no scheduler.

Every GPU has a lock file for each gigabyte of its memory. A job locks as many of one GPU as it
needs, or all, and waits while no GPU has that many to spare. The kernel releases the locks when
the job ends in any way. CUDA then sees only the GPU that was taken.

FEDGRID_GPUS lists GPUs and their gigabytes instead of the driver: `0:80,1:80`.
"""

import getpass
import logging
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pynvml
from filelock import FileLock, Timeout

from fedgrid.runtime.names import UsageError

POLL = 1.0  # seconds between two tries

log = logging.getLogger(__name__)
_held: list[FileLock] = []  # the locks of this job, until its process ends


def claim(gigabytes: int) -> str | None:
    """Lock a GPU with so much free memory, or a whole GPU for 0, and return its name.

    Return None if CUDA_VISIBLE_DEVICES is set, as schedulers do, or if the machine has no GPU.
    UsageError if no GPU is so large.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ or not (there := gpus()):
        return None
    if gigabytes > max(there.values()):
        described = ", ".join(f"{name} with {size} GB" for name, size in there.items())
        raise UsageError(
            f"no GPU has {gigabytes} GB: this machine has {described}; lower `vram_gb`"
        )
    said = False
    while (taken := first_free(there, gigabytes)) is None:
        if not said:
            log.info("waiting for %s of GPU memory", f"{gigabytes} GB" if gigabytes else "all")
            said = True
        time.sleep(POLL)
    os.environ["CUDA_VISIBLE_DEVICES"] = taken
    return taken


def gpus() -> dict[str, int]:
    """Return the whole gigabytes of every GPU by its name in CUDA_VISIBLE_DEVICES, or its UUID.

    NVML neither initialises CUDA nor uses GPU memory, so it can be called before a GPU is chosen.
    """
    if text := os.environ.get("FEDGRID_GPUS"):
        try:
            pairs = (one.partition(":") for one in text.split(","))
            return {name: int(size) for name, _, size in pairs}
        except ValueError:
            raise UsageError(f"FEDGRID_GPUS is `{text}`, not like 0:80,1:80") from None
    with suppress(pynvml.NVMLError):  # without a driver
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {
            pynvml.nvmlDeviceGetUUID(one): pynvml.nvmlDeviceGetMemoryInfo(one).total // 2**30
            for one in handles
        }
    return {}


def first_free(there: dict[str, int], gigabytes: int) -> str | None:
    """Lock the fullest GPU that has enough room, so that empty GPUs stay free; its name."""
    for name in sorted(there, key=lambda name: count_free(name, there[name])):
        wanted = gigabytes or there[name]
        taken = take(name, there[name], wanted)
        if len(taken) == wanted:
            _held.extend(taken)
            return name
        release(taken)
    return None


def count_free(name: str, size: int) -> int:
    taken = take(name, size, size)
    release(taken)
    return len(taken)


def take(name: str, size: int, most: int) -> list[FileLock]:
    """Lock up to `most` gigabytes of a GPU that are free; the locks' files are this user's."""
    folder = Path(tempfile.gettempdir()) / f"fedgrid-gpus-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    taken: list[FileLock] = []
    for byte in range(size):
        one = FileLock(folder / f"{name}-{byte}.lock")
        with suppress(Timeout):
            one.acquire(timeout=0)
            taken.append(one)
        if len(taken) == most:
            break
    return taken


def release(taken: list[FileLock]) -> None:
    for one in taken:
        one.release()
