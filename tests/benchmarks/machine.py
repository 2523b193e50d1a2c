"""What the numbers were measured on."""

import os
import platform
from datetime import date
from pathlib import Path


def describe(device: str) -> str:
    """Processor, cores, versions, threads and date in one line."""
    import torch

    parts = [processor(), f"{os.cpu_count()} cores", f"torch {torch.__version__}"]
    parts += [f"Python {platform.python_version()}", "1 thread", str(date.today())]
    if device == "cuda":
        parts.insert(0, torch.cuda.get_device_name())
    return ", ".join(parts)


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
