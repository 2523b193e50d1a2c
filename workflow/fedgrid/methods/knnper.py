"""kNN-Per: a client's nearest neighbours correct the server's model (Marfoq et al., ICML 2022).

Marfoq, Neglia, Kameni and Vidal, "Personalized Federated Learning through Local Memorization". The
training is FedAvg's. For its evaluation a client stores the features of its training samples, by
the server's model, and predicts the probabilities

    lam q_k(y | x) + (1 - lam) q(y | x)        q_k(y | x) ~ sum_i 1[y_i = y] exp(-|f(x) - f(x_i)|)

where q are the model's and the sum is over the k nearest of the stored features f(x_i). A client
that has more than `capacity` samples stores as many that are drawn.

In the authors' code the weight of a neighbour is exp(-|f(x) - f(x_i)|^2 / (D scale)), with D
features (`kernel="squared"`). With it, all clients' probabilities are equal to those of that code
for the same model, to 1e-15. The paper chooses lam for each client by validation data; here it is
the same for all.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedgrid.method import Client, Method, Model
from fedgrid.models._branches import shared_path
from fedgrid.models._store import STORE, Recalling

PRIVATE = ("store.",)
MODELS_KEPT = 1  # models per client, for most capacities
NEUTRAL = {"lam": 0.0}  # with which it is FedAvg
RANGES = {
    "lam": "[0, 1]",
    "k": "[1, inf)",
    "capacity": "[1, inf)",
    "kernel": ("plain", "squared"),
    "scale": "(0, inf)",
}


def method(
    lam: float = 0.5, k: int = 10, capacity: int = 512, kernel: str = "plain", scale: float = 1.0
) -> Method:
    """lam: 0 is FedAvg; k: neighbours; kernel: of the distance; scale: of the squared one.

    capacity: samples that a client stores, at most.
    """
    if not lam:
        return Method()

    def recalling(model: Any) -> Any:
        power, length = (1, 1.0) if kernel == "plain" else (2, model.width * scale)
        closeness = partial(negative_power, power=power, length=length)
        return Recalling(model, capacity, k, lam, closeness)

    served: Any = shared_path
    kept = Method(architecture=recalling, private=PRIVATE, served=served)
    return kept | Method(personal=partial(remember, capacity=capacity))


def negative_power(distances: Tensor, power: int, length: float) -> Tensor:
    """Return -d^power / length."""
    return -(distances**power) / length


def remember(client: Client, capacity: int) -> Model:
    """Return the store of a client's training samples, or of as many drawn ones as it can hold."""
    features, classes = see(client)
    drawn = torch.Generator().manual_seed(client.round)
    order = torch.randperm(len(classes), generator=drawn)[:capacity].to(
        classes.device, non_blocking=True
    )
    room = (0, 0, 0, capacity - len(order))
    found = {"features": features[order], "classes": classes[order]}
    return {STORE + name: F.pad(rows, room) for name, rows in found.items()}


@torch.no_grad()
def see(client: Client) -> tuple[Tensor, Tensor]:
    """Return features (n, D) and classes (n, K), as rows with one 1, of a client's samples."""
    rows = []

    def look(x: Tensor, y: Tensor) -> Tensor:
        features = functional_call(client.architecture, client.model, (x,))[0]
        like = client.model[f"{STORE}classes"]
        rows.append((features.to(like), F.one_hot(y, like.shape[1]).to(like)))
        return y.sum()

    client.total(look)
    features, classes = (torch.cat(of) for of in zip(*rows, strict=True))
    return features, classes
