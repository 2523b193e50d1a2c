"""Shared-shared-private: a private copy of the blocks above the split (`_partial.py`): ABb.

With a split of 0 the copy is a whole private model (AaBb). Both outputs have their cross-entropy,
and the loss is the sum. So the shared part of AaBb learns what it learns without a private model:
at the server AaBb is FedAvg. A client predicts with the mean of both probabilities, as in the text,
or with their product, as in the authors' code (`prediction`). The server's model is the shared
blocks.
"""

from fedgrid.method import Method
from fedgrid.methods import _partial

RANGES = {"prediction": ("mean", "product")}
PRIVATE = ("private.",)
SPLITS = True  # the model must name its blocks
MODELS_KEPT = 1  # models per client, at most


def method(split: int | None = None, prediction: str = "mean", forgets: bool = False) -> Method:
    """split: blocks below the split, between encoder and classifier if None; forgets: placebo.

    prediction: "mean" or "product" of the probabilities.
    """
    return _partial.privatise("ABb", split, forgets, product=prediction == "product")
