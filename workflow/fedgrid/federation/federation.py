"""The dataset on the device, and the samples of every client."""

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgrid.federation.client_names import find_names
from fedgrid.federation.members import fits, read_partition
from fedgrid.federation.stored import open_data, read_statistics
from fedgrid.runtime.names import UsageError
from fedgrid.runtime.resolved import Run


@dataclass(frozen=True)
class Pool:
    """Samples to evaluate on: those of `ids` among images and labels, client after client."""

    images: Tensor
    labels: Tensor
    ids: Tensor  # (n,)
    sizes: list[int] = field(default_factory=list)  # samples of each client; empty: of no client

    def of_client(self, client: int) -> Tensor:
        """Return the ids of a client's samples."""
        return self.ids[self.ends[client] : self.ends[client + 1]]

    @cached_property
    def ends(self) -> list[int]:
        """Return the place of each client's first sample in `ids`, and the number of samples."""
        return [0, *accumulate(self.sizes)]


@dataclass(frozen=True)
class Federation:
    """The data of a run. Images stay uint8, in a memory map on a CPU, copied on a GPU.

    A dataset of texts has sequences of tokens as its images; they are not normalised, so `mean` and
    `std` have no numbers then.
    """

    images: Tensor  # (n, channels, height, width) uint8, or tokens (n, length) uint8
    labels: Tensor  # (n,)
    test_images: Tensor
    test_labels: Tensor
    mean: Tensor  # (channels, 1, 1); (0,) for tokens
    std: Tensor
    members: list[np.ndarray]  # sample ids of each client
    counts: Tensor  # (N, K)
    names: tuple[Any, ...]  # seed of the random numbers: dataset, partition, seed
    client_tests: Pool | None = None  # clients' own test samples
    validation: Pool | None = None
    tokens: int = 0  # symbols that a token can be; 0: the inputs are images
    class_names: tuple[str, ...] = ()  # of own data; () if the classes have only numbers
    client_names: tuple[str, ...] = ()  # of clients that the data name
    # ids of training samples that the server has, and no client
    server: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def load_federation(
    run: Run, paths: dict[str, Path], device: torch.device, dtype: torch.dtype = torch.float32
) -> Federation:
    """Return the federation of a resolved run; `dtype` is the type of normalised images."""
    data, made = open_data(paths["data"]), read_partition(paths["partition"])
    if not fits(made, data.train_labels, data.classes, len(data.test_labels)):
        raise UsageError(f"{paths['partition']} is not a partition of {paths['data']}")
    if (clients := run["protocol"]["clients"]) not in (len(made.members), "writers"):
        raise UsageError(f"{paths['partition']} is over {len(made.members)} clients, not {clients}")
    mean, std = read_statistics(data, run["protocol"]["normalization"], paths["data"])
    arrays = (data.train_images, data.train_labels, data.test_images, data.test_labels)
    images, labels, test_images, test_labels = (read_only(array).to(device) for array in arrays)
    train, test = (images, labels), (test_images, test_labels)
    client_tests = pool(*(test if made.tests_from_test_set else train), made.tests)
    validation = pool(*train, made.validation)
    if len(made.central):
        validation = Pool(*test, torch.from_numpy(made.central).to(device))
        kept = torch.from_numpy(np.setdiff1d(np.arange(len(test[1])), made.central)).to(device)
        test = (test_images[kept], test_labels[kept])
    return Federation(
        *train,
        *test,
        mean=per_channel(mean, dtype, device),
        std=per_channel(std, dtype, device),
        members=made.members,
        counts=torch.from_numpy(made.counts).to(device),
        names=(run["dataset"], run["partition"], run["seed"]),
        client_tests=client_tests,
        validation=validation,
        server=made.server,
        tokens=data.tokens,
        class_names=data.class_names,
        client_names=tuple(
            "; ".join(own) for own in find_names(made, data.train_writers, data.writer_names)
        ),
    )


def per_channel(values: list[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a number per channel as (channels, 1, 1), or no numbers as (0,)."""
    made = torch.tensor(values, dtype=dtype, device=device)
    return made[:, None, None] if values else made


def pool(images: Tensor, labels: Tensor, lists: list[np.ndarray]) -> Pool | None:
    """Return the pool of the clients' lists of ids, or None without lists."""
    if not lists:
        return None
    ids = torch.from_numpy(np.concatenate(lists)).to(images.device)
    return Pool(images, labels, ids, [*map(len, lists)])


def read_only(array: np.ndarray) -> Tensor:
    """A tensor over a memory map, without torch's warning that it is read-only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
