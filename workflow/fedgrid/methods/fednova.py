"""FedNova: average the clients' changes per step, not per round (Wang et al., NeurIPS 2020).

With momentum rho, a_k is the sum of the factors l_s = rho l_{s-1} + 1 over the client's steps. If
all clients take equally many steps, this is FedAvg. Where all clients take part, the server's model
is equal to that of the authors' code on the same batches, to 1e-15, with and without momentum; that
code weighs by samples of the population, not of the round. `ccvr` adds the default of FedNTD's and
FedLMD's code: the client's last mean gradient, (server - local) / (lr a_k), is subtracted from
every gradient; the average that should be added is never updated there.

The factors l_s are those of SGD. There are none for Adam, whose steps are no sums of gradients.
"""

from typing import Any

from torch import Tensor

from fedgrid.method import (
    Cohort,
    Memory,
    Method,
    Model,
    Start,
    Step,
    Trained,
    effective_steps,
)

MODELS_KEPT = 1  # per client with ccvr, tensors as large as the model
OPTIMISERS = ("sgd",)


def method(ccvr: bool = False) -> Method:
    """ccvr: as in the code of FedLMD's published numbers; False is the paper's method."""

    def normalised(cohort: Cohort, share: Tensor) -> Tensor:
        steps = effective_steps(cohort.steps.to(share), cohort.momentum)
        return (share * steps).sum() * share / steps.clamp(min=1)

    def still(start: Start, client: int) -> Memory:
        return {"fednova": start.zeros()}

    def direction(end: Trained) -> Memory:
        way = max(effective_steps(end.steps, end.momentum), 1) * end.lr
        own = end.memory["fednova"]
        return {"fednova": {n: (end.server[n] - end.model[n]) / way for n in own}}

    def subtract(step: Step, gradient: Model) -> Model:
        own = step.memory["fednova"]
        return gradient | {n: gradient[n] - own[n] for n in own if n in gradient}

    corrected: dict[str, Any] = (
        {"memory": still, "remember": direction, "correct": subtract} if ccvr else {}
    )
    return Method(scale=normalised, padded=True, optimisers=OPTIMISERS, **corrected)
