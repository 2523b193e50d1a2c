"""Metrics beside accuracy and loss, by torchmetrics. A protocol asks for them by name.

    balanced_accuracy   mean of the recalls of the classes that the samples have
    macro_f1            mean of the F1 scores of the classes
    auroc               area under the ROC curve, one class against the others, mean over classes
    calibration_error   expected calibration error with 15 bins of equal width (Guo et al., ICML
                        2017): the mean distance between confidence and accuracy
    recall              recall of each class, as recall_0, recall_1 and so on; with names of
                        classes in place of their numbers, if the data have them
    confusion           how many samples of each class are taken for each class: a table (K, K),
                        which is written to predictions.csv
    operations          floating point operations of a local step, once per run (`operations.py`)

All others are from 0 to 1. A value that is not a finite number is None: the recall of a class
without samples, AUROC if a class has no sample, or any metric of a model that has diverged.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedgrid.runtime.names import UsageError, known

NAMES = (
    "balanced_accuracy",
    "macro_f1",
    "auroc",
    "calibration_error",
    "recall",
    "confusion",
    "operations",
)
OF_RUN = ("operations",)  # which no evaluation computes
BINS = 15
# The columns of the mean of the last models (`average_last`), by those of the last model.
AVERAGED = {
    "accuracy": "averaged_accuracy",
    "loss": "averaged_loss",
    "validation_accuracy": "validation_averaged_accuracy",
    "validation_loss": "validation_averaged_loss",
}


def compute(
    names: Iterable[str], logits: Tensor, labels: Tensor, classes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return metrics of logits (n, K) and labels (n,); UsageError for an unknown name.

    `classes` has the names of the classes, if they have some.
    """
    for name in names:
        known("metric", name, NAMES)
    names = [name for name in names if name not in OF_RUN]
    probabilities = torch.softmax(logits.double(), 1)
    if not probabilities.isfinite().all():
        nothing = {name: torch.full((logits.shape[1],), math.nan) for name in names}
        return columns(nothing, classes)
    return columns({name: globals()[name](probabilities, labels) for name in names}, classes)


def confusion(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return (K, K): how many samples of a class, by row, are taken for each class, by column."""
    classes = probabilities.shape[1]
    pairs = labels * classes + probabilities.argmax(1)
    return pairs.bincount(minlength=classes**2).view(classes, classes)


def check(names: Iterable[str], labels: Tensor, classes: int) -> None:
    """Raise a UsageError if a test set with these labels cannot have one of the metrics."""
    missing = (labels.bincount(minlength=classes) == 0).nonzero().flatten().tolist()
    if "auroc" in names and missing:
        raise UsageError(
            f"auroc needs samples of every class, and class {missing[0]} has none in the test set: "
            "remove auroc from the protocol's `metrics`"
        )


def columns(found: dict[str, Tensor], classes: Sequence[str] = ()) -> dict[str, Any]:
    """Return one value per column; the recall of each class has a column, a table is a list."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        of = [f"recall_{c}" for c in classes or range(value.numel())]
        flat |= dict(zip(of, value, strict=True)) if name == "recall" else {name: value}
    return {n: plain(value) if value.dim() < 2 else value.tolist() for n, value in flat.items()}


def plain(value: Any) -> float | None:
    """Return a number as a float, and None unless it is one finite number."""
    value = torch.as_tensor(value)
    return float(value) if value.numel() == 1 and value.isfinite() else None


def balanced_accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the mean recall of the classes that the samples have."""
    return recall(probabilities, labels).nanmean()


def macro_f1(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the mean F1 score of the classes that are predicted or there."""
    from torchmetrics.functional.classification import multiclass_f1_score

    return multiclass_f1_score(probabilities, labels, probabilities.shape[1], average="macro")


def auroc(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the mean area under the ROC curve of each class; NaN if a class has no sample."""
    from torchmetrics.functional.classification import multiclass_auroc

    if not labels.bincount(minlength=probabilities.shape[1]).all():
        return torch.tensor(math.nan)
    return multiclass_auroc(probabilities, labels, probabilities.shape[1], average="macro")


def calibration_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the expected calibration error."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    classes = probabilities.shape[1]
    return multiclass_calibration_error(probabilities, labels, classes, n_bins=BINS, norm="l1")


def recall(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the recall of each class; NaN for a class without samples."""
    from torchmetrics.functional.classification import multiclass_recall

    classes = probabilities.shape[1]
    found = multiclass_recall(probabilities, labels, classes, average=None)
    return found.double().masked_fill(labels.bincount(minlength=classes) == 0, math.nan)
