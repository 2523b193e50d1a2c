"""RFA: the geometric median of the clients' models (Pillutla, Kakade and Harchaoui, 2022).

"Robust Aggregation for Federated Learning" (IEEE TSP 2022). With FedAvg's weights a_k, the smoothed
Weiszfeld algorithm looks for the v with the least sum_k a_k |v - w_k|. From the mean of the models,

    b_k = a_k / max(nu, |v - w_k|)        v <- sum_k b_k w_k / sum_k b_k

is repeated `iterations` times. The defaults are those of the authors' code, where the iterations
also end early if the sum falls by less than a millionth (`tolerance=1e-6`). Local models have the
weights b_k / sum b, also in the mean of BatchNorm's running statistics.
"""

import torch
from torch import Tensor

from fedgrid.method import Cohort, Method, relative

RANGES = {"iterations": "[0, inf)", "nu": "(0, inf)", "tolerance": "[0, inf)"}
ADDED = ("tolerance",)


def method(iterations: int = 4, nu: float = 1e-5, tolerance: float = 0.0) -> Method:
    """iterations: 0 is FedAvg; nu smooths the distance.

    tolerance: the change of the sum, as a share of it, below which iterations end.
    """

    def reweigh(cohort: Cohort, weights: Tensor) -> Tensor:
        flat = torch.cat([delta.flatten(1) for delta in cohort.deltas.values()], 1).to(weights)
        found, before = weights, torch.inf
        for _ in range(iterations):
            away = torch.linalg.vector_norm(flat - relative(found) @ flat, dim=1)
            total = float(weights @ away) if tolerance else 0.0
            if abs(before - total) < tolerance * total:
                break
            before = total
            found = relative(weights / away.clamp(min=nu)) * weights.sum()
        return found

    return Method(reweigh=reweigh, weigh_after_training=True)
