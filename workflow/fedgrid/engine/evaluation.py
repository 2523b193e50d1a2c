"""Evaluate the server's model on the test set."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from fedgrid.engine.architecture import Architecture
from fedgrid.engine.samples import Samples
from fedgrid.method import Model

EVALUATION_BATCH = 1000  # at most: the test set is split into parts of nearly equal size


@torch.no_grad()
def evaluate(architecture: Architecture, samples: Samples, model: Model) -> dict[str, Any]:
    """Return accuracy (0..1), mean cross-entropy and predictions per class on the test set.

    A sample with a NaN logit counts as predicting no class.
    """
    data, correct, loss = samples.federation, 0.0, 0.0
    predicted = torch.zeros_like(data.counts[0])
    parts = math.ceil(len(data.test_labels) / EVALUATION_BATCH)
    for images, y in zip(
        data.test_images.tensor_split(parts), data.test_labels.tensor_split(parts), strict=True
    ):
        _, logits = architecture.forward(model, samples.normalise(images))
        sane = ~logits.isnan().any(1)
        said = logits.argmax(1)[sane]
        correct += (said == y[sane]).sum()
        predicted += said.bincount(minlength=len(predicted))
        loss += F.cross_entropy(logits, y, reduction="sum").double()
    total = len(data.test_labels)
    found = {"accuracy": float(correct) / total, "loss": float(loss) / total}
    return found | {"predicted": predicted.tolist()}
