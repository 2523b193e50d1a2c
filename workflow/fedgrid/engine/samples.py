"""The samples of clients as model inputs: the batches of a round, or all data of a client.

Inputs are images or sequences of tokens. Both are called images where they are stored.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fedgrid.engine.state import moved
from fedgrid.federation import augment, schedule
from fedgrid.federation.federation import Federation
from fedgrid.federation.protocols import changed_protocol
from fedgrid.method import ServerData
from fedgrid.runtime.resolved import Protocol

CHUNK = 64  # images per forward pass over all data of a client


class Data(NamedTuple):
    """What a batch is made of."""

    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor


class Samples:
    """The images and labels of a federation, augmented by the protocol."""

    def __init__(self, federation: Federation, protocol: Protocol, layout: torch.memory_format):
        self.federation, self.protocol, self.layout = federation, protocol, layout
        self.device = federation.images.device

    def batch(self, index: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return augmented images and labels of the samples `index` (B,)."""
        data = self.federation
        images = augment.augment(data.images[index], self.protocol["augment"], draws)
        x = augment.cut_out(self.normalise(images), self.protocol["augment"], draws)
        return x, data.labels[index]

    def stack(self, index: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return augmented images (G, B, ...) and labels of the samples `index` (G, B)."""
        parts = self.batch(index.flatten(), draws.flatten(0, 1))
        x, y = (part.unflatten(0, index.shape) for part in parts)
        return x, y

    @property
    def data(self) -> Data:
        """Return the tensors that batches are made of."""
        data = self.federation
        return Data(data.images, data.labels, data.mean, data.std)

    def of(self, data: Data) -> "Samples":
        """Return the same with other tensors."""
        return Samples(replace(self.federation, **data._asdict()), self.protocol, self.layout)

    def normalise(self, images: Tensor) -> Tensor:
        """Return uint8 images as normalised input of the model; tokens become whole numbers."""
        if self.federation.tokens:
            return images.long()
        x = augment.normalise(images, self.federation.mean, self.federation.std)
        return x.contiguous(memory_format=self.layout)

    def total(self, client: int, function: Callable[[Tensor, Tensor], Any]) -> Any:
        """Sum function(x, y) over chunks of a client's data, not augmented.

        Without data `function` is called once with an empty chunk, so that the sum has its form.
        """
        data, ids = self.federation, self.federation.members[client]
        chunks = moved(ids, self.device).split(CHUNK)
        return self.add_up(function, ((data.images[i], data.labels[i]) for i in chunks))

    def total_test(self, function: Callable[[Tensor, Tensor], Any]) -> Any:
        """Sum function(x, y) over chunks of the test set."""
        data = self.federation
        chunks = zip(data.test_images.split(CHUNK), data.test_labels.split(CHUNK), strict=True)
        return self.add_up(function, chunks)

    def total_client_test(self, client: int, function: Callable[[Tensor, Tensor], Any]) -> Any:
        """Sum function(x, y) over chunks of a client's test data; None without such data."""
        pool = self.federation.client_tests
        if pool is None:
            return None
        chunks = pool.of_client(client).split(CHUNK)
        found = ((pool.images[i], pool.labels[i]) for i in chunks if len(i))
        return self.add_up(function, found)

    def of_server(self) -> ServerData | None:
        """Return the server's own samples, which have no labels; None without any."""
        data = self.federation
        if not len(data.server):
            return None
        ids = moved(data.server, self.device)
        return ServerData(len(ids), lambda which: self.normalise(data.images[ids[which]]))

    def add_up(self, function: Callable[..., Any], chunks: Iterable[tuple[Tensor, Tensor]]) -> Any:
        """Sum function(x, y) over pairs of images and labels; None without any."""
        summed = None
        for images, y in chunks:
            part = function(self.normalise(images), y)
            summed = part if summed is None else tree_map(torch.add, summed, part)
        return summed

    def epoch(self, client: int, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Return a client's batches of one more epoch after round `number`: shuffled, augmented."""
        once = changed_protocol(self.protocol, schedule.epochs(1))
        names = (*self.federation.names, number, "once more")
        work = schedule.work(np.array([client]), self.federation.members, once, *names)
        return self.batches(work, 0)

    def batches(self, work: schedule.Work, c: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of the client at position `c` of a cohort, without padding."""
        tables = (np.ascontiguousarray(table[:, c]) for table in (work.index, work.draws))
        index, draws = (moved(table, self.device) for table in tables)
        sizes = work.valid[:, c].sum(1)
        for s in range(int(work.steps[c])):
            yield self.batch(index[s, : sizes[s]], draws[s, : sizes[s]])
