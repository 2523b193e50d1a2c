"""FedDyn: a client's penalty moves so that local optima meet (Acar et al., ICLR 2021).

With the server's model s, a client k minimises its loss plus

    alpha_k / 2 |w - s|^2 + alpha_k <w, h_k>

and then adds w - s to its h_k, which stands for -1 / alpha_k of its gradient. The server's model is
the mean of the round's models, where all clients weigh the same, plus the mean of h_k over all
clients of the population.

In the paper alpha_k = alpha. In the authors' code alpha_k = alpha mean(n) / n_k, with n_k the
client's samples (`by="samples"`). With this the server's model and all h_k are equal to those of
that code on the same batches, to 1e-15. That code also clips each gradient to the norm 10, before
it adds alpha_k w (`limit=10`, to 1e-15 as well); the protocol's `clip` limits the whole gradient.
The server's h stays alive without the penalty, so no alpha is FedAvg.

Private entries have no h.
"""

from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Start, Step, Trained
from fedgrid.methods import uniform

RANGES = {"alpha": "(0, inf)", "by": ("paper", "samples"), "limit": "[0, inf)"}
MODELS_KEPT = 1  # per client, tensors as large as the model
ADDED = ("limit",)


def method(alpha: float = 0.01, by: str = "paper", limit: float = 0.0) -> Method:
    """alpha weighs the penalty; by: a client's own weight of it.

    limit: the largest norm of the gradient without alpha_k w, or 0 for none.
    """

    def first(start: Start, client: int) -> Memory:
        return {"feddyn": start.zeros()}

    def begin(start: Start) -> Memory:
        return {"feddyn": start.zeros(), "feddyn_size": start.sizes.mean()}

    def own_alpha(step: Step) -> Any:
        if by == "paper":
            return alpha
        return alpha * step.shared["feddyn_size"] / step.counts.sum().clamp(min=1)

    def pull(step: Step) -> Tensor:
        total: Any = 0
        for name, h in step.memory["feddyn"].items():
            w = step.params[name]
            total = total + ((w - step.server[name]).square() / 2 + w * h).sum()
        return own_alpha(step) * total

    def limited(step: Step, gradient: Model) -> Model:
        a, names = own_alpha(step), step.memory["feddyn"].keys() & gradient.keys()
        rest = gradient | {n: gradient[n] - a * step.params[n] for n in names}
        norm = torch.cat([g.flatten() for g in rest.values()]).norm()
        cut = {n: g * (limit / (norm + 1e-6)).clamp(max=1) for n, g in rest.items()}
        return cut | {n: cut[n] + a * step.params[n] for n in names}

    def remember(end: Trained) -> Memory:
        own = end.memory["feddyn"]
        return {"feddyn": {n: h + end.model[n] - end.server[n] for n, h in own.items()}}

    def share(cohort: Cohort, update: Model) -> Memory:
        part, before = len(cohort.clients) / cohort.population, cohort.shared["feddyn"]
        return {"feddyn": {n: h - part * update[n] for n, h in before.items()}}

    def step(update: Model, shared: Memory) -> Model:
        return {n: change - shared["feddyn"][n] for n, change in update.items()}

    kept: dict[str, Any] = {"memory": first, "remember": remember, "shared": begin, "share": share}
    server: dict[str, Any] = {"server": step, "weigh": uniform.method().weigh}
    correct = limited if limit else None
    return Method(penalty=pull, correct=correct, padded=True, uses_deltas=False, **kept, **server)
