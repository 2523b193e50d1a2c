"""Energy in joules, if the machine measures it: of the processor (Intel's RAPL) and an NVIDIA GPU.

The counters are of the whole device, so they include other people's jobs.
"""

import math
import threading
import time
from contextlib import suppress
from pathlib import Path

import pynvml
import torch

RAPL = Path("/sys/class/powercap")
EVERY = 10.0  # seconds between two readings of the processor's counters
MOST_WATTS = 1000.0  # no package of a processor uses more


class Meter:
    """The energy used since the meter was made; counters that cannot be read are left out."""

    def __init__(self, device: torch.device):
        self.ended, self.processor = threading.Event(), Processor()
        self.device, self.before = device, read_gpu(device)
        if not math.isnan(self.processor.joules()):
            watched = self.processor, self.ended  # without the meter, so that it can be removed
            threading.Thread(target=watch, args=watched, name="energy", daemon=True).start()

    def joules(self) -> dict[str, float]:
        """Return the joules by device: `processor`, `gpu`."""
        used = {"processor": self.processor.joules(), "gpu": read_gpu(self.device) - self.before}
        return {name: round(value, 1) for name, value in used.items() if not math.isnan(value)}

    def __del__(self) -> None:
        """End the thread, also after a training that has failed."""
        self.ended.set()


class Processor:
    """The energy used since this was made, by all packages of the processor.

    The counter of a package begins again at 0 after its range, which can be the energy of less than
    an hour. So `joules` has to be called more often than that.
    """

    def __init__(self) -> None:
        self.lock, self.used = threading.Lock(), 0.0
        self.ranges = read_packages("max_energy_range_uj")
        self.counts, self.at = read_packages("energy_uj"), time.monotonic()

    def joules(self) -> float:
        """Return the joules; NaN if a counter could not be read, or not often enough."""
        with self.lock:
            counts, at = read_packages("energy_uj"), time.monotonic()
            self.used += added(self.counts, counts, self.ranges, at - self.at)
            self.counts, self.at = counts, at
            return self.used


def watch(processor: Processor, ended: threading.Event) -> None:
    """Read the counters again and again, so that no return to 0 is missed."""
    while not ended.wait(EVERY):
        processor.joules()


def added(before: list[int], now: list[int], ranges: list[int], seconds: float) -> float:
    """Return the joules between two readings of all packages; NaN if they are not known.

    They are not known if a counter may have returned to 0 more than once.
    """
    complete = len(before) == len(now) == len(ranges) > 0
    if not complete or min(ranges) <= seconds * MOST_WATTS * 1e6:
        return math.nan
    return sum((b - a) % most for a, b, most in zip(before, now, ranges, strict=True)) / 1e6


def read_packages(name: str) -> list[int]:
    """Return a number of every package of the processor; none if one cannot be read."""
    with suppress(OSError, ValueError):
        packages = sorted(p for p in RAPL.glob("intel-rapl:*") if p.name.count(":") == 1)
        return [int((package / name).read_text()) for package in packages]
    return []


def read_gpu(device: torch.device) -> float:
    """Return the joules that a GPU has counted; NaN if there is no GPU, or it does not count."""
    if device.type == "cuda":
        with suppress(pynvml.NVMLError):
            return joules_of(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    return math.nan


def joules_of(uuid: str) -> float:
    """The energy of a GPU since its driver was loaded; NVMLError if the GPU does not count it."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
