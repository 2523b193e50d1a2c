"""FedCurv: stay close where other clients' losses are curved (Shoham et al., 2019).

After training, a client sends the diagonal Fisher information u_k of its data at its model w_k, and
u_k w_k; the server sums the latest ones of all clients. As in the code of FedNTD and FedLMD, u_k is
the mean of squared gradients over training batches, shuffled and augmented, until more than `size`
samples were used. A client's own share is subtracted from a copy of the sums. That code subtracts
it from the sums themselves, which are complete again only in the next round
(`subtract: in_place`). Private entries, which a client does not send, have no part in it.
"""

from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad
from torch.utils._pytree import tree_map

from fedgrid.method import Client, Cohort, Memory, Method, Model, Start, Step

NEUTRAL = {"penalty": 0.0}  # with which it is FedAvg
RANGES = {"penalty": "[0, inf)", "size": "[0, inf)", "subtract": ("copy", "in_place")}

MODELS_KEPT = 2  # per client, tensors as large as two models


def method(penalty: float = 1.0, size: int = 500, subtract: str = "copy") -> Method:
    """penalty >= 0 weighs <P, w^2> - 2 <Q, w>, with P, Q the others' u and u w; 0 is FedAvg.

    size: samples for the Fisher information, at most one epoch; 0 uses the whole epoch.
    subtract: "copy" subtracts a client's own share from a copy of the sums. With "in_place", as in
    the code of FedNTD and FedLMD, a client also misses the shares of the round's clients with
    smaller ids (there: of those drawn before it), so the numbering of clients matters.
    """
    in_place = subtract == "in_place"

    def nothing(start: Start, client: int | None = None) -> Memory:
        return {"fedcurv": {"u": start.zeros(), "uw": start.zeros()}}

    def curvature(step: Step) -> Tensor:
        everybody = step.shared["fedcurv"]
        gone = step.memory["missing" if in_place else "fedcurv"]
        total = next(iter(step.params.values())).new_zeros(())
        for name, w in ((n, w) for n, w in step.params.items() if n in everybody["u"]):
            u, uw = (everybody[part][name] - gone[part][name] for part in ("u", "uw"))
            total = total + (u * w.square()).sum() - 2 * (uw * w).sum()
        return penalty * total

    def keep(client: Client) -> Memory:
        sent = client.shared["fedcurv"]["u"]
        u = {name: of for name, of in fisher(client, size).items() if name in sent}
        return {"fedcurv": {"u": u, "uw": {name: u[name] * client.model[name] for name in u}}}

    def gather(cohort: Cohort, update: Model) -> Memory:
        sums = {part: dict(of) for part, of in cohort.shared["fedcurv"].items()}
        for before, after in zip(cohort.before, cohort.memory, strict=True):
            for part, of in sums.items():
                for name, now in after["fedcurv"][part].items():
                    of[name] = of[name] + now - before["fedcurv"][part][name]
        return {"fedcurv": sums}

    kept: dict[str, Any] = {"memory": nothing, "remember": keep, "shared": nothing, "share": gather}
    curved = Method(penalty=curvature, padded=True, uses_deltas=False, **kept)
    return curved | Method(send=missing if in_place else None)


def missing(cohort: Cohort) -> list[Memory]:
    """Return what each client's sums lack: its own share and those of the clients before it."""
    kept = (memory["fedcurv"] for memory in cohort.before)
    return [{"missing": total} for total in accumulate(kept, partial(tree_map, torch.add))]


def fisher(client: Client, size: int) -> Model:
    """Return the mean over batches of the squared gradient of a batch's mean loss, or 0."""
    trained = {name: client.model[name] for name, _ in client.architecture.named_parameters()}

    def loss(parameters: Model, x: Tensor, y: Tensor) -> Tensor:
        _, logits = functional_call(client.architecture, client.model | parameters, (x,))
        return F.cross_entropy(logits, y)

    sums = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
    batches = samples = 0
    for x, y in client.epoch():
        for name, gradient in grad(loss)(trained, x, y).items():
            sums[name] += gradient.square()
        batches, samples = batches + 1, samples + len(y)
        if samples > size > 0:
            break
    return {name: total / max(batches, 1) for name, total in sums.items()}
