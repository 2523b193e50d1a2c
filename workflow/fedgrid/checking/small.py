"""A federation of six clients and a network so small that a round takes milliseconds."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedgrid.federation.federation import Federation
from fedgrid.models import Classifier
from fedgrid.runtime.code import source

SIZES = (1, 2, 3, 6, 9, 0)  # an empty client and one, two, three samples are all fewer than a batch
CLASSES = 3


def tiny(seed: int, norms: bool = True) -> Classifier:
    """Return a network for images (1, 6, 6) of three classes, with BatchNorm in body and head.

    Without `norms` it has none, and all entries are parameters.
    """
    torch.manual_seed(seed)
    return drawn(norms)


def drawn(norms: bool = True) -> Classifier:
    """Return the network of `tiny`, in three blocks, with weights from torch's generator."""
    body = nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), norm(nn.BatchNorm2d(3), norms), nn.ReLU(inplace=True)),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, 4), norm(nn.BatchNorm1d(4), norms)),
    )
    model = Classifier(body, 4, CLASSES).double()
    model.blocks, model.encoder, model.draw = ("0", "5", "head"), 1, partial(drawn, norms)
    return model


def norm(layer: Any, kept: bool) -> nn.Module:
    """Return a BatchNorm that does not count batches, or a layer that does nothing."""
    layer.num_batches_tracked = None
    return layer if kept else nn.Identity()


def federated(clients: list[tuple[Tensor, Tensor]], classes: int, scale: float) -> Federation:
    """Return clients with these uint8 images and labels; a pixel of 255 becomes `scale`."""
    images, labels = (torch.cat(parts) for parts in zip(*clients, strict=True))
    sizes = [len(y) for _, y in clients]
    counts = [torch.bincount(y, minlength=classes) for _, y in clients]
    std = torch.full((images.shape[1], 1, 1), 1 / scale, dtype=torch.float64)
    return Federation(
        *(images, labels, images, labels, torch.zeros_like(std), std),
        members=np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]),
        counts=torch.stack(counts),
        names=("test", "dir0.1", 0),
        server=np.arange(min(sum(sizes), 10)),  # images that clients have, too
    )


def uneven(sizes: tuple[int, ...] = SIZES, labels: int = CLASSES) -> Federation:
    """Return clients of these sizes with random images; `labels` of the classes have samples."""
    random = torch.Generator().manual_seed(0)
    clients = [
        (
            torch.randint(0, 256, (n, 1, 6, 6), generator=random, dtype=torch.uint8),
            torch.randint(0, labels, (n,), generator=random),
        )
        for n in sizes
    ]
    return federated(clients, CLASSES, scale=4)


def move(tree: Any, device: torch.device | str) -> Any:
    """Return nested dicts with their tensors on the device; masks stay, which the CPU reads."""

    def one(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, Tensor) and leaf.dtype != torch.bool else leaf

    return tree_map(one, tree)


def move_federation(federation: Federation, device: torch.device | str) -> Federation:
    tests = federation.client_tests
    found = {name: value for name, value in vars(federation).items() if name != "members"}
    found["client_tests"] = tests and replace(tests, **move(vars(tests), device))
    return replace(federation, **move(found, device))


def artifacts(name: str, clients: int = len(SIZES)) -> dict[str, dict[str, Tensor]]:
    """Return random results of the stages that a method needs; the network has three layers."""
    random = torch.Generator().manual_seed(1)
    shapes = {
        "saliency": ("contributions", (3, 2, 2, clients, 3)),
        "latents": ("norms", (3, 3, clients)),
    }
    results = {}
    for need in source.literal(f"methods.{name}", "NEEDS", ()):
        array, shape = shapes[need]
        results[need] = {array: torch.rand(shape, generator=random, dtype=torch.float64)}
        results[need]["main"] = torch.tensor([True, True, False])
    return results
