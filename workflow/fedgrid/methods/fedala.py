"""FedALA: each client learns how much of the server's model to take (Zhang et al., AAAI 2023).

Zhang, Hua, Wang, Song, Xue, Ma and Guan, "FedALA: Adaptive Local Aggregation for Personalized
Federated Learning". A client begins a round with old + (server - old) * W, where old is its own
model after its last round and W, in 0..1, has an entry for each parameter. W begins with ones and
follows the gradient of the cross-entropy with the rate eta on a share of the client's batches: for
`first` epochs when the models differ for the first time, for one epoch later. Parameters outside
of `part` are the server's. A client is evaluated with the model that it begins with.

The official code goes on with the first epochs, of which there are eleven or more, until the losses
of the last ten have a standard deviation below 0.1 (`settled=0.1`); by default their number is
fixed. Here there are at most a thousand, and a loss is that in evaluation mode. That code takes a
random run of samples, here these are batches of one shuffled epoch. With these batches, the
server's model and all W are equal to those of that code, to 1e-15, in a network without BatchNorm.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedgrid.method import Client, Memory, Method, Model, Start

RANGES = {
    "share": "(0, 1]",
    "eta": "[0, inf)",
    "part": ("head", "all"),
    "first": "[1, inf)",
    "settled": "[0, inf)",
}
PRIVATE = True
MODELS_KEPT = 2  # per client with part="all", tensors as large as the model
ADDED = ("settled",)
MOST = 1000  # epochs


def method(
    share: float = 0.8,
    eta: float = 1.0,
    part: str = "head",
    first: int = 11,
    settled: float = 0.0,
) -> Method:
    """share: of the batches; eta: 0 is FedAvg; part: of the model; first: epochs.

    settled: of losses of the last first - 1 epochs, the deviation that ends them; 0: after `first`.
    """

    def initial(start: Start, client: int) -> Memory:
        names = [n for n in start.parameters if part == "all" or n.startswith("head.")]
        old = {n: start.server[n] for n in names}
        weights = {n: torch.ones_like(w) for n, w in old.items()}
        return {"ala_old": old, "ala_weights": weights, "ala_learnt": start.sizes.new_zeros(())}

    def mixed(client: Client, weights: Model) -> Model:
        old = client.memory["ala_old"]
        return {n: old[n] + (client.server[n] - old[n]) * weights[n] for n in old}

    def learn(client: Client) -> tuple[Model, bool]:
        old, weights = client.memory["ala_old"], client.memory["ala_weights"]
        way = {n: client.server[n] - old[n] for n in old}
        if not any(bool(w.any()) for w in way.values()):
            return weights, False
        base = client.server | client.memory.get("private", {})
        batches, losses = [*client.epoch()], []
        if not batches:
            return weights, True
        for _ in range(1 if client.memory["ala_learnt"] else MOST if settled else first):
            for x, y in batches[: max(1, round(share * len(batches)))]:
                model = base | mixed(client, weights)
                g = client.gradient(model, x, y)
                weights = {n: (w - eta * g[n] * way[n]).clamp(0, 1) for n, w in weights.items()}
            losses += [loss(client, model, x, y)] if settled else []
            if len(losses) >= first and np.std(losses[1 - first :]) < settled:
                break
        return weights, True

    def begin(client: Client) -> Model:
        return mixed(client, learn(client)[0])

    def remember(client: Client) -> Memory:
        weights, learnt = learn(client)
        old = {n: client.model[n] for n in weights}
        done = client.memory["ala_learnt"].clamp(min=float(learnt))
        return {"ala_old": old, "ala_weights": weights, "ala_learnt": done}

    return Method(begin=begin, memory=initial, remember=remember)


@torch.no_grad()
def loss(client: Client, model: Model, x: Tensor, y: Tensor) -> float:
    """Return the mean cross-entropy of a batch."""
    return float(F.cross_entropy(functional_call(client.architecture, model, (x,))[1], y))
