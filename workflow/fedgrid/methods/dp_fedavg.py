"""DP-FedAvg: clipped changes with Gaussian noise (McMahan et al., ICLR 2018).

With D_k = server - local of the round's m clients, and S the largest norm,

    w <- w - (1 / m) sum_k D_k min(1, S / |D_k|) - noise

where the noise of each parameter is normal with the standard deviation z S / m. All clients weigh
the same, so that no client moves the sum by more than S. The paper draws each client independently,
divides by the expected number of clients, and also weighs by samples up to a cap; here a round has
a fixed number of clients.

The guarantee is for clients that are drawn by lot from all, and of whom nothing else is learnt:
with noise, a method that lets clients send more, or looks at local models, is refused beside it,
and so are protocols that do not draw from all clients, or in secret (`availability`, `sampler`).
Epsilon is computed as if each client took part independently with the probability m / N; it is an
approximation for cohorts of a fixed size m. Clients that drop out only make it smaller.

Only parameters are clipped and noisy. A network with BatchNorm also sends its running statistics,
which are neither, so the guarantee holds for networks without them only.
"""

from typing import Any

import torch
from torch import Tensor

from fedgrid.method import Cohort, Memory, Method, Model, Server, Start, weighted_sum
from fedgrid.methods import uniform
from fedgrid.methods._privacy import noise_for, spent
from fedgrid.runtime.names import UsageError

RANGES = {
    "norm": "(0, inf)",
    "noise_multiplier": "[0, inf)",
    "epsilon": "[0, inf)",
    "delta": "(0, 1)",
}
ROUNDS = True  # the noise for an epsilon depends on the number of rounds


def method(
    norm: float = 1.0, noise_multiplier: float = 1.0, epsilon: float = 0.0, delta: float = 1e-5
) -> Method:
    """norm: S; noise_multiplier: z, or with epsilon above 0 what gives it.

    `metrics.csv` has the epsilon spent with this delta, if the network has no BatchNorm. With a
    norm that no change reaches and z 0, it is FedAvg with `uniform`.
    """

    def first(start: Start) -> Memory:
        if epsilon and (bare := start.server.keys() - {*start.parameters}):
            raise UsageError(
                f"dp_fedavg: the network has {sorted(bare)[0]}, which is sent without noise, so no "
                "epsilon can be kept: choose a model without BatchNorm, such as cnn"
            )
        share, whole = start.cohort / start.population, len(start.server) == len(start.parameters)
        noise = noise_for(epsilon, share, start.rounds, delta) if epsilon else noise_multiplier
        told = {"dp_noise": noise, "dp_share": share, "dp_whole": whole}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in told.items()}

    def account(server: Server) -> dict[str, float]:
        noise, share, whole = (float(server.shared[f"dp_{n}"]) for n in ("noise", "share", "whole"))
        return {"epsilon": spent(noise, share, server.round, delta)} if whole else {}

    def clip(cohort: Cohort, weights: Tensor) -> Tensor:
        none = torch.zeros_like(weights)
        squares = sum((d.flatten(1).square().sum(1) for d in cohort.deltas.values()), none)
        return weights * (norm / squares.sqrt().clamp(min=1e-30)).clamp(max=1).to(weights)

    def noisy(cohort: Cohort, factors: Tensor) -> Model:
        if float(factors.abs().max()) > 1.001 / len(cohort.clients):
            raise UsageError(
                "dp_fedavg: another method gives clients larger weights, so that the noise is too "
                "small: leave that one out"
            )
        generator = torch.Generator().manual_seed(cohort.noise)
        deviation = float(cohort.shared["dp_noise"]) * norm / len(cohort.clients)

        def drawn(like: Tensor) -> Tensor:
            normal = torch.randn(like.shape, generator=generator, dtype=torch.float64)
            return deviation * normal.to(like)

        return {n: change + drawn(change) for n, change in weighted_sum(cohort, factors).items()}

    given: dict[str, Any] = {"uses_weights": True, "weigh_after_training": True}
    given |= {"discreet": bool(noise_multiplier or epsilon)}
    given |= {"shared": first, "evaluate_server": account if noise_multiplier or epsilon else None}
    return Method(weigh=uniform.method().weigh, scale=clip, aggregate=noisy, **given)
