"""FedAvgM: momentum on the server (Hsu et al., 2019).

The default is the form of FedNTD and FedLMD, a heavy ball without damping. With `damped`, as in
MOON and FedDecorr, the update is multiplied by 1 - beta.
"""

from fedgrid.method import Cohort, Memory, Method, Model, Start

RANGES = {"beta": "[0, 1)"}


def method(beta: float = 0.7, damped: bool = False) -> Method:
    """beta in [0, 1) is the momentum; 0 is FedAvg."""

    def still(start: Start) -> Memory:
        return {"fedavgm": start.zeros()}

    def remember(cohort: Cohort, update: Model) -> Memory:
        scale, before = (1 - beta if damped else 1), cohort.shared["fedavgm"]
        return {"fedavgm": {n: beta * before[n] + scale * step for n, step in update.items()}}

    def step(update: Model, shared: Memory) -> Model:
        return {name: shared["fedavgm"][name] for name in update}

    return Method(server=step, share=remember, uses_deltas=False, shared=still)
