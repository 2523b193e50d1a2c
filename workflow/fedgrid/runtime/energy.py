"""Energy in joules, if the machine measures it: of the processor (Intel's RAPL) and an NVIDIA GPU.

The counters are of the whole device, so they include other people's jobs.
"""

from contextlib import suppress
from pathlib import Path

import pynvml
import torch

RAPL = Path("/sys/class/powercap")


class Meter:
    """The energy used since the meter was made; counters that cannot be read are left out."""

    def __init__(self, device: torch.device):
        self.device, self.before = device, read(device)

    def joules(self) -> dict[str, float]:
        """Return the joules by device: `processor`, `gpu`."""
        now = read(self.device)
        return {
            name: round(now[name] - self.before[name], 1) for name in now if name in self.before
        }


def read(device: torch.device) -> dict[str, float]:
    """Return the counters, in joules."""
    found = {}
    with suppress(OSError, ValueError):
        packages = [p for p in RAPL.glob("intel-rapl:*") if p.name.count(":") == 1]
        counts = [int((package / "energy_uj").read_text()) for package in packages]
        if counts:
            found["processor"] = sum(counts) / 1e6
    if device.type == "cuda":
        with suppress(pynvml.NVMLError):
            found["gpu"] = joules_of(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    return found


def joules_of(uuid: str) -> float:
    """The energy of a GPU since its driver was loaded; NVMLError if the GPU does not count it."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
