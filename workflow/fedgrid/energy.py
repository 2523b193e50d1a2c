"""Joules, where the machine counts them: the processor's (Intel's RAPL) and an NVIDIA GPU's.

The counters are the whole device's, so other people's work on it is in them.
"""

from contextlib import suppress
from pathlib import Path

import torch

from fedgrid import nvml

CHANGES_RESULTS = False
RAPL = Path("/sys/class/powercap")


class Meter:
    """What has been used since it was made; a counter that nobody may read is left out."""

    def __init__(self, device: torch.device):
        self.device, self.before = device, read(device)

    def joules(self) -> dict[str, float]:
        """By device: `processor`, `gpu`."""
        now = read(self.device)
        return {
            name: round(now[name] - self.before[name], 1) for name in now if name in self.before
        }


def read(device: torch.device) -> dict[str, float]:
    """The counters, in joules."""
    found = {}
    with suppress(OSError, ValueError):
        packages = [p for p in RAPL.glob("intel-rapl:*") if p.name.count(":") == 1]
        counts = [int((package / "energy_uj").read_text()) for package in packages]
        if counts:
            found["processor"] = sum(counts) / 1e6
    if device.type == "cuda":
        with suppress(nvml.NvmlError):
            found["gpu"] = nvml.joules(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    return found
