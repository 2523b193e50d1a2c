"""FedPHP: each client inherits a private model from round to round (Li et al., ECML PKDD 2021).

Li, Zhan, Shao, Li and Song, "FedPHP: Federated Personalization with Inherited Private Models". A
client begins with the server's model and minimises (1 - lam) times the cross-entropy with its
labels plus lam times that with the probabilities of its private model at the temperature tau. After
its local steps the private model becomes mu private + (1 - mu) local, where mu grows with the
number q of its earlier rounds: mu = inherit min(1, q / e), with the expected number e of them in
the run. A client is evaluated with its private model; the first one has the initial weights.

As in the authors' code, the temperature is that of the private model alone. Of the paper's ways to
transfer knowledge this is KD; MMD is not here.
"""

import torch
from torch import Tensor

from fedgrid.method import Client, Cohort, Memory, Method, Model, Start, Step

ROUNDS = True
NEUTRAL = {"lam": 0.0}  # with which it is FedAvg
RANGES = {"lam": "[0, 1]", "tau": "(0, inf)", "inherit": "[0, 1]"}

PRIVATE = True
MODELS_KEPT = 1  # per client, tensors as large as the model


def method(lam: float = 0.1, tau: float = 4.0, inherit: float = 0.9) -> Method:
    """lam: with 0 the server has FedAvg's model; inherit: the largest mu."""

    def taught(step: Step) -> Tensor:
        teacher = (step.forward(step.memory["fedphp"]["model"], step.x)[1] / tau).softmax(1)
        each = -(teacher * step.logits.log_softmax(1)).sum(1)
        return (1 - lam) * step.cross_entropy() + lam * step.mean(each)

    def initial(start: Start, client: int) -> Memory:
        none, rounds = start.sizes.new_zeros(()), start.sizes.new_tensor(start.rounds)
        return {"fedphp": {"model": start.server, "seen": none}, "fedphp_rounds": rounds}

    def expected(cohort: Cohort) -> list[Memory]:
        share = len(cohort.clients) / cohort.population
        rounds = (before["fedphp_rounds"] for before in cohort.before)
        return [{"fedphp_expected": (number * share).clamp(min=1)} for number in rounds]

    def inherited(client: Client) -> Memory:
        kept = client.memory["fedphp"]
        mu = inherit * (kept["seen"] / client.memory["fedphp_expected"]).clamp(max=1)
        model = {n: torch.lerp(client.model[n], w, mu.to(w)) for n, w in kept["model"].items()}
        rounds = client.memory["fedphp_rounds"]
        return {"fedphp": {"model": model, "seen": kept["seen"] + 1}, "fedphp_rounds": rounds}

    def own(client: Client) -> Model:
        return client.memory["fedphp"]["model"]

    kept = Method(memory=initial, send=expected, remember=inherited, personal=own)
    return kept | Method(loss=taught, padded=True)
