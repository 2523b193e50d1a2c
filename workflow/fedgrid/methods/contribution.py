"""Client contribution normalisation: weigh down clients whose latents resemble the others'.

arXiv:2411.06352 (2024); no code is published. It changes the weights of any other method. After
local training, client r sends z_r, the mean over its training samples of the classifier's input.
With S(r, p) the cosine of z_r and z_p, and nu_r the weight that the other method gives,

    s_r = sum_p S(r, p) / temperature        Lambda_r = 1 - exp(s_r) / sum_q exp(s_q)
    a_r = Lambda_r nu_r / sum_q Lambda_q nu_q

The sum of the weights stays that of nu. The text does not give the temperature: 0.5 is chosen here.
It does not say either whether a client's samples are augmented, or in which mode the model is: here
one pass in evaluation mode follows local training, without augmentation.

How far this can move the weights is bounded. Their total variation, half the sum of |a_r - nu_r|
for weights that sum to 1, is at most the largest nu_r, which is 1 / R for R equal weights: even if
one client has the whole softmax, only its own weight is given to the others. `weight_distance` and
`distance_bound` record both in metrics.csv.

With `shuffled`, the placebo, every client gets the factor Lambda of another client, drawn anew in
each round: the same factors, without the meaning that the paper gives them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedgrid.method import Aggregated, Client, Cohort, Memory, Method, relative
from fedgrid.runtime.names import UsageError

RANGES = {"temperature": "(0, inf)", "latent": ("local", "server")}
LEAST_COHORT = 2  # a client alone has no other to resemble: its factor would be 0


def method(temperature: float = 0.5, latent: str = "local", shuffled: bool = False) -> Method:
    """temperature: the lower, the more the most similar clients lose.

    latent: "local", of the client's model after local training, or "server", of the model that the
    server sent. shuffled: the placebo.
    """

    def mean_latent(end: Client) -> Memory:
        model = end.model if latent == "local" else end.server

        @torch.no_grad()
        def summed(x: Tensor, y: Tensor) -> Tensor:
            return functional_call(end.architecture, model, (x,))[0].sum(0)

        total = end.total(summed)
        width: Any = end.architecture.width
        empty = total is None  # a client without samples has no weight, and resembles nobody
        mean = end.counts.new_zeros(width, dtype=torch.float64) if empty else total.double()
        finite = torch.stack([entry.isfinite().all() for entry in end.model.values()]).all()
        return {"latent": mean / end.counts.sum().clamp(min=1), "finite": finite}

    def normalised(cohort: Cohort, weights: Tensor) -> Tensor:
        check(cohort)
        latents = torch.stack([told["latent"] for told in cohort.measured])
        kept = factors(latents, temperature)
        if shuffled:
            kept = kept[of_another(kept, cohort.noise)]
        return relative(kept.to(weights) * weights) * weights.sum()

    return Method(
        measure=mean_latent, reweigh=normalised, observe=observed, weigh_after_training=True
    )


def factors(latents: Tensor, temperature: float) -> Tensor:
    """Return Lambda (C,) of mean latents (C, D)."""
    unit = F.normalize(latents, dim=1)
    similar = unit @ unit.T
    return 1 - torch.softmax(similar.fill_diagonal_(1).sum(1) / temperature, dim=0)


def of_another(values: Tensor, seed: int) -> Tensor:
    """Return for each of the values (C, ...) the position of another one, each once."""
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    another = torch.empty_like(order).index_copy_(0, order, order.roll(1))
    return another.to(values.device, non_blocking=True)


def observed(end: Aggregated) -> dict[str, Tensor]:
    """Return the total variation of the weights before and after, and its bound."""
    before, after = relative(end.given.double()), relative(end.weights.double())
    return {"weight_distance": (after - before).abs().sum() / 2, "distance_bound": before.max()}


def check(cohort: Cohort) -> None:
    """Refuse a client alone, and latents that are not finite unless the model is not either."""
    if len(cohort.measured) < LEAST_COHORT:
        raise UsageError(
            f"contribution: round {cohort.round + 1} has one client, which cannot be compared with "
            "others: sample at least two"
        )
    wrong = [told["finite"] & ~told["latent"].isfinite().all() for told in cohort.measured]
    if torch.stack(wrong).any():
        client = int(cohort.clients[torch.stack(wrong)][0])
        raise UsageError(
            f"contribution: in round {cohort.round + 1} the mean latent of client {client} is not "
            "finite although its model is: lower the learning rate, or use single precision"
        )
