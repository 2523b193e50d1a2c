"""SCAFFOLD: control variates against client drift (Karimireddy et al., ICML 2020; option II).

A client's variate is its mean gradient, found from how far it went: the number of steps counts with
the protocol's momentum, as FedNTD's and FedLMD's code has it (`division="effective"`), or without
("steps", as in other code). Weighted by samples; the server's variate moves by the mean over the
population.
"""

from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Start, State, Step, Trained, effective_steps
from fedgrid.names import UsageError


def method(division: str = "effective") -> Method:
    """division: what a client's way is divided by beside its learning rate."""
    if division not in ("effective", "steps"):
        raise UsageError(f"scaffold: division is effective or steps, not {division!r}")

    def none(start: Start, client: int | None = None) -> Memory:
        return {"scaffold": start.zeros()}

    def correct(step: Step, gradient: State) -> State:
        own, server = step.memory["scaffold"], step.shared["scaffold"]
        return {name: g - own[name] + server[name] for name, g in gradient.items()}

    def variate(end: Trained) -> Memory:
        momentum = end.momentum if division == "effective" else 0.0
        way = max(effective_steps(end.steps, momentum), 1) * end.lr
        own, server = end.memory["scaffold"], end.shared["scaffold"]
        moved = {n: (end.server[n] - end.state[n]) / way for n in own}
        kept = {n: own[n] - server[n] + moved[n] if end.steps else own[n] for n in own}
        return {"scaffold": kept}

    def share(cohort: Cohort, update: State) -> Memory:
        pairs = list(zip(cohort.memory, cohort.before, strict=True))

        def change(name: str) -> Tensor:
            return sum(
                after["scaffold"][name] - before["scaffold"][name] for after, before in pairs
            )

        server = cohort.shared["scaffold"]
        return {"scaffold": {n: w + change(n) / cohort.population for n, w in server.items()}}

    return Method(correct=correct, memory=none, remember=variate, shared=none, share=share)
