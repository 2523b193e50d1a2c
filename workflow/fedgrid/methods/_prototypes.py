"""Prototypes: the mean features of each class, which the server averages over clients.

Clients of a round send, for each of their classes, the mean features of their training samples
under the trained model. The server averages them, over clients or over samples, and keeps the
last prototype of a class that no client of the round has. In the next round clients pull the
features of each sample to its class's prototype: lam times the mean over samples and dimensions of
the squared difference, without the classes that have no prototype yet.

The placebo `shuffled` gives each class the prototype of a random one, in an order that is drawn for
each client and round.
"""

import torch
from torch import Tensor
from torch.func import functional_call

from fedgrid.method import Client, Cohort, Memory, Method, Model, Start, Step
from fedgrid.methods._random_classes import ORDER, send_orders


def pull(lam: float, average: str, shuffled: bool = False) -> Method:
    """Return what clients and server do with prototypes; average: equal (clients) or samples."""

    def near(step: Step) -> Tensor:
        y = step.memory[ORDER][step.y] if shuffled else step.y
        goal, known = (step.shared["prototypes"][n][y] for n in ("mean", "known"))
        return lam * step.mean((step.features - goal).square().mean(1) * known)

    def of_classes(client: Client) -> Memory:
        return {"features": total(client, client.model)["features"]}

    def averaged(cohort: Cohort, update: Model) -> Memory:
        sums = torch.stack([told["features"] for told in cohort.measured])
        counts = cohort.counts.to(sums)[:, :, None]
        if average == "equal":
            sums, counts = sums / counts.clamp(min=1), (counts > 0).to(sums)
        total, here = counts.sum(0), counts.sum(0) > 0
        before = cohort.shared["prototypes"]
        mean = torch.where(here, sums.sum(0) / total.clamp(min=1), before["mean"])
        return {"prototypes": {"mean": mean, "known": before["known"].clamp(min=here[:, 0])}}

    def none(start: Start) -> Memory:
        head = start.server["head.weight"]
        return {"prototypes": {"mean": torch.zeros_like(head), "known": head.new_zeros(len(head))}}

    told = Method(measure=of_classes, share=averaged, shared=none, uses_deltas=False)
    orders = send_orders if shuffled else None
    return Method(penalty=near, padded=True, send=orders) | told


@torch.no_grad()
def total(client: Client, model: Model) -> dict[str, Tensor]:
    """Return sums over a client's training samples: features by class (K, D), and squares ()."""
    nothing = torch.zeros_like(client.model["head.weight"])

    def summed(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        features = functional_call(client.architecture, model, (x,))[0].to(nothing)
        return {"features": nothing.index_add(0, y, features), "squares": features.square().sum()}

    return client.total(summed) or {"features": nothing, "squares": nothing.sum()}
