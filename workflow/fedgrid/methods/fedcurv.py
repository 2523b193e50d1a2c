"""FedCurv: stay where other clients' losses are curved (Shoham et al., 2019).

A client that has trained leaves the diagonal Fisher information u_k of its data at its model w_k,
and u_k w_k; the server holds the sums of everybody's latest. As in FedNTD's and FedLMD's code u_k
is the mean of squared gradients over training batches, shuffled and augmented, until more than
`size` samples were used. A client's own share is subtracted from a copy. That code subtracts it
from the sums themselves, which are whole again in the next round only (`subtract: in_place`).
"""

from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad
from torch.utils._pytree import tree_map

from fedgrid.method import Client, Cohort, Memory, Method, Start, State, Step
from fedgrid.names import UsageError


def method(penalty: float = 1.0, size: int = 500, subtract: str = "copy") -> Method:
    """penalty >= 0 weighs <P, w^2> - 2 <Q, w>, the others' u and u w; 0 is FedAvg.

    size: of the sample for the Fisher information, at most one epoch; 0 takes the whole epoch.
    subtract: a client's own share from a "copy" of the sums, or "in_place" as in FedNTD's and
    FedLMD's code: a client also misses the shares of the round's clients with smaller ids (there:
    of those drawn before it), and how clients are numbered matters.
    """
    if subtract not in ("copy", "in_place"):
        raise UsageError(f"fedcurv: subtract is copy or in_place, not {subtract!r}")
    in_place = subtract == "in_place"

    def nothing(start: Start, client: int | None = None) -> Memory:
        return {"fedcurv": {"u": start.zeros(), "uw": start.zeros()}}

    def curvature(step: Step) -> Tensor:
        everybody = step.shared["fedcurv"]
        gone = step.memory["missing" if in_place else "fedcurv"]
        total = 0.0
        for name, w in step.params.items():
            u, uw = (everybody[part][name] - gone[part][name] for part in ("u", "uw"))
            total = total + (u * w.square()).sum() - 2 * (uw * w).sum()
        return penalty * total

    def keep(client: Client) -> Memory:
        u = fisher(client, size)
        return {"fedcurv": {"u": u, "uw": {name: u[name] * client.state[name] for name in u}}}

    def gather(cohort: Cohort, update: State) -> Memory:
        sums = {part: dict(of) for part, of in cohort.shared["fedcurv"].items()}
        for before, after in zip(cohort.before, cohort.memory, strict=True):
            for part, of in sums.items():
                for name, now in after["fedcurv"][part].items():
                    of[name] = of[name] + now - before["fedcurv"][part][name]
        return {"fedcurv": sums}

    curved = Method(penalty=curvature, memory=nothing, remember=keep, shared=nothing, share=gather)
    return curved | Method(send=missing if in_place else None)


def missing(cohort: Cohort) -> list[Memory]:
    """What is no longer in the sums when a client trains: its own share and those before it."""
    kept = (memory["fedcurv"] for memory in cohort.before)
    return [{"missing": total} for total in accumulate(kept, partial(tree_map, torch.add))]


def fisher(client: Client, size: int) -> State:
    """The mean over batches of the squared gradient of a batch's mean loss; 0 without a batch."""
    trained = {name: client.state[name] for name, _ in client.model.named_parameters()}

    def loss(parameters: State, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(client.model, client.state | parameters, (x,))[1], y)

    sums = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
    batches = samples = 0
    for x, y in client.epoch():
        for name, gradient in grad(loss)(trained, x, y).items():
            sums[name] += gradient.square()
        batches, samples = batches + 1, samples + len(y)
        if samples > size > 0:
            break
    return {name: total / max(batches, 1) for name, total in sums.items()}
