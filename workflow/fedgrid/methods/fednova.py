"""FedNova: average what clients do per step, not per round (Wang et al., NeurIPS 2020).

With momentum rho a step counts as often as it moves the model: a_k is the sum of the running
factors l_s = rho l_{s-1} + 1. Where all clients take as many steps it is FedAvg. `ccvr` adds what
FedNTD's and FedLMD's code does by default: every gradient has its client's own last mean gradient
subtracted, way / (lr a_k), since the average that should be added is never updated there.
"""

from torch import Tensor

from fedgrid.method import (
    Cohort,
    Memory,
    Method,
    Start,
    State,
    Step,
    Trained,
    by_samples,
    effective_steps,
)


def method(ccvr: bool = False) -> Method:
    """ccvr: as the code behind FedLMD's published numbers; off is the paper's method."""

    def normalised(cohort: Cohort) -> Tensor:
        share = by_samples(cohort)
        steps = effective_steps(cohort.steps.to(share), cohort.momentum)
        return (share * steps).sum() * share / steps.clamp(min=1)

    def still(start: Start, client: int) -> Memory:
        return {"fednova": start.zeros()}

    def direction(end: Trained) -> Memory:
        way = max(effective_steps(end.steps, end.momentum), 1) * end.lr
        own = end.memory["fednova"]
        return {"fednova": {n: (end.server[n] - end.state[n]) / way for n in own}}

    def subtract(step: Step, gradient: State) -> State:
        return {name: g - step.memory["fednova"][name] for name, g in gradient.items()}

    corrected = {"memory": still, "remember": direction, "correct": subtract} if ccvr else {}
    return Method(weigh=normalised, **corrected)
