"""Who has what: the dataset on the device, and every client's share of it."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedgrid import gpus, partition
from fedgrid.arrays import open_data, statistics
from fedgrid.names import UsageError, known


@dataclass(frozen=True)
class Federation:
    """Images stay uint8; a CPU reads them out of the memory map, a GPU holds a copy."""

    images: Tensor  # (n, channels, height, width) uint8
    labels: Tensor  # (n,)
    test_images: Tensor
    test_labels: Tensor
    mean: Tensor  # (channels, 1, 1)
    std: Tensor
    members: list[np.ndarray]  # sample ids of each client
    counts: Tensor  # (N, K)
    names: tuple  # what the random numbers are derived from


def load(
    run: dict, paths: dict[str, Path], device: torch.device, dtype: torch.dtype = torch.float32
) -> Federation:
    """The data and the partition of a resolved run; `dtype` is that of normalised images."""
    data, made = open_data(paths["data"]), partition.read(paths["partition"])
    if not partition.fits(made, data.train_labels, data.classes):
        raise UsageError(f"{paths['partition']} is not a partition of {paths['data']}")
    if len(made.members) != (clients := run["protocol"]["clients"]):
        raise UsageError(f"{paths['partition']} is over {len(made.members)} clients, not {clients}")
    mean, std = statistics(data, run["protocol"]["normalization"], paths["data"])
    arrays = (data.train_images, data.train_labels, data.test_images, data.test_labels)
    return Federation(
        *(read_only(array).to(device) for array in arrays),
        *(
            torch.tensor(values, dtype=dtype, device=device)[:, None, None]
            for values in (mean, std)
        ),
        members=made.members,
        counts=torch.from_numpy(made.counts).to(device),
        names=(run["dataset"], run["partition"], run["seed"]),
    )


def read_only(array: np.ndarray) -> Tensor:
    """A tensor over a memory map, without torch's warning that nobody may write to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


DEVICES = ("auto", "cpu", "cuda")


def vram() -> int:
    """Gigabytes of a GPU that this job takes, as the environment says; 0: all of it."""
    text = os.environ.get("FEDGRID_VRAM_GB") or "0"
    if not text.isdecimal():
        raise UsageError(f"FEDGRID_VRAM_GB is {text!r}, not a whole number of at least 0")
    return int(text)


def prepare(device: str, threads: int, precision: str) -> torch.device:
    """The device, its arithmetic made repeatable; UsageError for a GPU that is not there.

    Of a machine's GPUs it is the one that is free for this job (`gpus.py`).
    """
    known("device", device, DEVICES)
    if threads < 1:
        raise UsageError(f"--threads is {threads}, not at least 1")
    if device != "cpu":
        gpus.claim(vram())
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device: cuda was asked for and torch sees no GPU; use auto or cpu")
    torch.set_num_threads(threads)
    # Clients of one class drive probabilities below 1e-38, where a CPU is a hundred times slower: a
    # round of FedLMD's setting took seven times as long.
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return torch.device(device)
