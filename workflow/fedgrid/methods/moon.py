"""MOON: pull features to the server model's, push them from the last local one's (Li et al., 2021).

The contrast uses a projection of the features, which is also the input of the classifier, as in the
official code, and with `before="none"` a round in which all clients take part is equal to one of
that code on the same batches, to 1e-14. In its first participation a client is pushed from the
common initial weights, as in FedNTD's code (`before="initial"`, the default), or from random
weights (`"random"`), or not at all (`"none"`). The official code uses random weights, but no
contrast in the very first round (`"later"`). With these weights in that code, the server's model is
equal to its own on the same batches, to 1e-14, where some clients take part in a round, too.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgrid.method import Memory, Method, Start, Step, Trained

NEUTRAL = {"mu": 0.0, "projection": 0}  # with which it is FedAvg
RANGES = {
    "mu": "[0, inf)",
    "tau": "(0, inf)",
    "projection": "[0, inf)",
    "before": ("initial", "random", "later", "none"),
}

MODELS_KEPT = 1  # per client, tensors as large as the model


def method(
    mu: float = 5.0, tau: float = 0.5, projection: int = 256, before: str = "initial"
) -> Method:
    """mu weighs the term (0 is FedAvg with this model); tau is its temperature.

    projection is the width of the two-layer projection head; 0 leaves the model unchanged.
    """

    def contrast(step: Step) -> Tensor:
        others = (step.server, step.memory["previous"])
        similar = torch.stack(
            [F.cosine_similarity(step.features, step.forward(w, step.x)[0]) for w in others], dim=1
        )
        away = -F.log_softmax(similar / tau, dim=1)[:, 0]
        pushes = step.memory["pushes"]
        pushes = pushes * (step.round > 0) if before == "later" else pushes
        return mu * pushes * step.mean(away)

    def initial(start: Start, client: int) -> Memory:
        previous = start.random(client) if before in ("random", "later") else start.server
        pushes = next(iter(previous.values())).new_tensor(before != "none")
        return {"previous": previous, "pushes": pushes}

    def keep_model(end: Trained) -> Memory:
        return {"previous": end.model, "pushes": torch.ones_like(end.memory["pushes"])}

    project = (lambda model: projected(model, projection)) if projection else None
    contrasted = Method(penalty=contrast, padded=True, memory=initial, remember=keep_model)
    return contrasted | Method(architecture=project)


def projected(model: Any, width: int) -> nn.Module:
    """Insert a projection head before the model's classifier; return the model."""
    features, classes = model.head.in_features, model.head.out_features
    head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))
    model.body, model.head = nn.Sequential(model.body, head), nn.Linear(width, classes)
    model.width = width
    return model
