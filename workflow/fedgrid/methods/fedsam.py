"""FedSAM: each local step goes along the gradient of a worse model nearby (SAM).

Caldarola, Caputo and Ciccone (ECCV 2022) and Qu et al. (ICML 2022). With the gradient g at the
client's parameters w, the step follows the gradient at w + rho g / |g|, both on the same batch.

The parameters are equal to those of the first authors' code on the same batches, to 1e-12: here
1e-12 is added to |g|, there 1e-16. In that code both passes change BatchNorm's running statistics,
here the first alone does.
"""

import torch

from fedgrid.method import Method, Model, Step

NEUTRAL = {"rho": 0.0}
RANGES = {"rho": "[0, inf)"}


def method(rho: float = 0.05) -> Method:
    """rho: the distance of the worse model; 0 is FedAvg."""

    def ascend(step: Step, gradient: Model) -> Model:
        norm = torch.stack([g.square().sum() for g in gradient.values()]).sum().sqrt()
        far = {name: rho * g / (norm + 1e-12) for name, g in gradient.items()}
        return step.gradient({n: w + far[n] if n in far else w for n, w in step.params.items()})

    return Method(correct=ascend, padded=True)
