"""FedAMP: clients whose models are alike attract each other (Huang et al., AAAI 2021).

Huang, Chu, Zhou, Wang, Liu, Pei and Zhang, "Personalized Cross-Silo Federated Learning on Non-IID
Data". Each client i keeps its model w_i, with which it begins. The server sends it
u_i = (1 - sum_j xi_ij) w_i + sum_j xi_ij w_j over the other clients of the round, with the weights
xi_ij = alpha / sigma exp(-|w_i - w_j|^2 / sigma), and the client minimises
F_i(w) + lam / (2 alpha) |w - u_i|^2. It is evaluated with w_i. The mean of these models, which the
server has too, is not used.

The placebo `shuffled` gives each pair of clients the weight of another pair.

The authors have published no code. In PFLlib the term has no gradient. All of its default values
are 1; weights of models that differ much are then near 0, and the term holds a client where it is.
With the default values here the weights of ten clients sum to at most 1.
"""

import torch
from torch import Tensor

from fedgrid.method import Client, Cohort, Memory, Method, Model, Start, Step
from fedgrid.methods.contribution import of_another
from fedgrid.runtime.names import UsageError

RANGES = {"lam": "[0, inf)", "alpha": "(0, inf)", "sigma": "(0, inf)"}
PRIVATE = True
MODELS_KEPT = 2  # per client: its model, and in a round the one that the server sends


def method(
    lam: float = 1.0, alpha: float = 100.0, sigma: float = 1000.0, shuffled: bool = False
) -> Method:
    """lam: with 0 each client trains alone; shuffled: the placebo."""

    def attracted(step: Step) -> Tensor:
        pairs = ((step.params[n], u) for n, u in sorted(step.memory["fedamp_u"].items()))
        return lam / (2 * alpha) * torch.stack([(w - u).square().sum() for w, u in pairs]).sum()

    def clouds(cohort: Cohort) -> list[Memory]:
        others = len(cohort.before) - 1
        if alpha / sigma * others > 1:
            raise UsageError(
                f"fedamp: with {others} other clients in a round, alpha / sigma is at most "
                f"{1 / others:g}, or a client's own model has a negative weight: lower alpha"
            )
        models = [before["fedamp"]["parameters"] for before in cohort.before]
        flat = torch.stack([torch.cat([of[n].flatten() for n in sorted(of)]) for of in models])
        away = torch.stack([(flat - own).square().sum(1) for own in flat])
        weights = (alpha / sigma * torch.exp(-away / sigma)).fill_diagonal_(0)
        if shuffled:
            other = of_another(weights, cohort.noise)
            weights = weights[other][:, other]
        weights = weights + torch.diag(1 - weights.sum(1))
        return [{"fedamp_u": mixed(row, models)} for row in weights]

    def initial(start: Start, client: int) -> Memory:
        own = {n: start.server[n] for n in start.parameters}
        rest = {n: w for n, w in start.server.items() if n not in own}
        return {"fedamp": {"parameters": own, "rest": rest}}

    def begin(client: Client) -> Model:
        return client.memory["fedamp"]["parameters"] | client.memory["fedamp"]["rest"]

    def remember(client: Client) -> Memory:
        parts = client.memory["fedamp"].items()
        return {"fedamp": {part: {n: client.model[n] for n in names} for part, names in parts}}

    kept = Method(begin=begin, memory=initial, remember=remember)
    return kept | Method(penalty=attracted, padded=True, send=clouds)


def mixed(weights: Tensor, models: list[Model]) -> Model:
    """Return the sum of models, each times its weight."""
    pairs = list(zip(weights, models, strict=True))
    return {n: torch.stack([a * model[n] for a, model in pairs]).sum(0) for n in models[0]}
