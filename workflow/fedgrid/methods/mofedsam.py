"""MoFedSAM: FedSAM's steps with the server's momentum (Qu et al., ICML 2022).

With g the gradient at w + rho g(w) / |g(w)| (as in `fedsam`), a client's step goes along

    beta g + (1 - beta) D

where D is the round before's mean gradient: the server's change divided by the learning rate and
by the clients' weighted mean number of steps. In the first round it is 0.

The published code (FL-Simulator, of another group) divides by the number of steps of its first
client, counted as epochs times samples divided by the batch size, and all clients of a round weigh
the same. Where all clients have the same whole number of batches, the server's model is equal to
that of this code on the same batches, to 1e-8: it adds 1e-7 to |g(w)|, and with the 1e-12 that is
added here, the two are equal to 1e-15. That code clips gradients to the norm 10; here the
protocol's `clip` does that. The number of steps includes the effect of local momentum, which the
paper does not have.
"""

from typing import Any

from fedgrid.method import (
    Cohort,
    Memory,
    Method,
    Model,
    Start,
    Step,
    by_samples,
    effective_steps,
)
from fedgrid.methods import fedsam

NEUTRAL = {"rho": 0.0, "beta": 1.0}  # with which it is FedAvg
RANGES = {"rho": "[0, inf)", "beta": "(0, 1]"}

OPTIMISERS = ("sgd",)  # Adam's change is no sum of gradients


def method(rho: float = 0.1, beta: float = 0.1) -> Method:
    """rho: FedSAM's distance; beta: the share of the client's gradient.

    With beta 1 it is FedSAM, and with rho 0, too, FedAvg.
    """
    ascend: Any = fedsam.method(rho).correct

    def none(start: Start) -> Memory:
        return {"mofedsam": start.zeros()}

    def mix(step: Step, gradient: Model) -> Model:
        server = step.shared["mofedsam"]
        far = ascend(step, gradient)
        both = {n: beta * far[n] + (1 - beta) * server[n] for n in server if n in far}
        return far | both

    def share(cohort: Cohort, update: Model) -> Memory:
        weights = by_samples(cohort)
        steps = effective_steps(cohort.steps.to(weights), cohort.momentum)
        way = (weights * steps).sum() * cohort.lr
        return {"mofedsam": {n: update[n] / way for n in cohort.shared["mofedsam"]}}

    kept: dict[str, Any] = {"shared": none, "share": share, "uses_deltas": False}
    return Method(correct=mix, padded=True, optimisers=OPTIMISERS, **kept)
