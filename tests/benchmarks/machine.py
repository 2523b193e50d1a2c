"""What the numbers were measured on."""

import os
import platform
from datetime import date

from fedgrid.runtime.machine import processor


def describe(device: str) -> str:
    """Processor, cores, versions, threads and date in one line."""
    import torch

    parts = [processor(), f"{os.cpu_count()} cores", f"torch {torch.__version__}"]
    parts += [f"Python {platform.python_version()}", "1 thread", str(date.today())]
    if device == "cuda":
        parts.insert(0, torch.cuda.get_device_name())
    return ", ".join(parts)
