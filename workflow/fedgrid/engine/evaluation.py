"""Evaluate a model: on the test set, on validation data, or on the test data of clients.

A sample with a NaN logit counts as predicting no class.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgrid.engine import metrics
from fedgrid.engine.samples import Samples
from fedgrid.federation.federation import Pool
from fedgrid.method import Forward, Model
from fedgrid.runtime.names import UsageError

EVALUATION_BATCH = 1000  # at most: a set is split into parts of nearly equal size

Batch = tuple[Tensor, Tensor]  # images (B, ...), labels (B,)


def batches_of_test_set(samples: Samples) -> Iterator[Batch]:
    """Yield the test set in parts."""
    data = samples.federation
    parts = math.ceil(len(data.test_labels) / EVALUATION_BATCH)
    return zip(
        data.test_images.tensor_split(parts), data.test_labels.tensor_split(parts), strict=True
    )


def batches_of_pool(pool: Pool, ids: Tensor) -> Iterator[Batch]:
    """Yield some samples of a pool in parts."""
    parts = math.ceil(len(ids) / EVALUATION_BATCH)
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
            f"the method's evaluation gives `{twice[0]}`, which is the name of another column: "
            "give it another name"
        )
    return row | more


def per_sample(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each sample is right, and its cross-entropy; both (n,) in double precision."""
    right = (logits.argmax(1) == labels) & ~logits.isnan().any(1)
    return right.double(), F.cross_entropy(logits, labels, reduction="none").double()
