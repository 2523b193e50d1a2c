"""Evaluate a model: on the test set, on validation data, or on the test data of clients.

A sample with a NaN logit counts as predicting no class.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgrid.engine import metrics
from fedgrid.engine.architecture import Architecture
from fedgrid.engine.samples import Samples
from fedgrid.federation.federation import Pool
from fedgrid.method import Forward, Model
from fedgrid.models._size import watch
from fedgrid.runtime.names import UsageError

EVALUATION_BATCH = 1000  # samples; a GPU takes more at once if its memory allows it
SHARE = 1 / 40  # of a GPU's memory, for the inputs and outputs of the largest layer

Batch = tuple[Tensor, Tensor]  # images (B, ...), labels (B,)


def at_once(architecture: Architecture, samples: Samples) -> int:
    """Return how many samples are evaluated at once; a set is split into nearly equal parts.

    The number depends on the card, and not on what else is in its memory, so that a resumed run has
    the bytes of an uninterrupted one.
    """
    if not (memory := SHARE * memory_of(samples.device)):
        return EVALUATION_BATCH
    model = copy.deepcopy(architecture.empty)
    sizes, x = watch(model), samples.normalise(samples.federation.images[:1])
    try:
        model(torch.empty_like(x, device="meta"))
    except Exception:  # its code needs numbers
        return EVALUATION_BATCH
    return max(EVALUATION_BATCH, int(memory / (x.nbytes + max(sizes))))


def memory_of(device: torch.device) -> int:
    """Return the bytes of a GPU's memory; 0 of a CPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def batches_of_test_set(samples: Samples, size: int) -> Iterator[Batch]:
    """Yield the test set in parts of at most `size` samples."""
    data = samples.federation
    parts = math.ceil(len(data.test_labels) / size)
    return zip(
        data.test_images.tensor_split(parts), data.test_labels.tensor_split(parts), strict=True
    )


def batches_of_pool(pool: Pool, ids: Tensor, size: int) -> Iterator[Batch]:
    """Yield some samples of a pool in parts of at most `size`."""
    parts = math.ceil(len(ids) / size)
    return ((pool.images[part], pool.labels[part]) for part in ids.tensor_split(max(parts, 1)))


@torch.no_grad()
def evaluate(
    forward: Forward,
    samples: Samples,
    model: Model,
    batches: Iterable[Batch],
    asked: Iterable[str] = (),
) -> dict[str, Any]:
    """Return accuracy (0..1), mean cross-entropy, predictions per class, and the metrics asked for.

    UsageError if the samples cannot have one of the metrics.
    """
    correct: float | Tensor = 0.0
    loss: float | Tensor = 0.0
    total, kept = 0, []
    predicted = torch.zeros_like(samples.federation.counts[0])
    for images, y in batches:
        _, logits = forward(model, samples.normalise(images))
        said, sane = logits.argmax(1), ~logits.isnan().any(1)
        correct += ((said == y) & sane).sum()
        predicted.index_add_(0, said, sane.to(predicted))
        loss += F.cross_entropy(logits, y, reduction="sum").double()
        total += len(y)
        kept += [(logits, y)] if asked else []
    found: dict[str, Any] = {"accuracy": float(correct) / total, "loss": float(loss) / total}
    found["predicted"] = predicted.tolist()
    if not kept:
        return found
    logits, labels = map(torch.cat, zip(*kept, strict=True))
    return found | metrics.compute(asked, logits, labels, samples.federation.class_names)


@torch.no_grad()
def judge(
    forward: Forward, samples: Samples, model: Model, batches: Iterable[Batch]
) -> tuple[Tensor, Tensor]:
    """Return the logits (n, K) and labels (n,) of all samples, in their order."""
    parts = [(forward(model, samples.normalise(x))[1], y) for x, y in batches]
    logits, labels = map(torch.cat, zip(*parts, strict=True))
    return logits, labels


def join(row: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return both together; UsageError if a method's own value has the name of another column."""
    if twice := sorted(row.keys() & more.keys()):
        raise UsageError(
            f"the method gives `{twice[0]}`, which is the name of another column: "
            "give it another name"
        )
    return row | more


def per_sample(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each sample is right, and its cross-entropy; both (n,) in double precision."""
    right = (logits.argmax(1) == labels) & ~logits.isnan().any(1)
    return right.double(), F.cross_entropy(logits, labels, reduction="none").double()
