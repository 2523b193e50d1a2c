"""FedCurv: stay where other clients' losses are curved (Shoham et al., 2019).

A client that has trained leaves the diagonal Fisher information u_k of its data at its model w_k,
as the mean over batches of squared gradients, and u_k w_k; the server holds the sums of everybody's
latest. A client's own share is subtracted from a copy. (FedNTD's and FedLMD's code subtracts it
from the sums themselves, so that within a round a client also misses those trained before it.)
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad

from fedgrid.method import Client, Cohort, Memory, Method, Start, State, Step


def method(penalty: float = 1.0) -> Method:
    """penalty >= 0 weighs <P, w^2> - 2 <Q, w>, the others' u and u w; 0 is FedAvg."""

    def nothing(start: Start, client: int | None = None) -> Memory:
        return {"fedcurv": {"u": start.zeros(), "uw": start.zeros()}}

    def curvature(step: Step) -> Tensor:
        everybody, own = step.shared["fedcurv"], step.memory["fedcurv"]
        total = 0.0
        for name, w in step.params.items():
            u, uw = (everybody[part][name] - own[part][name] for part in ("u", "uw"))
            total = total + (u * w.square()).sum() - 2 * (uw * w).sum()
        return penalty * total

    def keep(client: Client) -> Memory:
        u = fisher(client)
        return {"fedcurv": {"u": u, "uw": {name: u[name] * client.state[name] for name in u}}}

    def gather(cohort: Cohort, update: State) -> Memory:
        sums = {part: dict(of) for part, of in cohort.shared["fedcurv"].items()}
        for before, after in zip(cohort.before, cohort.memory, strict=True):
            for part, of in sums.items():
                for name, now in after["fedcurv"][part].items():
                    of[name] = of[name] + now - before["fedcurv"][part][name]
        return {"fedcurv": sums}

    return Method(penalty=curvature, memory=nothing, remember=keep, shared=nothing, share=gather)


def fisher(client: Client) -> State:
    """The mean over batches of a client's data of the squared gradient of the mean loss."""
    trained = {name: client.state[name] for name, _ in client.model.named_parameters()}

    def loss(parameters: State, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(client.model, client.state | parameters, (x,))[1], y)

    def squared(x: Tensor, y: Tensor) -> State:
        gradient = grad(loss)(trained, x, y)
        return {name: g.square() for name, g in gradient.items()} | {"batches": torch.ones(())}

    sums = client.total(squared, client.batch)
    if sums is None:  # a client without a batch
        return {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
    batches = sums.pop("batches")
    return {name: total / batches for name, total in sums.items()}
