"""Choose the device of a job and make its arithmetic repeatable."""

import os

import torch

from fedgrid.runtime import gpus, machine
from fedgrid.runtime.names import UsageError, known

DEVICES = ("auto", "cpu", "cuda")


def vram() -> int:
    """Return the gigabytes of GPU memory for this job, from the environment; 0: a whole GPU."""
    text = os.environ.get("FEDGRID_VRAM_GB") or "0"
    if not text.isdecimal():
        raise UsageError(f"FEDGRID_VRAM_GB is {text!r}, not a whole number of at least 0")
    return int(text)


def prepare(device: str, threads: int, precision: str) -> torch.device:
    """Return the device, with repeatable arithmetic; UsageError if the GPU is missing.

    On a machine with several GPUs, a free one is chosen (`gpus.py`).
    """
    machine.refuse_lowering()
    known("device", device, DEVICES)
    if threads < 1:
        raise UsageError(f"--threads is {threads}, not at least 1")
    if device != "cpu":
        gpus.claim(vram())
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device is cuda, but torch sees no GPU; use auto or cpu")
    torch.set_num_threads(threads)
    # Clients with one class drive probabilities below 1e-38, where a CPU is a hundred times slower:
    # a round of FedLMD's setting took seven times as long.
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return torch.device(device)
