"""SCAFFOLD: control variates against client drift (Karimireddy et al., ICML 2020; option II).

A client's variate is its mean gradient: its change divided by the learning rate and by the number
of steps. This number includes the effect of momentum, as in the code of FedNTD and FedLMD
(`division="effective"`), or not ("steps", as in other code). Deltas are weighted by samples; the
server's variate changes by the mean over the population.

The authors have published no code. With `uniform` and "steps", where clients have equally many
samples and the learning rate stays, the server's model is equal to that of SCAFFOLD in FedDyn's
repository on the same batches, to 1e-15. With other numbers of samples that code divides the
server's variate by n_k / mean(n) for client k, and multiplies the change of the client's by it; and
it divides changes by the first round's learning rate, also where the rate falls.

Private entries have no variates, because the server's would be made of what never leaves a client.

A change is the sum of gradients times the learning rate only where each step goes along the
gradient, which Adam's steps do not. With `clip` the variate is the mean of clipped gradients.
"""

from typing import Any

from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Start, Step, Trained, effective_steps

RANGES = {"division": ("effective", "steps")}
MODELS_KEPT = 1  # per client, tensors as large as the model
OPTIMISERS = ("sgd",)


def method(division: str = "effective") -> Method:
    """division: the number by which a client's change is divided."""

    def none(start: Start, client: int | None = None) -> Memory:
        return {"scaffold": start.zeros()}

    def correct(step: Step, gradient: Model) -> Model:
        own, server = step.memory["scaffold"], step.shared["scaffold"]
        return gradient | {n: gradient[n] - own[n] + server[n] for n in own if n in gradient}

    def variate(end: Trained) -> Memory:
        momentum = end.momentum if division == "effective" else 0.0
        way = max(effective_steps(end.steps, momentum), 1) * end.lr
        own, server = end.memory["scaffold"], end.shared["scaffold"]
        moved = {n: (end.server[n] - end.model[n]) / way for n in own}
        kept = {n: own[n] - server[n] + moved[n] if end.steps else own[n] for n in own}
        return {"scaffold": kept}

    def share(cohort: Cohort, update: Model) -> Memory:
        pairs = list(zip(cohort.memory, cohort.before, strict=True))

        def change(name: str) -> Tensor:
            return sum(
                after["scaffold"][name] - before["scaffold"][name] for after, before in pairs
            )

        server = cohort.shared["scaffold"]
        return {"scaffold": {n: w + change(n) / cohort.population for n, w in server.items()}}

    kept: dict[str, Any] = {"memory": none, "remember": variate, "shared": none, "share": share}
    given: dict[str, Any] = {"padded": True, "uses_deltas": False, "optimisers": OPTIMISERS}
    return Method(correct=correct, **given, **kept)
